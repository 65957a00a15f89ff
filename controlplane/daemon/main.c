#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "api/api_errors.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/doctor.h"
#include "daemon/files_limit.h"
#include "daemon/strays_once.h"

extern char **environ;

enum exit_status {
	EXIT_OK = 0,
	EXIT_START = 1,
	EXIT_STRAYS = 1, /* some are left */
	EXIT_USAGE = 2,
	EXIT_CONFIG = 78 /* EX_CONFIG */
};

enum action { ACTION_RUN, ACTION_CHECK, ACTION_DUMP, ACTION_DOCTOR, ACTION_RELEASE, ACTION_STRAYS };

enum option_id {
	OPTION_CONFIG = 1000,
	OPTION_SET,
	OPTION_CHECK,
	OPTION_DUMP,
	OPTION_DOCTOR,
	OPTION_RELEASE,
	OPTION_STRAYS,
	OPTION_REAP,
	OPTION_ALL_INSTANCES,
	OPTION_VERSION,
	OPTION_HELP,
};

static const struct option options[] = {
	{"config", required_argument, NULL, OPTION_CONFIG},
	{"set", required_argument, NULL, OPTION_SET},
	{"check-config", no_argument, NULL, OPTION_CHECK},
	{"dump-config", no_argument, NULL, OPTION_DUMP},
	{"doctor", no_argument, NULL, OPTION_DOCTOR},
	{"release-host", no_argument, NULL, OPTION_RELEASE},
	{"strays", no_argument, NULL, OPTION_STRAYS},
	{"reap", no_argument, NULL, OPTION_REAP},
	{"all-instances", no_argument, NULL, OPTION_ALL_INSTANCES},
	{"version", no_argument, NULL, OPTION_VERSION},
	{"help", no_argument, NULL, OPTION_HELP},
	{NULL},
};

#define DEFAULT_CONFIG "/etc/paddock/paddockd.conf"

static void print_help(void)
{
	printf("usage: paddockd [--config FILE] [--set SECTION.KEY=VALUE]... [ACTION]\n\n"
	       "  --config FILE   settings (default: PADDOCK_CONFIG or " DEFAULT_CONFIG
	       " where it exists)\n"
	       "  --set S.K=V     overrides one setting; so does the environment: PADDOCK_S_K=V\n\n"
	       "Without an action it runs the service in the foreground and logs to stderr.\n"
	       "  --check-config  checks the settings and exits\n"
	       "  --dump-config   prints all settings with their documentation\n"
	       "  --doctor        checks the host and says how to fix what is wrong\n"
	       "  --release-host  gives back the nftables table and the user ids of a stopped "
	       "instance\n"
	       "  --strays [--reap] [--all-instances]\n"
	       "                  lists the strays of a stopped instance as JSON, and removes "
	       "them; "
	       "paddockctl\n"
	       "                  strays does this in a readable form, whether or not the service "
	       "runs.\n"
	       "                  Exits with 0: none are left, 1: some are, others: it failed\n"
	       "  --version\n");
}

/* File, then environment, then --set. */
static int read_config(struct config *config, const char *path, const char *const *sets,
	size_t set_count, struct err *err)
{
	const char *from_environment = getenv("PADDOCK_CONFIG");
	struct stat st;

	if (!path) {
		path = from_environment && from_environment[0] ? from_environment
		       : stat(DEFAULT_CONFIG, &st) == 0        ? DEFAULT_CONFIG
							       : NULL;
	}
	if ((path && config_read_file(config, path, err) != 0) ||
		config_read_environment(config, environ, err) != 0) {
		return -1;
	}
	for (size_t i = 0; i < set_count; i++) {
		if (config_set(config, sets[i], err) != 0) {
			return err_wrap(err, "--set");
		}
	}
	return config_finish(config, err);
}

static void take_log_level(const struct config *config)
{
	static const enum log_level levels[] = {
		[CONFIG_LOG_ERROR] = LOG_LEVEL_ERR,
		[CONFIG_LOG_WARNING] = LOG_LEVEL_WARN,
		[CONFIG_LOG_INFO] = LOG_LEVEL_INFO,
		[CONFIG_LOG_DEBUG] = LOG_LEVEL_DEBUG,
	};

	log_set_level(levels[config->log_level]);
}

