#include "ops/op.h"

#include <inttypes.h>
#include <string.h>

#include "base/xalloc.h"
#include "ops/cursor.h"
#include "ops/digest.h"
#include "ops/view.h"
#include "sandbox/sandbox_state.h"

static enum op_ret reply_row(struct op_call *call, int status, const struct store_sandbox *row)
{
	return op_reply(call, status, view_sandbox(row, call->principal.is_admin));
}

/* ---- create ---- */

static int take_named_size(const struct ops_config *config, const char *name,
	struct sandbox_create_spec *spec, struct err *err)
{
	char names[160] = "";

	for (size_t i = 0; i < config->size_count; i++) {
		const struct ops_size *size = &config->sizes[i];
		size_t used = strlen(names);

		if (strcmp(size->name, name) == 0) {
			spec->size = size->name;
			spec->vcpus = size->vcpus;
			spec->memory_mb = size->memory_mb;
			spec->disk_gb = size->disk_gb;
			return 0;
		}
		snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", size->name);
	}
	return err_set(err, ERR_INVALID, "\"size\" must be one of %s", names);
}

static int take_size(const struct op_call *call, struct sandbox_create_spec *spec, struct err *err)
{
	static const char *const figures[] = {"vcpus", "memory_mb", "disk_gb"};
	const struct ops_config *config = &call->ops->config;
	const struct api_args *args = &call->args;
	const char *missing = NULL;
	size_t given = 0;

	for (size_t i = 0; i < ARRAY_SIZE(figures); i++) {
		if (api_args_has(args, figures[i])) {
			given++;
		} else if (!missing) {
			missing = figures[i];
		}
	}
	if (given == 0) {
		const char *name = api_args_text(args, "size");

		return take_named_size(config, name ? name : config->default_size, spec, err);
	}
	if (api_args_has(args, "size")) {
		return err_set(err, ERR_INVALID,
			"\"size\" and figures (\"vcpus\", \"memory_mb\", \"disk_gb\") exclude "
			"each other");
	}
	if (missing) {
		return err_set(err, ERR_INVALID,
			"\"%s\" is missing: \"vcpus\", \"memory_mb\" and \"disk_gb\" go "
			"together",
			missing);
	}
	spec->size = NULL;
	spec->vcpus = (unsigned)api_args_int(args, "vcpus");
	spec->memory_mb = (unsigned)api_args_int(args, "memory_mb");
	spec->disk_gb = (unsigned)api_args_int(args, "disk_gb");
	return 0;
}

static int check_minutes(
	const struct op_call *call, const char *field, int64_t minutes, struct err *err)
{
	unsigned max = call->ops->config.max_lifetime_minutes;

	if (minutes > max) {
		return err_set(err, ERR_INVALID, "\"%s\" must be between 1 and %u, not %" PRId64,
			field, max, minutes);
	}
	return 0;
}

static int take_timeout(
	const struct op_call *call, struct sandbox_create_spec *spec, struct err *err)
{
	/* A permanent one has no expiry unless it is given one. */
	spec->timeout_minutes = spec->is_temporary ? call->ops->config.timeout_default_minutes : 0;
	if (api_args_has(&call->args, "timeout_minutes")) {
		spec->timeout_minutes = (unsigned)api_args_int(&call->args, "timeout_minutes");
	}
	return check_minutes(call, "timeout_minutes", spec->timeout_minutes, err);
}

static enum sandbox_network network_of(const struct api_args *args)
{
	const char *network = api_args_text(args, "network");

	if (!network) {
		return SANDBOX_NETWORK_DEFAULT;
	}
	return strcmp(network, "egress") == 0 ? SANDBOX_NETWORK_EGRESS : SANDBOX_NETWORK_NONE;
}

