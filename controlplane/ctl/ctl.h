#pragma once

/*
 * ctl - what the verbs of paddockctl share
 *
 * Purpose: the verb table's types and the calls that every verb makes.
 * Thread:  one; everything blocks.
 * Errors:  a verb returns the program's exit status; failures were printed by then.
 * Uses:    base, api, client.
 */

#include <stdbool.h>
#include <stddef.h>

#include "api/api.h"
#include "base/json.h"
#include "client/rest_client.h"

struct ctl {
	const char *url;
	const char *key;
	const char *socket;
	bool is_json;
	struct rest_client *client; /* made at the first call */
};

struct ctl_verb {
	const char *noun; /* NULL: the verb stands alone */
	const char *name;
	const char *usage; /* of the positional arguments: "ID PATH" */
	const char *doc;
	enum api_op op; /* its fields are the verb's options */
	bool is_admin;  /* through the admin socket */
	int (*run)(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
	const char *more; /* options that are no fields, as --help shows them; NULL: none */
};

extern const struct ctl_verb ctl_verbs[];
extern const size_t ctl_verb_count;

#define CTL_EXIT_USAGE     2
#define CTL_EXIT_TIMED_OUT 124
#define CTL_EXIT_FAILED    125 /* also when a command could not be run at all */

/* ---- options (ctl_options.c) ---- */

#define CTL_POSITIONALS_MAX 1100

/* What the command line held, checked only for form: the service judges the values. */
struct ctl_options {
	json_object *values; /* by field name; owned */
	const char *positionals[CTL_POSITIONALS_MAX];
	size_t positional_count;
	const char *own[8]; /* values of the verb's own options, in their order; "" for a flag */
};

/*
 * Reads --field-name VALUE for every field of @row that isn't in the path, the verb's @own options
 * (NULL or NULL-terminated names; a "=" at the end of one: it takes a value), and --json, which
 * goes into @ctl. A yes-or-no field needs no value, and --no-NAME is its no. Everything
 * after "--" is positional; with @stop_early everything from the second positional argument on is,
 * too, so that a command keeps its options. Prints what is wrong and returns -1; @options wants its
 * ctl_options_fini() then as well.
 */
int ctl_options_read(struct ctl *ctl, struct ctl_options *options, const struct api_row *row,
	const char *const *own, bool stop_early, int argc, char **argv);
void ctl_options_fini(struct ctl_options *options);
#define _cleanup_ctl_options_ _cleanup_(ctl_options_fini)

/* Exactly or at least so many positional arguments; else prints the usage and returns -1. */
int ctl_expect(
	const struct ctl_verb *verb, const struct ctl_options *options, size_t least, size_t most);

void ctl_usage(const struct ctl_verb *verb, FILE *out);

/* ---- calls (ctl_call.c) ---- */

/* NULL where it isn't set, or empty. */
const char *ctl_environment(const char *name);
/* The path of the admin socket that the options and the environment name. The caller frees. */
char *ctl_admin_socket(const struct ctl *ctl);

/* One more client of the service that the options and the environment name, for what goes on
 * beside a call. NULL after a message. */
struct rest_client *ctl_client_new(const struct ctl *ctl, const struct ctl_verb *verb);
/* Makes ctl->client at need; false after a message. */
bool ctl_has_client(struct ctl *ctl, const struct ctl_verb *verb);

/* Sends @values as JSON body or as query, as the row wants. 0, or the exit status of a failure,
 * which was printed. A success has an object in @ret->json. */
int ctl_call(struct ctl *ctl, const struct ctl_verb *verb, const char *id, json_object *values,
	struct rest_response *ret);
/* The same with the whole request in the caller's hand. A callback that gives up has printed why.
 */
int ctl_call_request(struct ctl *ctl, const struct ctl_verb *verb,
	const struct rest_request *request, struct rest_response *ret);

/* Says what failed, and which request of whose fault it was. */
void ctl_print_failure(const struct err *err, const struct rest_response *response);

/* ---- output (ctl_out.c) ---- */

struct ctl_column {
	const char *title;
	const char *field;
};

/* Rows of @array as a table that fits its content; strings are escaped for a terminal. */
void ctl_print_table(json_object *array, const struct ctl_column *columns, size_t count);
/* "field: value" lines. */
void ctl_print_record(json_object *object);
/* One line of JSON. */
void ctl_print_json(json_object *object);
/* @text with everything escaped that could drive a terminal. */
void ctl_print_text(const char *text, size_t len, FILE *out);

/*
 * All of it, past stdio. 0, or -1 after a message. Where nobody reads stdout any more, the process
 * ends as others do that write into a pipe: by SIGPIPE, which libcurl may have had ignored.
 */
int ctl_write(int fd, const void *data, size_t len);

/* Members of answers; "" where there is none. */
const char *ctl_member(json_object *object, const char *name);
bool ctl_is_true(json_object *object, const char *name);
/* The array @name of an answer, each of its elements an object; or NULL after a message. */
json_object *ctl_array(json_object *object, const char *name);

/* ---- running a command (verb_exec.c) ---- */

/*
 * Runs what @values say, fields of exec, in sandbox @id: streams, forwards signals and our stdin
 * (@has_stdin), and returns its exit status; or what --json and background ask for.
 */
int ctl_run(struct ctl *ctl, const struct ctl_verb *verb, const char *id, json_object *values,
	bool has_stdin);
void ctl_add_args(json_object *values, const char *const *words, size_t count);

/* ---- verbs ---- */

int ctl_create(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_list(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_one(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_extend(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_destroy(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_exec(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_shell(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_ps(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_output(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_input(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_kill(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_wait(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_results(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_push(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_pull(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_ls(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_service(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_account_create(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_account_list(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_key_create(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_key_list(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_key_revoke(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_images(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_doctor(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
int ctl_strays(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv);
