#include "agent/guest_private.h"
#include "agent/request.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/xalloc.h"

/* Twice what the kernel's pool takes. */
#define ENTROPY_BYTES 64u

struct sys_call {
	struct guest_call call;
	guest_done_fn done;
	void *arg;
};

static void sys_done(struct guest_call *call, const struct err *err)
{
	struct sys_call *self = container_of(call, struct sys_call, call);
	struct guest_status status = rpc_status(call);

	self->done(self->arg, call->is_ended ? &status : NULL, err);
}

static const struct call_ops sys_ops = {.done = sys_done};

struct guest_call *agent_short_call(struct guest *guest, uint16_t type, struct request *body,
	bool is_reserved, guest_done_fn done, void *arg, struct err *err)
{
	struct agent *agent = agent_of(guest);
	_cleanup_free_ struct sys_call *self = xnew(struct sys_call);
	struct rpc_request request = {
		.type = type,
		.body = body,
		.ops = &sys_ops,
		.timeout_ms = agent->driver->timing.system_ms,
		.is_reserved = is_reserved,
	};

	self->done = done;
	self->arg = arg;
	if (rpc_start(&agent->rpc, &self->call, &request, err) < 0) {
		return NULL;
	}
	return &steal_ptr(&self)->call;
}

struct guest_call *agent_configure(struct guest *guest, const struct guest_config *config,
	guest_done_fn done, void *arg, struct err *err)
{
	_cleanup_request_ struct request body = REQUEST_INIT;

	if (config->reseed) {
		uint8_t entropy[ENTROPY_BYTES];

		rand_bytes(entropy, sizeof entropy);
		request_bytes(&body, MSG_ENTROPY, "entropy", entropy, sizeof entropy,
			PROTO_ENTROPY_MAX_BYTES);
	}
	if (config->wall_ms > 0) {
		request_u64(&body, MSG_REALTIME_NS, (uint64_t)config->wall_ms * 1000000u);
	}
	request_text(&body, MSG_HOSTNAME, "hostname", config->hostname, PROTO_HOSTNAME_MAX_BYTES);
	if (config->has_deadline) {
		request_u64(&body, MSG_DEADLINE_MS, config->deadline_ms);
	}
	if (config->reset_env) {
		request_u32(&body, MSG_ENV_RESET, 1);
	}
	request_env(&body, config->env);
	request_text(&body, MSG_CA, "the CA file", config->ca_pem, PROTO_CA_MAX_BYTES);
	return agent_short_call(guest, FRAME_CONFIGURE, &body, true, done, arg, err);
}

struct guest_call *agent_shutdown(
	struct guest *guest, guest_done_fn done, void *arg, struct err *err)
{
	_cleanup_request_ struct request body = REQUEST_INIT;

	return agent_short_call(guest, FRAME_SHUTDOWN, &body, true, done, arg, err);
}
