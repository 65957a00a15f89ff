#include "tests/lib/world.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "store/store_account.h"

struct id_entry {
	struct id_entry *next;
	char id[ID_BYTES];
};
static struct id_entry *ids; /* what world_create() handed out; freed with the world */

uint64_t real_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void world_turn(struct world *w)
{
	loop_turn_for(w->loop, 5);
}

void world_run(struct world *w, unsigned ms)
{
	uint64_t until = real_ms() + ms;

	while (real_ms() < until) {
		world_turn(w);
	}
}

static struct world *make_world(const char *dir, const struct quota_amounts *limits)
{
	struct world *w = xnew(struct world);
	struct err err;

	log_set_level(getenv("TEST_LOG") ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERR);
	w->dir = xstrdup(dir);
	w->run_dir = xasprintf("%s/run", dir);
	w->loop = loop_new(&err);
	assert_non_null(w->loop);
	w->hv = fake_hv_new(w->loop);
	w->guests = fake_guest_new(w->loop, w->hv);
	w->images = fake_images_new();
	w->limits = limits ? *limits : QUOTA_DEFAULT_LIMITS;
	w->config = (struct sandboxes_config){
		.state_dir = w->dir,
		.run_dir = w->run_dir,
		.uid_first = 300000,
		.uid_count = 100,
		.gid = 300000,
		.boot_timeout_ms = 20000,
		.deadman_margin_ms = 30000,
		.exec_output_cap = 2048,
		.max_lifetime_minutes = 1440,
	};
	return w;
}

/* In memory, where that is possible: what is written needn't outlast the host. */
const char *world_make_dir(char dir[WORLD_DIR_BYTES])
{
	snprintf(dir, WORLD_DIR_BYTES, "%s/paddock-test-XXXXXX",
		access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	assert_non_null(mkdtemp(dir));
	return dir;
}

struct world *world_new_stopped(const struct quota_amounts *limits)
{
	char dir[WORLD_DIR_BYTES];

	return make_world(world_make_dir(dir), limits);
}

struct world *world_new_in(const char *dir)
{
	struct world *w = make_world(dir, NULL);
	_cleanup_free_ char *path = xasprintf("%s/domains", dir);

	fake_hv_keep(w->hv, path);
	return w;
}

/* Of this world, or of the one that was here before. */
static void find_account(struct world *w)
{
	struct store_account account;
	struct err err;

	if (store_account_get_by_name(w->store, "acme", &account, &err) != 0) {
		assert_int_equal(
			store_account_insert(w->store, "acme", clock_wall_ms(), &account, &err), 0);
	}
	snprintf(w->account, sizeof w->account, "%s", account.id);
}

void world_start_only(struct world *w)
{
	const struct quota_host host = {.overcommit_pct = 100};
	_cleanup_free_ char *path = xasprintf("%s/paddock.db", w->dir);
	struct err err = ERR_INIT;

	w->store = store_open(path, &err);
	assert_string_equal(err.msg, "");
	find_account(w);
	w->quotas = quotas_new(&w->limits, &host);
	w->all = sandboxes_new(w->loop, &w->config, w->store, w->quotas, w->images,
		fake_hv_iface(w->hv), fake_guest_driver(w->guests), &err);
	assert_string_equal(err.msg, "");
	sandboxes_start(w->all, &err);
	assert_string_equal(err.msg, "");
}

void world_start(struct world *w)
{
	struct err err;

	world_start_only(w);
	WORLD_UNTIL(w, sandboxes_is_ready(w->all, &err));
}

struct world *world_new(const struct quota_amounts *limits)
{
	struct world *w = world_new_stopped(limits);

	world_start(w);
	return w;
}

void world_stop(struct world *w)
{
	sandboxes_free(w->all);
	quotas_free(w->quotas);
	store_close(w->store);
	w->all = NULL;
	w->quotas = NULL;
	w->store = NULL;
}

void world_reconcile(struct world *w)
{
	fake_hv_tell_late(w->hv, "sb_ffffffffffffffffffff");
}

void world_free(struct world *w)
{
	struct err err;

	if (w->all) {
		world_stop(w);
	}
	assert_int_equal(fake_guest_open_count(w->guests), 0);
	fake_guest_free(w->guests);
	fake_hv_free(w->hv);
	fake_images_free(w->images);
	loop_free(w->loop);
	assert_int_equal(fs_remove_tree(w->dir, &err), 0);
	while (ids) {
		struct id_entry *next = ids->next;

		free(ids);
		ids = next;
	}
	free(w->dir);
	free(w->run_dir);
	free(w);
}

/* ---- sandboxes ---- */

struct sandbox_create_spec world_spec(const struct world *w, const char *name)
{
	return (struct sandbox_create_spec){
		.account = w->account,
		.name = name,
		.size = "tiny",
		.vcpus = 1,
		.memory_mb = 256,
		.disk_gb = 2,
		.network = SANDBOX_NETWORK_DEFAULT,
		.timeout_minutes = 15,
		.is_temporary = true,
	};
}

const char *world_keep_id(const char *id)
{
	struct id_entry *entry = xnew(struct id_entry);

	snprintf(entry->id, sizeof entry->id, "%s", id);
	entry->next = ids;
	ids = entry;
	return entry->id;
}

const char *world_create_spec(struct world *w, const struct sandbox_create_spec *spec)
{
	struct sandbox *sb;
	bool is_replay;
	struct err err = ERR_INIT;

	if (sandbox_create(w->all, spec, &sb, &is_replay, &err) != 0) {
		fail_msg("create: %s", err.msg);
	}
	return world_keep_id(sandbox_row(sb)->id);
}

const char *world_create(struct world *w, const char *name)
{
	struct sandbox_create_spec spec = world_spec(w, name);

	return world_create_spec(w, &spec);
}

const char *world_running(struct world *w, const char *name)
{
	const char *id = world_create(w, name);

	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	return id;
}

struct sandbox *world_find(struct world *w, const char *id)
{
	return sandbox_find(w->all, NULL, id);
}

void world_destroy(struct world *w, const char *id)
{
	struct sandbox *sb = world_find(w, id);

	assert_non_null(sb);
	sandbox_destroy(sb, "deleted");
}

static const char *row_text(struct world *w, const char *id, bool wants_reason)
{
	static char text[512];
	struct err err;
	_cleanup_store_sandbox_ struct store_sandbox *row = store_sandbox_get(w->store, id, &err);

	assert_non_null(row);
	const char *value = wants_reason ? row->reason : row->state;

	snprintf(text, sizeof text, "%s", value ? value : "");
	return text;
}

const char *world_state(struct world *w, const char *id)
{
	return row_text(w, id, false);
}

const char *world_reason(struct world *w, const char *id)
{
	return row_text(w, id, true);
}

bool world_is_state(struct world *w, const char *id, const char *state)
{
	return strcmp(world_state(w, id), state) == 0;
}

bool world_is_clean(struct world *w, const char *id)
{
	_cleanup_free_ char *home = xasprintf("%s/sandboxes/%s", w->dir, id);
	_cleanup_free_ char *run = xasprintf("%s/%s", w->run_dir, id + strlen(ID_SANDBOX));

	return !fake_hv_find(w->hv, id) && access(home, F_OK) != 0 && access(run, F_OK) != 0;
}

size_t world_count_entries(struct world *w, const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", w->dir, name);
	size_t count = 0;
	DIR *dir = opendir(path);

	assert_non_null(dir);
	for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
		count += entry->d_name[0] != '.';
	}
	closedir(dir);
	return count;
}

