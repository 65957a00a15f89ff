#include "ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/xalloc.h"

static long read_fd(void *arg, void *out, size_t size)
{
	const int *fd = arg;
	ssize_t n;

	do {
		n = read(*fd, out, size);
	} while (n < 0 && errno == EINTR);
	return (long)n;
}

static int write_fd(void *arg, const void *data, size_t len)
{
	const int *fd = arg;
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(*fd, p, len);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return -1;
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static int fail_path(const char *what, const char *path)
{
	fprintf(stderr, "paddockctl: %s %s: %s\n", what, path, strerror(errno));
	return CTL_EXIT_FAILED;
}

int ctl_push(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_ctl_options_ struct ctl_options options;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (ctl_options_read(&options, api_row(verb->op), NULL, false, argc, argv) != 0 ||
		ctl_expect(verb, &options, 3, 3) != 0) {
		return CTL_EXIT_USAGE;
	}
	const char *local = options.positionals[1];
	bool is_stdin = strcmp(local, "-") == 0;
	fd = is_stdin ? dup(STDIN_FILENO) : open(local, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0) {
		return fail_path("open", local);
	}
	if (S_ISDIR(st.st_mode)) {
		errno = EISDIR;
		return fail_path("push", local);
	}
	json_object_object_add(
		options.values, "path", json_object_new_string(options.positionals[2]));
	if (S_ISREG(st.st_mode) && !is_stdin &&
		!json_object_object_get_ex(options.values, "mode", NULL)) {
		char mode[8];

		snprintf(mode, sizeof mode, "%04o", (unsigned)st.st_mode & 0777);
		json_object_object_add(options.values, "mode", json_object_new_string(mode));
	}
	struct rest_request request = {
		.row = api_row(verb->op),
		.id = options.positionals[0],
		.query = options.values,
		.read = read_fd,
		.read_arg = &fd,
		.read_bytes = S_ISREG(st.st_mode) && !is_stdin ? (uint64_t)st.st_size : UINT64_MAX,
	};
	int status = ctl_call_request(ctl, verb, &request, &response);
	if (status == 0 && ctl->is_json) {
		ctl_print_json(response.json);
	}
	return status;
}

/* Beside the target, so that a broken transfer leaves no half file. */
static int pull_into(struct ctl *ctl, const struct ctl_verb *verb, struct rest_request *request,
	struct rest_response *response, const char *local)
{
	_cleanup_free_ char *temporary = xasprintf("%s.part-%d", local, (int)getpid());
	_cleanup_close_ int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	if (fd < 0) {
		return fail_path("create", temporary);
	}
	request->write_arg = &fd;
	int status = ctl_call_request(ctl, verb, request, response);
	if (status == 0 && rename(temporary, local) != 0) {
		status = fail_path("write", local);
	}
	if (status != 0) {
		unlink(temporary);
	}
	return status;
}

int ctl_pull(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_ctl_options_ struct ctl_options options;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	int out = STDOUT_FILENO;

	if (ctl_options_read(&options, api_row(verb->op), NULL, false, argc, argv) != 0 ||
		ctl_expect(verb, &options, 2, 3) != 0) {
		return CTL_EXIT_USAGE;
	}
	json_object_object_add(
		options.values, "path", json_object_new_string(options.positionals[1]));
	struct rest_request request = {
		.row = api_row(verb->op),
		.id = options.positionals[0],
		.query = options.values,
		.write = write_fd,
		.write_arg = &out,
	};
	const char *local = options.positional_count == 3 ? options.positionals[2] : "-";
	if (strcmp(local, "-") == 0) {
		return ctl_call_request(ctl, verb, &request, &response);
	}
	return pull_into(ctl, verb, &request, &response, local);
}

static void print_entries(json_object *entries)
{
	for (size_t i = 0; i < json_object_array_length(entries); i++) {
		json_object *entry = json_object_array_get_idx(entries, i);
		const char *type = ctl_member(entry, "type");
		const char *path = ctl_member(entry, "path");
		json_object *size = NULL;

		json_object_object_get_ex(entry, "size_bytes", &size);
		printf("%-8s %5s %12" PRId64 "  %.19s  ", type, ctl_member(entry, "mode"),
			json_object_get_int64(size), ctl_member(entry, "modified_at"));
		ctl_print_text(path, strlen(path), stdout);
		printf("%s\n", strcmp(type, "dir") == 0 ? "/" : "");
	}
}

int ctl_ls(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_ctl_options_ struct ctl_options options;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	json_object *entries = NULL;
	json_object *is_cut = NULL;

	if (ctl_options_read(&options, api_row(verb->op), NULL, false, argc, argv) != 0 ||
		ctl_expect(verb, &options, 1, 2) != 0) {
		return CTL_EXIT_USAGE;
	}
	json_object_object_add(options.values, "list", json_object_new_boolean(true));
	json_object_object_add(options.values, "path",
		json_object_new_string(
			options.positional_count == 2 ? options.positionals[1] : "/workspace"));
	int status = ctl_call(ctl, verb, options.positionals[0], options.values, &response);
	if (status != 0) {
		return status;
	}
	if (ctl->is_json) {
		ctl_print_json(response.json);
	} else if (json_object_object_get_ex(response.json, "entries", &entries)) {
		print_entries(entries);
		if (json_object_object_get_ex(response.json, "truncated", &is_cut) &&
			json_object_get_boolean(is_cut)) {
			fprintf(stderr, "paddockctl: the list is cut; see --limit\n");
		}
	}
	return 0;
}
