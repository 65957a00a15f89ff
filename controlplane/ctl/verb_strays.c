#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/xalloc.h"

/*
 * Theory of operation. A daemon that answers is asked. Where none does, paddockd looks by itself
 * (`paddockd --strays`): it takes the state directory's lock, so a daemon that is just starting, or
 * that listens elsewhere, is found out. What it prints is the same answer.
 */

#define ANSWER_BYTES_MAX (64 * 1024 * 1024)
#define EXIT_LEFT        1
#define EXIT_NO_PROGRAM  127

/* ---- with a daemon ---- */

/* False: nobody listens there. Any other trouble is for the call to tell. */
static bool is_daemon_up(const struct ctl *ctl)
{
	_cleanup_free_ char *path = ctl_admin_socket(ctl);
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	if (fd < 0 || strlen(path) >= sizeof to.sun_path) {
		return true;
	}
	strcpy(to.sun_path, path);
	return connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 ||
	       (errno != ENOENT && errno != ENOTDIR && errno != ECONNREFUSED);
}

/* ---- without ---- */

/* PADDOCKD, else the one beside this program, else the one on PATH. The caller frees. */
static char *find_program(void)
{
	const char *named = getenv("PADDOCKD");
	char self[4096];

	if (named && named[0]) {
		return xstrdup(named);
	}
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	if (len > 0) {
		self[len] = '\0';
		*strrchr(self, '/') = '\0';
		char *beside = xasprintf("%s/paddockd", self);

		if (access(beside, X_OK) == 0) {
			return beside;
		}
		free(beside);
	}
	return xstrdup("paddockd");
}

static void exec_program(const struct ctl_options *options, int out)
{
	char *program = find_program();
	char *argv[8] = {program, (char *)"--strays"};
	size_t count = 2;

	if (ctl_is_true(options->values, "reap")) {
		argv[count++] = (char *)"--reap";
	}
	if (ctl_is_true(options->values, "all_instances")) {
		argv[count++] = (char *)"--all-instances";
	}
	if (options->own[0]) {
		argv[count++] = (char *)"--config";
		argv[count++] = (char *)options->own[0];
	}
	if (dup2(out, STDOUT_FILENO) >= 0) {
		execvp(program, argv);
	}
	fprintf(stderr, "paddockctl: can't run %s: %s; name it in PADDOCKD\n", program,
		strerror(errno));
	_exit(EXIT_NO_PROGRAM);
}

/* Everything up to the end. The caller frees; NULL after a message. */
static char *read_all(int fd, size_t *ret_len)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;

	for (;;) {
		text = xrealloc(text, len + 65536, 1);
		ssize_t n = read(fd, text + len, 65536);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0 || len + (size_t)n > ANSWER_BYTES_MAX) {
			fprintf(stderr, "paddockctl: can't read what paddockd says\n");
			return NULL;
		}
		if (n == 0) {
			*ret_len = len;
			return steal_ptr(&text);
		}
		len += (size_t)n;
	}
}

static int exit_status(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR) {
			return CTL_EXIT_FAILED;
		}
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) != EXIT_NO_PROGRAM) {
		return WEXITSTATUS(status);
	}
	return CTL_EXIT_FAILED;
}

/* 0 with an answer, or the exit status of a failure, which was printed. */
static int run_program(const struct ctl_options *options, json_object **ret)
{
	int pipe_fds[2];
	size_t len = 0;
	struct err err;

	fflush(stdout);
	if (pipe(pipe_fds) != 0) {
		fprintf(stderr, "paddockctl: %s\n", strerror(errno));
		return CTL_EXIT_FAILED;
	}
	pid_t pid = fork();
	if (pid == 0) {
		close(pipe_fds[0]);
		exec_program(options, pipe_fds[1]);
	}
	close(pipe_fds[1]);
	_cleanup_close_ int from = pipe_fds[0];
	if (pid < 0) {
		fprintf(stderr, "paddockctl: %s\n", strerror(errno));
		return CTL_EXIT_FAILED;
	}
	_cleanup_free_ char *text = read_all(from, &len);
	int status = exit_status(pid);

	if (!text || (status != 0 && status != EXIT_LEFT)) {
		return status ? status : CTL_EXIT_FAILED;
	}
	*ret = json_parse_answer(text, len, &err);
	if (!*ret) {
		fprintf(stderr, "paddockctl: paddockd's answer isn't understood: %s\n", err.msg);
		return CTL_EXIT_FAILED;
	}
	return 0;
}

/* ---- output ---- */

static int64_t number(json_object *object, const char *name)
{
	return json_object_get_int64(json_object_object_get(object, name));
}

/* "42 s", "7 min", "3 h", "5 d" */
static char *age_text(int64_t seconds)
{
	static const struct {
		int64_t from;
		int64_t unit;
		const char *name;
	} units[] = {{2 * 86400, 86400, "d"}, {2 * 3600, 3600, "h"}, {120, 60, "min"}};

	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (seconds >= units[i].from) {
			return xasprintf("%" PRId64 " %s", seconds / units[i].unit, units[i].name);
		}
	}
	return xasprintf("%" PRId64 " s", seconds);
}

/* What a column needs that the answer says in another form. */
static void add_texts(json_object *data)
{
	for (size_t i = 0; i < json_object_array_length(data); i++) {
		json_object *stray = json_object_array_get_idx(data, i);
		_cleanup_free_ char *age = age_text(number(stray, "age_seconds"));
		const char *error = ctl_member(stray, "error");
		const char *state = ctl_is_true(stray, "reaped")       ? "reaped"
				    : ctl_member(stray, "instance")[0] ? "not ours"
								       : "left";

		json_object_object_add(stray, "age", json_object_new_string(age));
		json_object_object_add(
			stray, "state", json_object_new_string(error[0] ? error : state));
	}
}

static int print_strays(const struct ctl *ctl, json_object *answer)
{
	static const struct ctl_column columns[] = {{"KIND", "kind"}, {"ID", "id"}, {"AGE", "age"},
		{"OWNER", "account"}, {"REASON", "reason"}, {"STATE", "state"},
		{"INSTANCE", "instance"}, {"WHAT", "what"}};
	json_object *data = ctl_array(answer, "data");

	if (!data) {
		return CTL_EXIT_FAILED;
	}
	int status = number(answer, "left") > 0 ? EXIT_LEFT : 0;

	if (ctl->is_json) {
		ctl_print_json(answer);
		return status;
	}
	if (json_object_array_length(data) > 0) {
		add_texts(data);
		ctl_print_table(data, columns, ARRAY_SIZE(columns));
	}
	printf("%" PRId64 " left, %" PRId64 " reaped, %" PRId64 " too young to tell\n",
		number(answer, "left"), number(answer, "reaped"), number(answer, "young"));
	return status;
}

int ctl_strays(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const char *const own[] = {"config=", NULL};
	_cleanup_ctl_options_ struct ctl_options options;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;

	if (ctl_options_read(ctl, &options, api_row(verb->op), own, false, argc, argv) != 0 ||
		ctl_expect(verb, &options, 0, 0) != 0) {
		return CTL_EXIT_USAGE;
	}
	int status = is_daemon_up(ctl) ? ctl_call(ctl, verb, NULL, options.values, &response)
				       : run_program(&options, &response.json);

	return status ? status : print_strays(ctl, response.json);
}
