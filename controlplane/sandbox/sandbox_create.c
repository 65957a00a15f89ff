#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "sandbox/env.h"
#include "sandbox/paths.h"
#include "sandbox/sandbox_priv.h"

/*
 * Theory of operation
 *
 * sandbox_create() does all that can be refused, in one go: look for a replay, check, charge the
 * quota, write the row. From then on the plan works by itself:
 *
 *	disk       overlay and directories              undone by removing them
 *	domain     started                              undone by destroying it
 *	channel    opened, and the agent's hello heard  undone by closing it
 *	configure  clock, entropy, name, deadline, environment
 *	record     the row says running
 *
 * A call that timed out may still make a file or a domain that belongs to the sandbox's uid, long
 * after everything was taken back. So that uid isn't given away with the row's end, but by
 *reconcile, some time later.
 *
 * The same plan, undone, is every sandbox's removal (sandbox_destroy.c). One timer bounds channel
 * and configure together; the hypervisor's calls have deadlines of their own.
 */

#define GIB (UINT64_C(1) << 30)

/* ---- the steps ---- */

static void note_timeout(struct sandbox *sb, const struct err *err)
{
	sb->holds_uid |= err && err->kind == ERR_TIMEOUT;
}

static void on_disk_created(void *arg, const struct err *err)
{
	struct sandbox *sb = arg;

	note_timeout(sb, err);
	plan_answer(&sb->plan, err);
}

static void fill_spec(const struct sandbox *sb, struct hv_spec *spec)
{
	const struct store_sandbox *row = sb->row;
	bool has_network = sandbox_has_network(sb);

	*spec = (struct hv_spec){
		.id = row->id,
		.name = row->name,
		.account = row->account,
		.expires_at_ms = row->expires_at_ms,
		.uid = row->uid,
		.gid = sb->all->config.gid,
		.vcpus = row->vcpus,
		.memory_mb = row->memory_mb,
		.disk_bytes = row->disk_gb * GIB,
		.network = has_network ? HV_NETWORK_USER : HV_NETWORK_NONE,
		.is_link_down = has_network && !sb->all->has_egress,
		.is_disk_durable = !row->is_temporary,
		.kernel = sb->image->kernel,
		.initrd = sb->image->initrd,
		.cmdline = sb->image->cmdline,
		.base_image = sb->image->base,
		.paths = &sb->paths,
	};
}

static void run_disk(void *arg)
{
	struct sandbox *sb = arg;
	struct hv *hv = sb->all->hv;
	struct hv_spec spec;
	struct err err;

	if (paths_make_home(sb->all->config.state_dir, sb->row->id, &err) != 0) {
		plan_answer(&sb->plan, &err);
		return;
	}
	fill_spec(sb, &spec);
	hv->ops->disk_create(hv, &spec, on_disk_created, sb);
}

static void on_started(void *arg, const struct hv_facts *facts, const struct err *err)
{
	struct sandbox *sb = arg;

	if (!err) {
		sb->row->pid = facts->pid;
		sb->row->pid_start = facts->pid_start;
		sb->has_domain = true;
	}
	note_timeout(sb, err);
	plan_answer(&sb->plan, err);
	egress_update(sb);
}

static void run_domain(void *arg)
{
	struct sandbox *sb = arg;
	struct hv *hv = sb->all->hv;
	struct hv_spec spec;

	fill_spec(sb, &spec);
	sb->link_is = spec.is_link_down ? LINK_DOWN : LINK_UP;
	hv->ops->start(hv, &spec, on_started, sb);
}

static void run_channel(void *arg)
{
	struct sandbox *sb = arg;
	uint64_t ms = sb->all->config.boot_timeout_ms;
	struct timeval tv = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (long)(ms % 1000 * 1000)};

	evtimer_add(sb->boot_timer, &tv);
	sb->boot_wait = BOOT_WAITS_TO_GO_ON;
	channel_open(sb);
}

static void run_configure(void *arg)
{
	struct sandbox *sb = arg;
	struct err err;

	if (!channel_is_ready(sb)) {
		sb->boot_wait = BOOT_WAITS_TO_CONFIGURE;
	} else if (channel_configure_all(sb, CONFIG_BOOT, &err) != 0) {
		plan_answer(&sb->plan, &err);
	}
}

void sandbox_create_guest_ready(struct sandbox *sb)
{
	enum boot_wait wait = sb->boot_wait;

	sb->boot_wait = BOOT_WAITS_FOR_NOTHING;
	if (wait == BOOT_WAITS_TO_GO_ON) {
		plan_answer(&sb->plan, NULL);
	} else if (wait == BOOT_WAITS_TO_CONFIGURE) {
		run_configure(sb);
	}
}

void sandbox_create_configured(struct sandbox *sb, const struct err *err)
{
	if (err && err->kind == ERR_UNAVAILABLE) {
		/* The agent was lost in between: it may come back within the time to boot. */
		sb->boot_wait = BOOT_WAITS_TO_CONFIGURE;
		return;
	}
	plan_answer(&sb->plan, err);
}

