#include "ops/op.h"

#include "base/xalloc.h"
#include "ops/view.h"
#include "sandbox/strays.h"

static void drop_search(struct op_call *call)
{
	strays_abandon(call->own);
}

static void on_found(void *arg, const struct strays_report *report, const struct err *err)
{
	struct op_call *call = arg;

	if (err) {
		op_fail(call, err);
	} else {
		op_reply(call, call->row->status, view_strays(report));
	}
}

enum op_ret op_strays(struct op_call *call)
{
	const struct strays_request request = {
		.is_reap = api_args_bool(&call->args, "reap"),
		.wants_others = api_args_bool(&call->args, "all_instances"),
	};
	struct err err;
	struct strays_call *search = strays_find(
		call->ops->parts.sandboxes, &request, on_found, call, &err);

	return search ? op_wait(call, drop_search, search) : op_fail(call, &err);
}