uint64_t world_charged(struct world *w)
{
	struct quota_amounts used;

	quotas_used(w->quotas, w->account, &used);
	return used.sandboxes;
}

/* ---- answers ---- */

static void take_err(struct world_answer *answer, const struct err *err)
{
	answer->count++;
	answer->kind = err ? err->kind : ERR_NONE;
	snprintf(answer->msg, sizeof answer->msg, "%s", err ? err->msg : "");
}

void world_on_wait(void *arg, struct sandbox *sb, const struct err *err)
{
	assert_non_null(sb);
	take_err(arg, err);
}

void world_on_exec(void *arg, const struct sandbox_exec_result *result, const struct err *err)
{
	struct world_answer *answer = arg;

	take_err(answer, err);
	if (result) {
		answer->exit_code = result->guest.exit_code;
		answer->truncated = result->guest.truncated;
		answer->timed_out = result->guest.timed_out;
		answer->out_len = evbuffer_get_length(result->out.bytes);
		answer->err_len = evbuffer_get_length(result->err_out.bytes);
		evbuffer_copyout(result->out.bytes, answer->out, sizeof answer->out - 1);
		evbuffer_copyout(
			result->err_out.bytes, answer->err_out, sizeof answer->err_out - 1);
	}
}

void world_on_extend(void *arg, struct sandbox *sb, const struct err *err)
{
	take_err(arg, err);
	((struct world_answer *)arg)->expires_at_ms = sandbox_row(sb)->expires_at_ms;
}

void world_on_done(void *arg, const struct guest_status *status, const struct err *err)
{
	(void)status;
	take_err(arg, err);
}

struct sandbox_call *world_exec_start(
	struct world *w, const char *id, const char *command, struct world_answer *ret)
{
	const struct sandbox_exec_spec spec = {.command = command};
	struct err err = ERR_INIT;

	*ret = (struct world_answer){0};
	struct sandbox_call *call = sandbox_exec(
		world_find(w, id), &spec, world_on_exec, ret, &err);

	if (!call) {
		fail_msg("exec: %s", err.msg);
	}
	return call;
}

void world_exec(struct world *w, const char *id, const char *command, struct world_answer *ret)
{
	world_exec_start(w, id, command, ret);
	WORLD_UNTIL(w, ret->count > 0);
	assert_int_equal(ret->count, 1);
}