/* Ends channel or configure, whichever is under way. */
static void boot_failed(struct sandbox *sb, const struct err *err)
{
	if (sb->boot_wait == BOOT_WAITS_FOR_NOTHING && sb->config_owner != CONFIG_BOOT) {
		return;
	}
	sb->boot_wait = BOOT_WAITS_FOR_NOTHING;
	channel_disown_config(sb);
	plan_answer(&sb->plan, err);
}

static void stop_boot(void *arg)
{
	struct err err;

	err_set(&err, ERR_CANCELLED, "no longer wanted");
	boot_failed(arg, &err);
}

static void on_boot_timer(evutil_socket_t fd, short what, void *arg)
{
	struct sandbox *sb = arg;
	struct err err;

	(void)fd;
	(void)what;
	err_set(&err, ERR_TIMEOUT,
		"the guest's agent didn't report within %" PRIu64 " seconds of the start",
		(sb->all->config.boot_timeout_ms + 999) / 1000);
	boot_failed(sb, &err);
}

void sandbox_create_domain_ended(struct sandbox *sb)
{
	struct err err;

	err_set(&err, ERR_UNAVAILABLE, "the virtual machine stopped while it was starting");
	boot_failed(sb, &err);
}

static void run_record(void *arg)
{
	struct sandbox *sb = arg;
	struct err err;

	evtimer_del(sb->boot_timer);
	if (sandbox_set_state(sb, SANDBOX_RUNNING, NULL, &err) != 0) {
		plan_answer(&sb->plan, &err);
		return;
	}
	image_unref(sb->image);
	sb->image = NULL;
	log_info("sandbox ready", "sb=%s ms=%" PRId64, sb->row->id,
		sb->row->ready_at_ms - sb->row->created_at_ms);
	plan_answer(&sb->plan, NULL);
}

static const struct plan_step plan_steps[] = {
	{"disk", run_disk, NULL, sandbox_undo_disk},
	{"domain", run_domain, NULL, sandbox_undo_domain},
	{"channel", run_channel, stop_boot, sandbox_undo_channel},
	{"configure", run_configure, stop_boot, NULL},
	{"record", run_record, NULL, NULL},
};

void sandbox_plan_init(struct sandbox *sb)
{
	plan_init(&sb->plan, sb->all->loop, plan_steps, ARRAY_SIZE(plan_steps), &sandbox_plan_hooks,
		sb);
	sb->boot_timer = evtimer_new(loop_base(sb->all->loop), on_boot_timer, sb);
	sb->retry_timer = evtimer_new(loop_base(sb->all->loop), sandbox_on_retry_timer, sb);
	ASSERT(sb->boot_timer && sb->retry_timer);
}

void sandbox_plan_fini(struct sandbox *sb)
{
	plan_fini(&sb->plan);
	event_free(sb->boot_timer);
	event_free(sb->retry_timer);
}

/* ---- what can be refused ---- */

static int check_spec(
	const struct sandboxes *all, const struct sandbox_create_spec *spec, struct err *err)
{
	unsigned most = all->config.max_lifetime_minutes;

	if (spec->name && !name_is_valid(spec->name)) {
		return err_set(err, ERR_INVALID,
			"name must be 1 to %d of the characters a-z, 0-9 and -, and neither begin "
			"nor end with -",
			NAME_MAX_BYTES);
	}
	if (spec->vcpus == 0 || spec->memory_mb == 0 || spec->disk_gb == 0) {
		return err_set(err, ERR_INVALID, "vcpus, memory_mb and disk_gb must be above 0");
	}
	if (spec->timeout_minutes > most) {
		return err_set(err, ERR_INVALID,
			"timeout_minutes is %u; the limit (limits.max_lifetime) is %u",
			spec->timeout_minutes, most);
	}
	if (spec->timeout_minutes == 0 && spec->is_temporary) {
		return err_set(err, ERR_INVALID, "a temporary sandbox needs timeout_minutes");
	}
	return 0;
}

static int choose_network(
	const struct sandboxes *all, enum sandbox_network wanted, const char **ret, struct err *err)
{
	bool wants_egress = wanted == SANDBOX_NETWORK_EGRESS;

	if (wanted == SANDBOX_NETWORK_DEFAULT) {
		wants_egress = !all->config.is_network_none_default && all->has_egress;
	}
	if (wants_egress && !all->has_egress) {
		return err_set(err, ERR_UNAVAILABLE, "network egress is not available: %s",
			all->egress_why);
	}
	*ret = wants_egress ? SANDBOX_NETWORK_NAME_EGRESS : SANDBOX_NETWORK_NAME_NONE;
	return 0;
}

/* 1: *ret is what the key made before; 0: the key is new. */
static int find_replay(struct sandboxes *all, const struct sandbox_create_spec *spec,
	struct sandbox **ret, struct err *err)
{
	if (!spec->idempotency_key) {
		return 0;
	}
	_cleanup_store_sandbox_ struct store_sandbox *row = store_sandbox_get_by_idempotency(
		all->store, spec->account, spec->idempotency_key, err);

