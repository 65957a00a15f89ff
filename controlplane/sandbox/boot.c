#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "sandbox/sandbox_priv.h"

/*
 * Theory of operation
 *
 * The steps that creation, restart and reset have in common, from a disk that is there to a row
 * that says running. One timer bounds channel and configure together; the hypervisor's calls have
 * deadlines of their own.
 *
 * A call that timed out may still make a file or a domain that belongs to the sandbox's uid, long
 * after everything was taken back. So that uid isn't given away with the row's end, but by
 * reconcile, some time later.
 */

#define GIB (UINT64_C(1) << 30)

static void note_timeout(struct sandbox *sb, const struct err *err)
{
	sb->holds_uid |= err && err->kind == ERR_TIMEOUT;
}

void boot_made(void *arg, const struct err *err)
{
	struct sandbox *sb = arg;

	note_timeout(sb, err);
	plan_answer(&sb->plan, err);
}

void boot_fill_spec(const struct sandbox *sb, struct hv_spec *spec)
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

void boot_run_domain(void *arg)
{
	struct sandbox *sb = arg;
	struct hv *hv = sb->all->hv;
	struct hv_spec spec;

	boot_fill_spec(sb, &spec);
	sb->link_is = spec.is_link_down ? LINK_DOWN : LINK_UP;
	hv->ops->start(hv, &spec, on_started, sb);
}

void boot_run_channel(void *arg)
{
	struct sandbox *sb = arg;

	loop_timer_set(sb->boot_timer, sb->all->config.boot_timeout_ms);
	sb->boot_wait = BOOT_WAITS_TO_GO_ON;
	channel_open(sb);
}

void boot_run_configure(void *arg)
{
	struct sandbox *sb = arg;
	struct err err;

	if (!channel_is_ready(sb)) {
		sb->boot_wait = BOOT_WAITS_TO_CONFIGURE;
	} else if (channel_configure_all(sb, CONFIG_BOOT, &err) != 0) {
		plan_answer(&sb->plan, &err);
	}
}

void boot_guest_ready(struct sandbox *sb)
{
	enum boot_wait wait = sb->boot_wait;

	sb->boot_wait = BOOT_WAITS_FOR_NOTHING;
	if (wait == BOOT_WAITS_TO_GO_ON) {
		plan_answer(&sb->plan, NULL);
	} else if (wait == BOOT_WAITS_TO_CONFIGURE) {
		boot_run_configure(sb);
	}
}

void boot_configured(struct sandbox *sb, const struct err *err)
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

void boot_stop(void *arg)
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
	if (pause_check(sb, &err) != 0) {
		err_set(&err, ERR_UNAVAILABLE,
			"the virtual machine was paused while it was starting, since its disk "
			"can't be written on the host");
		boot_failed(sb, &err);
		return;
	}
	err_set(&err, ERR_TIMEOUT,
		"the guest's agent didn't report within %" PRIu64 " seconds of the start",
		(sb->all->config.boot_timeout_ms + 999) / 1000);
	boot_failed(sb, &err);
}

void boot_domain_ended(struct sandbox *sb)
{
	struct err err;

	err_set(&err, ERR_UNAVAILABLE, "the virtual machine stopped while it was starting");
	boot_failed(sb, &err);
}

void boot_run_record(void *arg)
{
	struct sandbox *sb = arg;
	struct err err;
	LOG_REQUEST(sb->request);

	evtimer_del(sb->boot_timer);
	if (sandbox_set_state(sb, SANDBOX_RUNNING, NULL, &err) != 0) {
		plan_answer(&sb->plan, &err);
		return;
	}
	image_unref(sb->image);
	sb->image = NULL;
	log_info("sandbox ready", "sb=%s plan=%s ms=%" PRIu64, sb->row->id, sb->plan.name,
		clock_monotonic_ms() - sb->begun_ms);
	plan_answer(&sb->plan, NULL);
}

void boot_init(struct sandbox *sb)
{
	sb->boot_timer = loop_timer_new(sb->all->loop, on_boot_timer, sb);
}

void boot_fini(struct sandbox *sb)
{
	event_free(sb->boot_timer);
}
