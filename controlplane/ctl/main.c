#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "ctl/ctl.h"

#define DEFAULT_URL "http://127.0.0.1:8470"

static void print_help(FILE *out)
{
	fprintf(out,
		"usage: paddockctl [--json] [--url URL] [--key KEY] [--socket PATH] VERB ...\n\n"
		"Verbs (paddockctl VERB --help tells the options of one):\n");
	for (size_t i = 0; i < ctl_verb_count; i++) {
		const struct ctl_verb *verb = &ctl_verbs[i];
		char name[64];

		snprintf(name, sizeof name, "%s%s%s %s", verb->noun ? verb->noun : "",
			verb->noun ? " " : "", verb->name, verb->usage);
		fprintf(out, "  %-36s %s\n", name, verb->doc);
	}
	fprintf(out, "\nEnvironment: PADDOCK_URL (" DEFAULT_URL
		     "), PADDOCK_API_KEY, and for administration\n"
		     "PADDOCK_ADMIN_SOCKET or PADDOCK_STATE_DIR. With --socket every verb goes "
		     "through the admin socket.\n");
}

static const struct ctl_verb *find_verb(int *argc, char ***argv)
{
	for (size_t i = 0; i < ctl_verb_count; i++) {
		const struct ctl_verb *verb = &ctl_verbs[i];
		int words = verb->noun ? 2 : 1;

		if (*argc >= words && (!verb->noun || strcmp((*argv)[0], verb->noun) == 0) &&
			strcmp((*argv)[words - 1], verb->name) == 0) {
			*argc -= words;
			*argv += words;
			return verb;
		}
	}
	return NULL;
}

/* Takes the options before the verb; the number of words used, or -1. */
static int read_global_options(struct ctl *ctl, int argc, char **argv)
{
	static const struct {
		const char *name;
		size_t offset;
	} settings[] = {{"--url", offsetof(struct ctl, url)}, {"--key", offsetof(struct ctl, key)},
		{"--socket", offsetof(struct ctl, socket)}};
	int i = 1;

	for (; i < argc && argv[i][0] == '-'; i++) {
		bool found = strcmp(argv[i], "--json") == 0;

		ctl->is_json = ctl->is_json || found;
		for (size_t k = 0; k < ARRAY_SIZE(settings) && !found; k++) {
			size_t n = strlen(settings[k].name);
			const char **to = (const char **)((char *)ctl + settings[k].offset);

			if (strcmp(argv[i], settings[k].name) == 0) {
				if (i + 1 == argc) {
					fprintf(stderr, "paddockctl: %s needs a value\n", argv[i]);
					return -1;
				}
				*to = argv[++i];
				found = true;
			} else if (strncmp(argv[i], settings[k].name, n) == 0 &&
				   argv[i][n] == '=') {
				*to = argv[i] + n + 1;
				found = true;
			}
		}
		if (!found) {
			fprintf(stderr, "paddockctl: there is no option %s before the verb\n",
				argv[i]);
			return -1;
		}
	}
	return i;
}

static int run(int argc, char **argv)
{
	const char *url = ctl_environment("PADDOCK_URL");
	struct ctl ctl = {
		.url = url ? url : DEFAULT_URL, .key = ctl_environment("PADDOCK_API_KEY")};

	if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
		print_help(stdout);
		return 0;
	}
	if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
		printf("paddockctl %s\n", PADDOCK_VERSION);
		return 0;
	}
	int used = read_global_options(&ctl, argc, argv);
	if (used < 0) {
		return CTL_EXIT_USAGE;
	}
	argc -= used;
	argv += used;
	const struct ctl_verb *verb = find_verb(&argc, &argv);
	if (!verb) {
		print_help(stderr);
		return CTL_EXIT_USAGE;
	}
	if (argc >= 1 && strcmp(argv[0], "--help") == 0) {
		ctl_usage(verb, stdout);
		return 0;
	}
	int status = verb->run(&ctl, verb, argc, argv);
	rest_client_free(ctl.client);
	return status;
}

int main(int argc, char **argv)
{
	int status = run(argc, argv);

	/* An earlier failure is known to ferror() alone. */
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "paddockctl: writing the output failed\n");
		return CTL_EXIT_FAILED;
	}
	return status;
}