/* Field by field in the table's order. */
static void hash_request(const struct api_args *args, char out[DIGEST_TEXT_BYTES])
{
	struct digest *digest = digest_new();

	for (const struct api_field *field = args->row->fields; field->name; field++) {
		/* Whether to wait is no part of what is asked for. */
		if (strcmp(field->name, "wait") != 0 && api_args_has(args, field->name)) {
			digest_add(digest, field->name, api_args_object(args, field->name));
		}
	}
	digest_end(digest, out);
}

static void drop_wait(struct op_call *call)
{
	sandbox_wait_cancel(call->own);
}

static void on_ready(void *arg, struct sandbox *sb, const struct err *err)
{
	struct op_call *call = arg;

	if (err) {
		op_fail(call, err);
	} else {
		reply_row(call, call->answer.status, sandbox_row(sb));
	}
}

/* The row is made; what is left to say, and when? */
static enum op_ret after_create(struct op_call *call, struct sandbox *sb, bool is_replay)
{
	const struct store_sandbox *row = sandbox_row(sb);

	op_note_sandbox(call, row->id);
	if (sandbox_state(sb) != SANDBOX_PROVISIONING) {
		return reply_row(call, is_replay ? 200 : call->row->status, row);
	}
	if (!api_args_bool(&call->args, "wait")) {
		return reply_row(call, 202, row);
	}
	call->answer.status = is_replay ? 200 : call->row->status;
	return op_wait(call, drop_wait, sandbox_wait_ready(sb, on_ready, call));
}

static int check_env(char *const *env, struct err *err)
{
	size_t bytes = 0;

	for (; env && *env; env++) {
		bytes += strlen(*env) + 1;
	}
	if (bytes > API_ENV_MAX_BYTES) {
		return err_set(err, ERR_INVALID,
			"\"env\" must have at most %d bytes together, not %zu", API_ENV_MAX_BYTES,
			bytes);
	}
	return 0;
}

static int fill_spec(struct op_call *call, struct sandbox_create_spec *spec, struct err *err)
{
	const struct api_args *args = &call->args;

	if (call->principal.is_admin) {
		return err_set(err, ERR_FORBIDDEN,
			"an administrator has no account of its own: use an account's API key");
	}
	spec->account = call->principal.account_id;
	spec->name = api_args_text(args, "name");
	spec->image = api_args_text(args, "image");
	spec->network = network_of(args);
	spec->is_temporary = api_args_bool(args, "temporary");
	spec->idempotency_key = call->idempotency_key;
	return take_size(call, spec, err) < 0 || take_timeout(call, spec, err) < 0 ? -1 : 0;
}

enum op_ret op_sandbox_create(struct op_call *call)
{
	struct err err = ERR_INIT;
	struct sandbox_create_spec spec = {0};
	char hash[DIGEST_TEXT_BYTES];
	struct sandbox *sb;
	bool is_replay = false;

	if (fill_spec(call, &spec, &err) < 0) {
		return op_fail(call, &err);
	}
	if (spec.idempotency_key) {
		hash_request(&call->args, hash);
		spec.request_hash = hash;
	}
	json_object *metadata = api_args_object(&call->args, "metadata");
	char **env = api_args_strv(&call->args, "env");

	spec.env = env;
	spec.metadata = metadata ? json_text(metadata, NULL) : NULL;

	int ret = check_env(env, &err);

	if (ret == 0) {
		ret = sandbox_create(call->ops->parts.sandboxes, &spec, &sb, &is_replay, &err);
	}
	strv_free(env);
	/* Nothing else is looked for: it is the request that is wrong, not its path. */
	if (ret < 0 && err.kind == ERR_NOT_FOUND) {
		err.kind = ERR_INVALID;
		err_wrap(&err, "\"image\"");
	}
	return ret < 0 ? op_fail(call, &err) : after_create(call, sb, is_replay);
}

/* ---- list ---- */

