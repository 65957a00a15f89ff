#include "ops/op.h"

#include <stdlib.h>
#include <string.h>

#include "ops/view.h"
#include "store/store_key.h"

enum op_ret op_key_create(struct op_call *call)
{
	struct err err = ERR_INIT;
	const char *name = api_args_text(&call->args, "name");
	char account[ID_BYTES];
	char token[TOKEN_BYTES];
	struct store_key key;

	if (op_find_account(call, api_args_text(&call->args, "account"), account, &err) < 0 ||
		auth_key_create(
			call->ops->parts.auth, account, name ? name : "", token, &key, &err) < 0) {
		return op_fail(call, &err);
	}
	json_object *answer = view_key(&key);

	view_set_text(answer, "key", token);
	explicit_bzero(token, sizeof token);
	return op_reply(call, call->row->status, answer);
}

enum op_ret op_key_list(struct op_call *call)
{
	struct err err = ERR_INIT;
	const char *wanted = api_args_text(&call->args, "account");
	_cleanup_free_ struct store_key *keys = NULL;
	size_t count = 0;
	char account[ID_BYTES];

	if ((wanted && op_find_account(call, wanted, account, &err) < 0) ||
		store_key_list(
			call->ops->parts.store, wanted ? account : NULL, &keys, &count, &err) < 0) {
		return op_fail(call, &err);
	}
	json_object *answer = json_object_new_object();
	json_object *data = json_object_new_array();

	for (size_t i = 0; i < count; i++) {
		json_object_array_add(data, view_key(&keys[i]));
	}
	view_set(answer, "data", data);
	return op_reply(call, call->row->status, answer);
}

enum op_ret op_key_revoke(struct op_call *call)
{
	struct err err = ERR_INIT;
	const char *id = api_args_text(&call->args, "id");
	struct store_key key;

	if (auth_key_revoke(call->ops->parts.auth, id, &err) < 0 ||
		store_key_get(call->ops->parts.store, id, &key, &err) < 0) {
		if (err.kind == ERR_NOT_FOUND) {
			err_set(&err, ERR_NOT_FOUND, "there is no key \"%s\"", id);
		}
		return op_fail(call, &err);
	}
	return op_reply(call, call->row->status, view_key(&key));
}
