#include "ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/xalloc.h"

/* A local end of a transfer. Its callbacks tell what went wrong: the client only knows that they
 * gave up. */
struct local {
	const char *path;
	int fd;
};

static int fail_path(const char *what, const char *path)
{
	fprintf(stderr, "paddockctl: %s %s: %s\n", what, path, strerror(errno));
	return CTL_EXIT_FAILED;
}

static long read_local(void *arg, void *out, size_t size)
{
	const struct local *local = arg;
	ssize_t n;

	do {
		n = read(local->fd, out, size);
	} while (n < 0 && errno == EINTR);
	if (n < 0) {
		fail_path("read", local->path);
	}
	return (long)n;
}

static int write_local(void *arg, const void *data, size_t len)
{
	const struct local *local = arg;
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(local->fd, p, len);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			fail_path("write", local->path);
			return -1;
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int ctl_push(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_ctl_options_ struct ctl_options options;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (ctl_options_read(ctl, &options, api_row(verb->op), NULL, false, argc, argv) != 0 ||
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
	struct local from = {.path = local, .fd = fd};
	struct rest_request request = {
		.row = api_row(verb->op),
		.id = options.positionals[0],
		.query = options.values,
		.read = read_local,
		.read_arg = &from,
		.read_fd = &from.fd, /* a refusal needn't wait for what is piped to us */
		.read_bytes = S_ISREG(st.st_mode) && !is_stdin ? (uint64_t)st.st_size : UINT64_MAX,
	};
	int status = ctl_call_request(ctl, verb, &request, &response);
	if (status == 0 && ctl->is_json) {
		ctl_print_json(response.json);
	}
	return status;
}

/* ---- pull ----
 *
 * A file's content goes beside it first and takes its place at the end, so that a broken transfer
 * leaves what was there. A signal that ends us removes the beginning, too.
 */

static const char *volatile unfinished;

static void on_end(int sig)
{
	if (unfinished) {
		unlink(unfinished);
	}
	raise(sig); /* SA_RESETHAND: it ends us now */
}

static void set_unfinished(const char *path)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = on_end, .sa_flags = (int)SA_RESETHAND};

	unfinished = path;
	for (size_t i = 0; path && i < ARRAY_SIZE(signals); i++) {
		struct sigaction old;

		/* What nohup and the like have set stays. */
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) {
			sigaction(signals[i], &action, NULL);
		}
	}
}

static int pull_to_fd(struct ctl *ctl, const struct ctl_verb *verb, struct rest_request *request,
	const char *path, int fd)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct local local = {.path = path, .fd = fd};

	request->write = write_local;
	request->write_arg = &local;
	return ctl_call_request(ctl, verb, request, &response);
}

/* A device, a FIFO: it is written to, never replaced. */
static int pull_into_other(struct ctl *ctl, const struct ctl_verb *verb,
	struct rest_request *request, const char *path)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? fail_path("open", path) : pull_to_fd(ctl, verb, request, path, fd);
}

/* @old: what is there already, whose mode and owner stay; NULL: nothing. */
static int pull_into_file(struct ctl *ctl, const struct ctl_verb *verb,
	struct rest_request *request, const char *path, const struct stat *old)
{
	_cleanup_free_ char *temporary = xasprintf("%s.part-%d", path, (int)getpid());
	mode_t mode = old ? old->st_mode & 0777 : 0666;
	_cleanup_close_ int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

	if (fd < 0) {
		return fail_path("create", temporary);
	}
	set_unfinished(temporary);
	int status = pull_to_fd(ctl, verb, request, path, fd);
	/* Only root can give a file away. */
	if (status == 0 && old && fchown(fd, old->st_uid, old->st_gid) != 0 && errno != EPERM) {
		status = fail_path("write", path);
	}
	if (status == 0 && old && fchmod(fd, mode) != 0) {
		status = fail_path("write", path);
	}
	if (close(steal_fd(&fd)) != 0 && status == 0) {
		status = fail_path("write", path);
	}
	if (status == 0 && rename(temporary, path) != 0) {
		status = fail_path("write", path);
	}
	if (status != 0) {
		unlink(temporary);
	}
	set_unfinished(NULL);
	return status;
}

int ctl_pull(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_ctl_options_ struct ctl_options options;
	struct stat st;

	if (ctl_options_read(ctl, &options, api_row(verb->op), NULL, false, argc, argv) != 0 ||
		ctl_expect(verb, &options, 2, 3) != 0) {
		return CTL_EXIT_USAGE;
	}
	json_object_object_add(
		options.values, "path", json_object_new_string(options.positionals[1]));
	struct rest_request request = {
		.row = api_row(verb->op), .id = options.positionals[0], .query = options.values};
	const char *path = options.positional_count == 3 ? options.positionals[2] : "-";

	if (strcmp(path, "-") == 0) {
		return pull_to_fd(ctl, verb, &request, "stdout", STDOUT_FILENO);
	}
	/* Through symbolic links, so that they stay. */
	_cleanup_free_ char *target = realpath(path, NULL);

	if (!target || stat(target, &st) != 0) {
		return pull_into_file(ctl, verb, &request, path, NULL);
	}
	return S_ISREG(st.st_mode) ? pull_into_file(ctl, verb, &request, target, &st)
				   : pull_into_other(ctl, verb, &request, target);
}

/* ---- ls ---- */

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

	if (ctl_options_read(ctl, &options, api_row(verb->op), NULL, false, argc, argv) != 0 ||
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
		return 0;
	}
	json_object *entries = ctl_array(response.json, "entries");

	if (!entries) {
		return CTL_EXIT_FAILED;
	}
	print_entries(entries);
	if (ctl_is_true(response.json, "truncated")) {
		fprintf(stderr, "paddockctl: the list is cut; see --limit\n");
	}
	return 0;
}