	if (!row) {
		return err->kind == ERR_NOT_FOUND ? 0 : -1;
	}
	if (!row->request_hash || strcmp(row->request_hash, spec->request_hash) != 0) {
		return err_set(err, ERR_CONFLICT,
			"this Idempotency-Key was used for another request, which made %s",
			row->id);
	}
	struct sandbox *sb = sandbox_find_id(all, row->id);

	if (!sb) {
		return err_set(err, ERR_ENDED, "this Idempotency-Key made %s, which has ended: %s",
			row->id, row->reason ? row->reason : row->state);
	}
	*ret = sb;
	return 1;
}

static int check_name(
	struct sandboxes *all, const struct sandbox_create_spec *spec, struct err *err)
{
	struct sandbox *sb = spec->name ? sandbox_find(all, spec->account, spec->name) : NULL;

	if (!sb) {
		return 0;
	}
	return err_set(err, ERR_CONFLICT, "a sandbox named \"%s\" exists already: %s", spec->name,
		sb->row->id);
}

static struct image *choose_image(
	struct sandboxes *all, const struct sandbox_create_spec *spec, struct err *err)
{
	_cleanup_image_ struct image *image = image_get(all->images, spec->image, NULL, err);

	if (!image) {
		return NULL;
	}
	if (spec->disk_gb * GIB < image->virtual_size_bytes) {
		err_set(err, ERR_INVALID, "disk_gb must be at least %" PRIu64 " for image \"%s\"",
			(image->virtual_size_bytes + GIB - 1) / GIB, image->name);
		return NULL;
	}
	return steal_ptr(&image);
}

static struct store_sandbox *make_row(
	const struct sandbox_create_spec *spec, const struct image *image, const char *network)
{
	struct store_sandbox *row = xnew(struct store_sandbox);

	id_make(row->id, ID_SANDBOX);
	snprintf(row->account, sizeof row->account, "%s", spec->account);
	row->name = xstrdup(spec->name);
	row->state = xstrdup(sandbox_state_name(SANDBOX_PROVISIONING));
	row->size = xstrdup(spec->size);
	row->vcpus = spec->vcpus;
	row->memory_mb = spec->memory_mb;
	row->disk_gb = spec->disk_gb;
	row->image = xstrdup(image->name);
	row->image_version = xstrdup(image->version);
	row->network = xstrdup(network);
	row->is_temporary = spec->is_temporary;
	row->env = env_pack(spec->env, &row->env_len);
	row->metadata = xstrdup(spec->metadata);
	row->created_at_ms = clock_wall_ms();
	if (spec->timeout_minutes > 0) {
		row->expires_at_ms = row->created_at_ms +
				     (int64_t)spec->timeout_minutes * MS_PER_MINUTE;
	}
	row->idempotency_key = xstrdup(spec->idempotency_key);
	row->request_hash = spec->idempotency_key ? xstrdup(spec->request_hash) : NULL;
	return row;
}

/* Charges and writes the row: from here on there is something to take back. */
static int admit(struct sandboxes *all, const struct sandbox_create_spec *spec, struct image *image,
	const char *network, struct sandbox **ret, struct err *err)
{
	const struct quota_amounts amounts = {.sandboxes = 1,
		.vcpus = spec->vcpus,
		.memory_mb = spec->memory_mb,
		.disk_gb = spec->disk_gb};
	struct quota_charge charge = {0};

	if (quota_charge(all->quotas, spec->account, &amounts, &charge, err) != 0) {
		return -1;
	}
	_cleanup_store_sandbox_ struct store_sandbox *row = make_row(spec, image, network);

	if (store_sandbox_find_uid(all->store, all->config.uid_first, all->config.uid_count,
		    &row->uid, err) != 0 ||
		store_sandbox_insert(all->store, row, err) != 0) {
		quota_refund(&charge);
		return -1;
	}
	struct sandbox *sb = sandbox_new(all, steal_ptr(&row), SANDBOX_PROVISIONING);

	sb->charge = charge;
	sb->image = image_ref(image);
	log_info("sandbox state", "sb=%s from=none to=provisioning account=%s image=%s uid=%u",
		sb->row->id, sb->row->account, sb->row->image, (unsigned)sb->row->uid);
	*ret = sb;
	return 0;
}

int sandbox_create(struct sandboxes *all, const struct sandbox_create_spec *spec,
	struct sandbox **ret, bool *ret_is_replay, struct err *err)
{
	const char *network = NULL;
	struct sandbox *sb = NULL;

	loop_assert();
	if (!sandboxes_is_ready(all, err)) {
		return -1;
	}
	int found = find_replay(all, spec, &sb, err);

	if (found < 0) {
		return -1;
	}
	if (found > 0) {
		*ret = sb;
		*ret_is_replay = true;
		return 0;
	}
	if (check_spec(all, spec, err) != 0 || check_name(all, spec, err) != 0 ||
		choose_network(all, spec->network, &network, err) != 0) {
		return -1;
	}
	_cleanup_image_ struct image *image = choose_image(all, spec, err);

	if (!image || admit(all, spec, image, network, &sb, err) != 0) {
		return -1;
	}
	plan_run(&sb->plan);
	reaper_kick(all);
	*ret = sb;
	*ret_is_replay = false;
	return 0;
}
