#include "sandbox/sandbox_call.h"

/* A channel has only so many streams, and a background command has one for as long as it runs. */
static unsigned calls_max(const struct sandbox *sb)
{
	return MIN(SANDBOX_CALLS_MAX, SANDBOX_STREAMS_MAX - sb->job_count);
}

int call_check_urgent(struct sandbox *sb, struct err *err)
{
	loop_assert();
	if (sandbox_check_running(sb, err) != 0 || pause_check(sb, err) != 0) {
		return -1;
	}
	if (!channel_is_ready(sb)) {
		return err_set(err, ERR_UNAVAILABLE, "the guest's agent is not answering");
	}
	return 0;
}

int call_check(struct sandbox *sb, struct err *err)
{
	loop_assert();
	if (sandbox_check_running(sb, err) != 0) {
		return -1;
	}
	if (sb->call_count >= calls_max(sb)) {
		return err_set(err, ERR_RATE,
			"%u operations are under way in this sandbox, which is the limit: wait for "
			"one to end, or kill a command",
			calls_max(sb));
	}
	return call_check_urgent(sb, err);
}

void call_begin(struct sandbox *sb, struct sandbox_call *call, struct guest_call *guest_call)
{
	call->sb = sb;
	call->guest_call = guest_call;
	TAILQ_INSERT_TAIL(&sb->calls, call, link);
	sb->call_count++;
}

const struct err *call_error(const struct sandbox *sb, const struct err *err, struct err *storage)
{
	if (!err) {
		return NULL;
	}
	/* The channel is closed, or breaks, when the sandbox ends: that is the cause to name. */
	if ((err->kind == ERR_CANCELLED || err->kind == ERR_UNAVAILABLE) &&
		sandbox_check_running(sb, storage) != 0) {
		return storage;
	}
	/* A guest that stands is silent. */
	if ((err->kind == ERR_UNAVAILABLE || err->kind == ERR_TIMEOUT) &&
		pause_check(sb, storage) != 0) {
		return storage;
	}
	return err;
}

const struct err *call_end(struct sandbox_call *call, const struct err *err, struct err *storage)
{
	struct sandbox *sb = call->sb;

	TAILQ_REMOVE(&sb->calls, call, link);
	sb->call_count--;
	return call->is_cancelled ? err : call_error(sb, err, storage);
}

void sandbox_call_cancel(struct sandbox_call *call)
{
	loop_assert();
	/* Without a channel its end is on the way already. */
	if (!call->is_cancelled && call->sb->guest) {
		call->is_cancelled = true;
		call->sb->guest->ops->cancel(call->guest_call);
	}
}

void sandbox_call_leave(struct sandbox_call *call)
{
	loop_assert();
	call->is_abandoned = true;
}

void sandbox_call_abandon(struct sandbox_call *call)
{
	call->is_abandoned = true;
	sandbox_call_cancel(call);
}
