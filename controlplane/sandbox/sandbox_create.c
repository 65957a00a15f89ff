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
 * All but the disk is in boot.c. The same plan, undone, is every sandbox's removal
 * (sandbox_destroy.c).
 */

#define GIB (UINT64_C(1) << 30)

/* ---- the steps ---- */

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
	boot_fill_spec(sb, &spec);
	hv->ops->disk_create(hv, &spec, boot_made, sb);
}

static const struct plan_step create_steps[] = {
	{"disk", run_disk, NULL, sandbox_undo_disk},
	{"domain", boot_run_domain, NULL, sandbox_undo_domain},
	{"channel", boot_run_channel, boot_stop, sandbox_undo_channel},
	{"configure", boot_run_configure, boot_stop, NULL},
	{"record", boot_run_record, NULL, NULL},
};

void sandbox_use_create_plan(struct sandbox *sb)
{
	plan_use(&sb->plan, "create", create_steps, ARRAY_SIZE(create_steps));
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

/* It will never run, although its removal may still be under way. */
static bool has_failed(const struct sandbox *sb, const struct store_sandbox *row)
{
	if (sb) {
		return sb->failure.kind != ERR_NONE;
	}
	return strcmp(row->state, sandbox_state_name(SANDBOX_FAILED)) == 0;
}

/*
 * 1: *ret is what the key made before; 0: the key is free, once it is taken from @failed_id where
 * that isn't empty: a creation that failed made nothing that could be handed out again.
 */
static int find_replay(struct sandboxes *all, const struct sandbox_create_spec *spec,
	struct sandbox **ret, char failed_id[ID_BYTES], struct err *err)
{
	failed_id[0] = '\0';
	if (!spec->idempotency_key) {
		return 0;
	}
	_cleanup_store_sandbox_ struct store_sandbox *row = store_sandbox_get_by_idempotency(
		all->store, spec->account, spec->idempotency_key, err);

	if (!row) {
		return err->kind == ERR_NOT_FOUND ? 0 : -1;
	}
	struct sandbox *sb = sandbox_find_id(all, row->id);

	if (has_failed(sb, row)) {
		memcpy(failed_id, row->id, ID_BYTES);
		return 0;
	}
	if (!row->request_hash || strcmp(row->request_hash, spec->request_hash) != 0) {
		return err_set(err, ERR_CONFLICT,
			"this Idempotency-Key was used for another request, which made %s",
			row->id);
	}
	if (!sb || sandbox_is_going(sb)) {
		const char *why = sb && sb->end_reason ? sb->end_reason : row->reason;

		return err_set(err, ERR_ENDED, "this Idempotency-Key made %s, which has ended: %s",
			row->id, why ? why : row->state);
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
	if (sandbox_is_going(sb) || sb->failure.kind != ERR_NONE) {
		return err_set(err, ERR_UNAVAILABLE,
			"the sandbox named \"%s\" (%s) is being removed; try again", spec->name,
			sb->row->id);
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

/* The row, and with it the key of the creation @failed_id, empty: none. */
static int insert_row(struct sandboxes *all, const struct store_sandbox *row, const char *failed_id,
	struct err *err)
{
	_cleanup_store_tx_ struct store_tx tx = STORE_TX_INIT;

	if (!failed_id[0]) {
		return store_sandbox_insert(all->store, row, err);
	}
	if (store_begin(all->store, &tx, err) != 0 ||
		store_sandbox_release_key(all->store, failed_id, err) != 0 ||
		store_sandbox_insert(all->store, row, err) != 0) {
		return -1;
	}
	return store_commit(&tx, err);
}

static int write_row(struct sandboxes *all, const struct store_sandbox *row, const char *failed_id,
	struct err *err)
{
	if (fault_at("row.insert") == FAULT_FAIL) {
		return fault_fail(err, ERR_UNAVAILABLE);
	}
	if (insert_row(all, row, failed_id, err) != 0) {
		return -1;
	}
	(void)fault_at("row.insert.done");
	return 0;
}

/* Charges and writes the row: from here on there is something to take back. */
static int admit(struct sandboxes *all, const struct sandbox_create_spec *spec, struct image *image,
	const char *network, const char *failed_id, struct sandbox **ret, struct err *err)
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
		write_row(all, row, failed_id, err) != 0) {
		quota_refund(&charge);
		return -1;
	}
	struct sandbox *sb = sandbox_new(all, steal_ptr(&row), SANDBOX_PROVISIONING);

	snprintf(sb->request, sizeof sb->request, "%s", log_request());
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
	char failed_id[ID_BYTES];
	int found = find_replay(all, spec, &sb, failed_id, err);

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

	if (!image || admit(all, spec, image, network, failed_id, &sb, err) != 0) {
		return -1;
	}
	sb->begun_ms = clock_monotonic_ms();
	plan_run(&sb->plan);
	reaper_kick(all);
	*ret = sb;
	*ret_is_replay = false;
	return 0;
}