static void take_status(const struct api_args *args, struct store_sandbox_query *query)
{
	const char *status = api_args_text(args, "status");

	if (strcmp(status, "live") == 0) {
		query->is_live_only = true;
	} else if (strcmp(status, "all") != 0) {
		query->state = status;
	}
}

/* @account holds the id that the query points to. */
static int take_account(struct op_call *call, struct store_sandbox_query *query,
	char account[ID_BYTES], struct err *err)
{
	const char *wanted = api_args_text(&call->args, "account");

	if (!call->principal.is_admin) {
		if (wanted) {
			return err_set(err, ERR_FORBIDDEN, "\"account\" is for administrators");
		}
		query->account = call->principal.account_id;
		return 0;
	}
	if (wanted) {
		query->account = account;
		return op_find_account(call, wanted, account, err);
	}
	return 0;
}

static int take_cursor(struct op_call *call, json_object *metadata, struct cursor *cursor,
	struct store_sandbox_query *query, struct err *err)
{
	const char *text = api_args_text(&call->args, "cursor");

	if (!text) {
		return 0;
	}
	if (cursor_read(call->ops->parts.store, query, metadata, text, cursor, err) < 0) {
		return -1;
	}
	query->after_id = cursor->id;
	query->after_created_at_ms = cursor->created_at_ms;
	return 0;
}

static json_object *list_answer(const struct op_call *call, const struct store_sandbox_query *query,
	json_object *metadata, const struct store_sandbox_list *list)
{
	json_object *data = json_object_new_array();
	json_object *answer = json_object_new_object();
	char next[CURSOR_TEXT_BYTES];

	for (size_t i = 0; i < list->count; i++) {
		json_object_array_add(data, view_sandbox(list->rows[i], call->principal.is_admin));
	}
	if (list->has_more) {
		cursor_write(call->ops->parts.store, query, metadata, list, next);
	}
	view_set(answer, "data", data);
	view_set_text(answer, "next_cursor", list->has_more ? next : NULL);
	return answer;
}

enum op_ret op_sandbox_list(struct op_call *call)
{
	struct err err = ERR_INIT;
	const struct api_args *args = &call->args;
	struct store_sandbox_query query = {.limit = (unsigned)api_args_int(args, "limit")};
	_cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
	json_object *metadata = api_args_object(args, "metadata");
	struct cursor cursor;
	char account[ID_BYTES];

	query.metadata = metadata ? json_text(metadata, NULL) : NULL;
	take_status(args, &query);
	if (take_account(call, &query, account, &err) < 0 ||
		take_cursor(call, metadata, &cursor, &query, &err) < 0 ||
		store_sandbox_list(call->ops->parts.store, &query, &list, &err) < 0) {
		return op_fail(call, &err);
	}
	return op_reply(call, call->row->status, list_answer(call, &query, metadata, &list));
}

/* ---- get ---- */

enum op_ret op_sandbox_get(struct op_call *call)
{
	struct err err = ERR_INIT;
	_cleanup_store_sandbox_ struct store_sandbox *ended = NULL;
	struct sandbox *sb = op_find_sandbox(call, &ended, &err);

	if (!sb && !ended) {
		return op_fail(call, &err);
	}
	return reply_row(call, call->row->status, sb ? sandbox_row(sb) : ended);
}

/* ---- waiting for so long ---- */

/* For a sandbox, for a client that won't wait for ever; what it asked for goes on. */
struct patience {
	struct op_call *call;
	struct sandbox_wait *wait;
	struct event *timer;
	const char *what;
};

static void patience_free(struct patience *patience)
{
	event_free(patience->timer);
	free(patience);
}

static void drop_patience(struct op_call *call)
{
	struct patience *patience = call->own;

	sandbox_wait_cancel(patience->wait);
	patience_free(patience);
}

static void on_waited(void *arg, struct sandbox *sb, const struct err *err)
{
	struct patience *patience = arg;
	struct op_call *call = patience->call;

	patience_free(patience);
	if (err) {
		op_fail(call, err);
	} else {
		reply_row(call, call->row->status, sandbox_row(sb));
	}
}