static int run_service(const struct config *config)
{
	struct daemon *daemon = daemon_new(config);
	struct err err = ERR_INIT;
	int status = EXIT_OK;

	rlim_t files = files_limit_raise();

	log_info("paddockd starts", "version=%s descriptors_max=%llu", PADDOCK_VERSION,
		(unsigned long long)files);
	if (daemon_start(daemon, &err) == 0) {
		daemon_run(daemon);
	} else {
		log_failure(
			LOG_LEVEL_ERR, "paddockd can't start", &err, "version=%s", PADDOCK_VERSION);
		status = err.kind == ERR_INVALID ? EXIT_CONFIG : EXIT_START;
	}
	if (!daemon_free(daemon)) {
		log_warn("a call to the hypervisor still hangs; leaving it", "version=%s",
			PADDOCK_VERSION);
		_exit(status);
	}
	log_info("paddockd has stopped", "status=%d", status);
	return status;
}

static int run_strays(const struct config *config, const struct strays_options *wanted)
{
	_cleanup_json_ json_object *answer = NULL;
	struct err err = ERR_INIT;

	if (strays_once(config, wanted, &answer, &err) != 0) {
		fprintf(stderr, "paddockd: %s\n", err.msg);
		return api_error_of(err.kind)->exit_code;
	}
	printf("%s\n", json_text(answer, NULL));
	return json_object_get_int64(json_object_object_get(answer, "left")) > 0 ? EXIT_STRAYS
										 : EXIT_OK;
}

static int run_action(
	enum action action, const struct config *config, const struct strays_options *strays)
{
	struct err err = ERR_INIT;

	switch (action) {
	case ACTION_CHECK:
		printf("the configuration is fine\n");
		return EXIT_OK;
	case ACTION_DUMP:
		config_dump(config, stdout);
		return EXIT_OK;
	case ACTION_DOCTOR: {
		_cleanup_json_ json_object *findings = doctor_run_blocking(config, NULL);
		return doctor_print(findings) ? EXIT_OK : EXIT_START;
	}
	case ACTION_RELEASE:
		if (daemon_release_host(config, &err) != 0) {
			fprintf(stderr, "paddockd: %s\n", err.msg);
			return EXIT_START;
		}
		return EXIT_OK;
	case ACTION_STRAYS:
		return run_strays(config, strays);
	case ACTION_RUN:
	default:
		return run_service(config);
	}
}

int main(int argc, char **argv)
{
	const char *sets[64];
	size_t set_count = 0;
	const char *path = NULL;
	enum action action = ACTION_RUN;
	struct strays_options strays = {0};
	struct config config;
	struct err err = ERR_INIT;
	int option;

	/* libvirt's embedded driver makes directories that QEMU's users pass through. What is
	 * private has its mode set. */
	umask(0022);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case OPTION_CONFIG:
			path = optarg;
			break;
		case OPTION_SET:
			if (set_count == ARRAY_SIZE(sets)) {
				fprintf(stderr, "paddockd: --set: at most %zu times\n", set_count);
				return EXIT_USAGE;
			}
			sets[set_count++] = optarg;
			break;
		case OPTION_CHECK:
			action = ACTION_CHECK;
			break;
		case OPTION_DUMP:
			action = ACTION_DUMP;
			break;
		case OPTION_DOCTOR:
			action = ACTION_DOCTOR;
			break;
		case OPTION_RELEASE:
			action = ACTION_RELEASE;
			break;
		case OPTION_STRAYS:
			action = ACTION_STRAYS;
			break;
		case OPTION_REAP:
			strays.is_reap = true;
			break;
		case OPTION_ALL_INSTANCES:
			strays.wants_others = true;
			break;
		case OPTION_VERSION:
			printf("paddockd %s\n", PADDOCK_VERSION);
			return EXIT_OK;
		case OPTION_HELP:
			print_help();
			return EXIT_OK;
		default:
			return EXIT_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "paddockd: there is no argument %s; see --help\n", argv[optind]);
		return EXIT_USAGE;
	}
	if (action != ACTION_STRAYS && (strays.is_reap || strays.wants_others)) {
		fprintf(stderr, "paddockd: --reap and --all-instances go with --strays\n");
		return EXIT_USAGE;
	}
	config_init(&config);
	int status = EXIT_CONFIG;
	if (read_config(&config, path, sets, set_count, &err) != 0) {
		fprintf(stderr, "paddockd: %s\n", err.msg);
	} else {
		take_log_level(&config);
		status = run_action(action, &config, &strays);
	}
	config_fini(&config);
	return status;
}
