#include "ops/op.h"

#include <stdlib.h>

#include "auth/quota.h"
#include "base/clock.h"
#include "ops/view.h"
#include "store/store_account.h"

enum op_ret op_account_create(struct op_call *call)
{
	struct err err = ERR_INIT;
	struct store_account account;

	if (store_account_insert(call->ops->parts.store, api_args_text(&call->args, "name"),
		    clock_wall_ms(), &account, &err) < 0) {
		return op_fail(call, &err);
	}
	return op_reply(call, call->row->status, view_account(&account));
}

static json_object *used_by(const struct op_call *call, const struct store_account *account)
{
	json_object *obj = json_object_new_object();
	struct quota_amounts used;

	quotas_used(call->ops->parts.quotas, account->id, &used);
	view_set_int(obj, "sandboxes", (int64_t)used.sandboxes);
	view_set_int(obj, "vcpus", (int64_t)used.vcpus);
	view_set_int(obj, "memory_mb", (int64_t)used.memory_mb);
	view_set_int(obj, "disk_gb", (int64_t)used.disk_gb);
	return obj;
}

enum op_ret op_account_list(struct op_call *call)
{
	struct err err = ERR_INIT;
	_cleanup_free_ struct store_account *accounts = NULL;
	size_t count = 0;

	if (store_account_list(call->ops->parts.store, &accounts, &count, &err) < 0) {
		return op_fail(call, &err);
	}
	json_object *answer = json_object_new_object();
	json_object *data = json_object_new_array();

	for (size_t i = 0; i < count; i++) {
		json_object *account = view_account(&accounts[i]);

		view_set(account, "used", used_by(call, &accounts[i]));
		json_object_array_add(data, account);
	}
	view_set(answer, "data", data);
	return op_reply(call, call->row->status, answer);
}