static void on_waited_long(evutil_socket_t fd, short what, void *arg)
{
	struct patience *patience = arg;
	struct op_call *call = patience->call;
	struct err err;

	(void)fd;
	(void)what;
	err_set(&err, ERR_TIMEOUT, "the %s takes longer than usual; it goes on", patience->what);
	drop_patience(call);
	op_fail(call, &err);
}

static struct patience *patience_new(struct op_call *call, uint64_t ms, const char *what)
{
	struct patience *patience = xnew(struct patience);

	patience->call = call;
	patience->what = what;
	patience->timer = loop_timer_new(call->ops->parts.loop, on_waited_long, patience);
	loop_timer_set(patience->timer, ms);
	return patience;
}

/* ---- delete ---- */

enum op_ret op_sandbox_delete(struct op_call *call)
{
	struct err err = ERR_INIT;
	_cleanup_store_sandbox_ struct store_sandbox *ended = NULL;
	struct sandbox *sb = op_find_sandbox(call, &ended, &err);

	if (!sb) {
		return ended ? reply_row(call, call->row->status, ended) : op_fail(call, &err);
	}
	struct patience *patience = patience_new(call, call->ops->config.delete_wait_ms, "removal");

	/* Failed creations end as "failed": for who deletes them that is as good. */
	patience->wait = sandbox_wait_gone(sb, on_waited, patience);
	sandbox_destroy(sb, "deleted");
	return op_wait(call, drop_patience, patience);
}

/* ---- extend ---- */

/* The domain's callback can't be called off: when the caller has left, it finds no call here. */
struct extension {
	struct op_call *call;
};

static void drop_extension(struct op_call *call)
{
	struct extension *extension = call->own;

	extension->call = NULL;
}

static void on_extended(void *arg, struct sandbox *sb, const struct err *err)
{
	struct extension *extension = arg;
	struct op_call *call = extension->call;

	free(extension);
	if (!call) {
		return;
	}
	if (err) {
		op_fail(call, err);
	} else {
		reply_row(call, call->row->status, sandbox_row(sb));
	}
}

enum op_ret op_sandbox_extend(struct op_call *call)
{
	struct err err = ERR_INIT;
	int64_t minutes = api_args_int(&call->args, "minutes");

	if (check_minutes(call, "minutes", minutes, &err) < 0) {
		return op_fail(call, &err);
	}
	struct sandbox *sb = op_live_sandbox(call, &err);

	if (!sb) {
		return op_fail(call, &err);
	}
	struct extension *extension = xnew(struct extension);

	extension->call = call;
	if (sandbox_extend(sb, (unsigned)minutes, on_extended, extension, &err) < 0) {
		free(extension);
		return op_fail(call, &err);
	}
	return op_wait(call, drop_extension, extension);
}

/* ---- restart, reset ---- */

/* A machine that can't be stopped is tried again for ever: its client isn't. */
static enum op_ret start_again(
	struct op_call *call, const char *what, int (*begin)(struct sandbox *sb, struct err *err))
{
	struct err err = ERR_INIT;
	struct sandbox *sb = op_live_sandbox(call, &err);

	if (!sb || begin(sb, &err) < 0) {
		return op_fail(call, &err);
	}
	if (!api_args_bool(&call->args, "wait")) {
		return reply_row(call, 202, sandbox_row(sb));
	}
	struct patience *patience = patience_new(call, call->ops->config.again_wait_ms, what);

	patience->wait = sandbox_wait_ready(sb, on_waited, patience);
	return op_wait(call, drop_patience, patience);
}

enum op_ret op_sandbox_restart(struct op_call *call)
{
	return start_again(call, "restart", sandbox_restart);
}

enum op_ret op_sandbox_reset(struct op_call *call)
{
	return start_again(call, "reset", sandbox_reset);
}
