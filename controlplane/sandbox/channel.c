#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "sandbox/env.h"
#include "sandbox/job.h"
#include "sandbox/sandbox_priv.h"

/*
 * Theory of operation
 *
 * A sandbox has at most one channel, and a channel at most one configure call, so that settings
 * reach the guest in the order in which they were decided: the plan's (BOOT), a new deadline
 * (EXTEND), or all of them again (SYNC). SYNC is due whenever the agent says hello, since a channel
 * that came back may mean an agent that was started anew and knows nothing, and whenever it isn't
 * known what the guest took.
 */

/* A guest can cause these as often as it likes. */
static void log_guest(struct sandbox *sb, const char *message, const struct err *err)
{
	unsigned suppressed;
	LOG_REQUEST(sb->request);

	if (log_limit_allows(&sb->log_limit, clock_monotonic_ms(), &suppressed)) {
		log_failure(LOG_LEVEL_WARN, message, err, "sb=%s suppressed=%u", sb->row->id,
			suppressed);
	}
}

static void on_configured(void *arg, const struct guest_status *status, const struct err *err)
{
	struct sandbox *sb = arg;
	enum config_owner owner = sb->config_owner;

	(void)status;
	sb->config_call = NULL;
	sb->config_owner = CONFIG_NOBODY;
	switch (owner) {
	case CONFIG_BOOT:
		boot_configured(sb, err);
		break;
	case CONFIG_EXTEND:
		extend_configured(sb, err);
		break;
	case CONFIG_SYNC:
		if (err) {
			/* Not at once: with the next hello, or the next reconciliation. */
			log_guest(sb, "guest not configured, will retry", err);
			sb->is_sync_due = true;
			extend_kick_later(sb);
			return;
		}
		break;
	case CONFIG_NOBODY:
	default:
		break;
	}
	channel_sync(sb);
	/* Not from here: the channel may be on its way down. */
	extend_kick_later(sb);
}

int channel_configure(struct sandbox *sb, enum config_owner owner,
	const struct guest_config *config, struct err *err)
{
	if (sb->config_call) {
		return err_set(err, ERR_CONFLICT, "the guest is being configured");
	}
	if (!channel_is_ready(sb)) {
		return err_set(err, ERR_UNAVAILABLE, "the guest's agent is not answering");
	}
	sb->config_call = sb->guest->ops->configure(sb->guest, config, on_configured, sb, err);
	if (!sb->config_call) {
		return -1;
	}
	sb->config_owner = owner;
	return 0;
}

uint64_t channel_deadline_ms(const struct sandbox *sb, int64_t expires_at_ms)
{
	int64_t left = expires_at_ms - clock_wall_ms();

	if (expires_at_ms == 0) {
		return 0;
	}
	/* Zero would mean "never". */
	return (uint64_t)MAX(left, 1) + sb->all->config.deadman_margin_ms;
}

int channel_configure_all(struct sandbox *sb, enum config_owner owner, struct err *err)
{
	const struct sandboxes_config *own = &sb->all->config;
	const struct store_sandbox *row = sb->row;
	_cleanup_free_ char *hostname = xstrdup(row->name ? row->name : row->id);
	char **env = env_merge(own->guest_env, row->env, row->env_len);
	struct guest_config config = {
		.wall_ms = clock_wall_ms(),
		.hostname = hostname,
		.deadline_ms = channel_deadline_ms(sb, row->expires_at_ms),
		.has_deadline = true,
		.reset_env = true,
		.env = env,
		.ca_pem = own->guest_ca_pem,
		.reseed = true,
	};

	/* An id has an underscore, which host names may not have. */
	for (char *at = strchr(hostname, '_'); at; at = strchr(at, '_')) {
		*at = '-';
	}
	int rc = channel_configure(sb, owner, &config, err);

	strv_free(env);
	return rc;
}

void channel_disown_config(struct sandbox *sb)
{
	sb->config_owner = CONFIG_NOBODY;
}

void channel_sync(struct sandbox *sb)
{
	struct err err;

	if (!sb->is_sync_due || sb->state != SANDBOX_RUNNING || sb->config_call ||
		!channel_is_ready(sb)) {
		return;
	}
	sb->is_sync_due = false;
	if (channel_configure_all(sb, CONFIG_SYNC, &err) != 0) {
		log_guest(sb, "guest not configured, will retry", &err);
		sb->is_sync_due = true;
	}
}

static void on_state(void *arg, enum guest_state state, const struct err *err)
{
	struct sandbox *sb = arg;

	/* Who is being stopped was asked to go. */
	if (state == GUEST_DOWN && err && sb->stop_phase == STOP_IDLE) {
		log_guest(sb, "guest channel lost", err);
	}
	if (state != GUEST_READY) {
		return;
	}
	if (sb->state == SANDBOX_PROVISIONING) {
		boot_guest_ready(sb);
		return;
	}
	sb->is_sync_due = true;
	channel_sync(sb);
	extend_kick(sb);
	jobs_sync_due(sb);
}

void channel_open(struct sandbox *sb)
{
	struct guest_driver *driver = sb->all->guests;
	const struct guest_hooks hooks = {.on_state = on_state, .arg = sb};

	if (!sb->guest) {
		sb->guest = driver->ops->open(
			driver, sb->paths.agent_socket, sb->paths.console_socket, &hooks);
	}
}

void channel_close(struct sandbox *sb)
{
	struct guest *guest = sb->guest;

	if (guest) {
		/* First, so that whoever is told about his call's end finds no channel. */
		sb->guest = NULL;
		guest->ops->close(guest);
	}
	if (!sb->all->is_closing) {
		jobs_lost(sb);
	}
}

bool channel_is_ready(const struct sandbox *sb)
{
	return sb->guest && sb->guest->ops->state(sb->guest) == GUEST_READY;
}
