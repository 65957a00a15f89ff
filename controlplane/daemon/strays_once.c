#include "daemon/strays_once.h"

#include <errno.h>
#include <unistd.h>

#include "agent/guest_agent.h"
#include "auth/quota.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/state_dir.h"
#include "hv/hv_libvirt.h"
#include "loop/loop.h"
#include "ops/view.h"
#include "sandbox/sandbox.h"
#include "sandbox/strays.h"
#include "store/store.h"

/* The embedded driver may have to probe QEMU first. */
#define READY_MS 120000

struct once {
	const struct config *config;
	struct state_dir *state_dir;
	struct store *store;
	struct loop *loop;
	struct quotas *quotas;
	struct hv *hv;
	struct guest_driver *guests;
	struct sandboxes *sandboxes;
	json_object *answer;
	struct err err;
};

/* Looking must not make an instance where there is none. */
static int open_state(struct once *once, struct err *err)
{
	const struct config *config = once->config;
	_cleanup_free_ char *path = xasprintf("%s/paddock.db", config->state_dir);

	if (access(path, F_OK) != 0) {
		return errno == ENOENT || errno == ENOTDIR
			       ? err_set(err, ERR_NOT_FOUND,
					 "state.dir: %s holds no instance of Paddock",
					 config->state_dir)
			       : err_sys(err, errno, "look at %s", path);
	}
	once->state_dir = state_dir_open(config->state_dir, config->run_dir, err);
	if (!once->state_dir) {
		return -1;
	}
	once->store = store_open(path, err);
	return once->store ? state_dir_claim_run(config->state_dir, config->run_dir,
				     store_instance(once->store), err)
			   : -1;
}

static int make_parts(struct once *once, struct err *err)
{
	const struct config *config = once->config;
	const struct quota_host host = {.overcommit_pct = 100};
	const struct sandboxes_config sandboxes = {
		.state_dir = config->state_dir,
		.run_dir = config->run_dir,
		.boot_timeout_ms = (uint64_t)config->boot_timeout_seconds * MS_PER_SECOND,
		.max_lifetime_minutes = (unsigned)config->max_lifetime_minutes,
		.stray_grace_ms = (uint64_t)config->stray_grace_seconds * MS_PER_SECOND,
		.is_inspection = true,
	};

	once->loop = loop_new(err);
	once->hv = once->loop ? daemon_make_hypervisor(
					once->loop, config, store_instance(once->store), err)
			      : NULL;
	if (!once->hv) {
		return -1;
	}
	once->quotas = quotas_new(&QUOTA_DEFAULT_LIMITS, &host);
	once->guests = guest_agent_driver_new(once->loop, NULL);
	once->sandboxes = sandboxes_new(once->loop, &sandboxes, once->store, once->quotas, NULL,
		once->hv, once->guests, err);
	return once->sandboxes ? 0 : -1;
}

static void on_found(void *arg, const struct strays_report *report, const struct err *err)
{
	struct once *once = arg;

	if (err) {
		once->err = *err;
	} else {
		once->answer = view_strays(report);
	}
	loop_stop(once->loop);
}

static int run(struct once *once, const struct strays_options *options, struct err *err)
{
	const struct strays_request request = {.is_reap = options->is_reap,
		.wants_others = options->wants_others,
		.ready_ms = READY_MS};

	if (open_state(once, err) != 0 || make_parts(once, err) != 0 ||
		sandboxes_start(once->sandboxes, err) != 0 ||
		!strays_find(once->sandboxes, &request, on_found, once, err)) {
		return -1;
	}
	loop_run(once->loop);
	if (!once->answer) {
		*err = once->err;
		return -1;
	}
	return 0;
}

int strays_once(const struct config *config, const struct strays_options *options,
	json_object **ret, struct err *err)
{
	struct once once = {.config = config};
	int rc = run(&once, options, err);

	if (once.sandboxes) {
		sandboxes_free(once.sandboxes);
	}
	if (once.guests) {
		guest_agent_driver_free(once.guests);
	}
	hv_libvirt_free(once.hv);
	quotas_free(once.quotas);
	loop_free(once.loop);
	store_close(once.store);
	state_dir_close(once.state_dir);
	*ret = once.answer;
	return rc;
}
