#include "ops/op.h"

#include <stdlib.h>

#include "api/api_schema.h"
#include "auth/quota.h"
#include "base/xalloc.h"
#include "ops/view.h"

/* ---- probes ---- */

enum op_ret op_healthz(struct op_call *call)
{
	json_object *answer = json_object_new_object();

	view_set_text(answer, "status", "ok");
	return op_reply(call, call->row->status, answer);
}

static bool is_ready(const struct op_call *call, struct err *ret_why)
{
	if (call->ops->is_shut) {
		err_set(ret_why, ERR_UNAVAILABLE, "the service is stopping");
		return false;
	}
	if (!images_is_ready(call->ops->parts.images)) {
		err_set(ret_why, ERR_UNAVAILABLE, "the images are still being verified");
		return false;
	}
	return sandboxes_is_ready(call->ops->parts.sandboxes, ret_why);
}

enum op_ret op_readyz(struct op_call *call)
{
	struct err why = ERR_INIT;
	json_object *answer;

	if (!is_ready(call, &why)) {
		if (why.kind != ERR_UNAVAILABLE) {
			err_set(&why, ERR_UNAVAILABLE, "the service is not ready");
		}
		return op_fail(call, &why);
	}
	answer = json_object_new_object();
	view_set_text(answer, "status", "ready");
	return op_reply(call, call->row->status, answer);
}

enum op_ret op_openapi(struct op_call *call)
{
	return op_reply(call, call->row->status, api_openapi(PADDOCK_VERSION));
}

/* ---- what the service offers ---- */

static json_object *limits_of(const struct op_call *call)
{
	json_object *obj = json_object_new_object();
	const struct ops_config *config = &call->ops->config;
	const struct quota_amounts *limits = quotas_limits(call->ops->parts.quotas);

	view_set_int(obj, "sandboxes", (int64_t)limits->sandboxes);
	view_set_int(obj, "vcpus", (int64_t)limits->vcpus);
	view_set_int(obj, "memory_mb", (int64_t)limits->memory_mb);
	view_set_int(obj, "disk_gb", (int64_t)limits->disk_gb);
	view_set_int(obj, "timeout_default_minutes", config->timeout_default_minutes);
	view_set_int(obj, "max_lifetime_minutes", config->max_lifetime_minutes);
	view_set_int(obj, "exec_timeout_ms", (int64_t)config->exec_timeout_ms);
	view_set_int(obj, "exec_timeout_max_ms", (int64_t)config->exec_timeout_max_ms);
	view_set_int(obj, "exec_output_bytes", (int64_t)config->exec_output_bytes);
	view_set_int(obj, "exec_output_max_bytes", (int64_t)config->exec_output_max_bytes);
	view_set_int(obj, "body_bytes", (int64_t)config->body_bytes);
	if (config->upload_bytes > 0) {
		view_set_int(obj, "upload_bytes", (int64_t)config->upload_bytes);
	} else {
		view_set(obj, "upload_bytes", NULL);
	}
	return obj;
}

static json_object *sizes_of(const struct op_call *call)
{
	json_object *all = json_object_new_array();
	const struct ops_config *config = &call->ops->config;

	for (size_t i = 0; i < config->size_count; i++) {
		json_object *obj = json_object_new_object();

		view_set_text(obj, "name", config->sizes[i].name);
		view_set_int(obj, "vcpus", config->sizes[i].vcpus);
		view_set_int(obj, "memory_mb", config->sizes[i].memory_mb);
		view_set_int(obj, "disk_gb", config->sizes[i].disk_gb);
		json_object_array_add(all, obj);
	}
	return all;
}

/* Clients see what they can use: refused ones are for `images` on the admin socket. */
static void add_offered(void *arg, const struct image_status *image)
{
	if (image->state == IMAGE_GOOD && image->is_current) {
		json_object_array_add(arg, json_object_new_string(image->name));
	}
}

static void add_network(const struct op_call *call, json_object *answer)
{
	const char *why = NULL;
	bool has_egress = sandboxes_has_egress(call->ops->parts.sandboxes, &why);
	bool is_default = has_egress && call->ops->config.is_egress_configured;
	json_object *networks = json_object_new_array();

	json_object_array_add(networks, json_object_new_string("none"));
	if (has_egress) {
		json_object_array_add(networks, json_object_new_string("egress"));
	}
	view_set(answer, "networks", networks);
	view_set_text(answer, "default_network", is_default ? "egress" : "none");
	view_set_text(answer, "network_reason", has_egress ? NULL : why);
}

static const struct hv_info *hypervisor(const struct op_call *call)
{
	return call->ops->parts.hv->ops->info(call->ops->parts.hv);
}

enum op_ret op_service_info(struct op_call *call)
{
	json_object *answer = json_object_new_object();
	json_object *images = json_object_new_array();

	images_each(call->ops->parts.images, add_offered, images);
	view_set_text(answer, "version", PADDOCK_VERSION);
	view_set(answer, "limits", limits_of(call));
	view_set(answer, "sizes", sizes_of(call));
	view_set_text(answer, "default_size", call->ops->config.default_size);
	view_set(answer, "images", images);
	view_set_text(answer, "default_image", images_default(call->ops->parts.images));
	add_network(call, answer);
	view_set_text(answer, "acceleration", hypervisor(call)->acceleration);
	return op_reply(call, call->row->status, answer);
}

/* ---- administration ---- */

static void add_image(void *arg, const struct image_status *image)
{
	json_object_array_add(arg, view_image(image));
}

enum op_ret op_image_list(struct op_call *call)
{
	json_object *answer = json_object_new_object();
	json_object *data = json_object_new_array();

	images_each(call->ops->parts.images, add_image, data);
	view_set(answer, "data", data);
	return op_reply(call, call->row->status, answer);
}

enum op_ret op_status(struct op_call *call)
{
	struct err why = ERR_INIT;
	const char *no_egress = NULL;
	json_object *answer = json_object_new_object();
	json_object *egress = json_object_new_object();
	struct ops *ops = call->ops;
	bool ready = is_ready(call, &why);
	bool has_egress = sandboxes_has_egress(ops->parts.sandboxes, &no_egress);

	view_set_text(answer, "version", PADDOCK_VERSION);
	view_set_bool(answer, "ready", ready);
	view_set_text(answer, "reason", ready ? NULL : why.msg);
	view_set_int(answer, "sandboxes", (int64_t)sandboxes_count(ops->parts.sandboxes));
	view_set_int(answer, "calls", (int64_t)ops->call_count);
	view_set(answer, "hypervisor", view_hypervisor(hypervisor(call)));
	view_set_bool(egress, "available", has_egress);
	view_set_text(egress, "reason", has_egress ? NULL : no_egress);
	view_set(answer, "egress", egress);
	if (ops->config.status) {
		ops->config.status(ops->config.arg, answer);
	}
	return op_reply(call, call->row->status, answer);
}

/* The daemon's answer can't be called off: when the caller has left, it finds no call here. */
struct examination {
	struct op_call *call;
};

static void drop_examination(struct op_call *call)
{
	struct examination *examination = call->own;

	examination->call = NULL;
}

static void on_examined(void *arg, json_object *findings, const struct err *err)
{
	struct examination *examination = arg;
	struct op_call *call = examination->call;

	free(examination);
	if (!call) {
		json_object_put(findings);
		return;
	}
	if (err) {
		op_fail(call, err);
		return;
	}
	json_object *answer = json_object_new_object();

	view_set(answer, "findings", findings);
	op_reply(call, call->row->status, answer);
}

enum op_ret op_doctor(struct op_call *call)
{
	const struct ops_config *config = &call->ops->config;
	struct err err;

	if (!config->doctor) {
		err_set(&err, ERR_UNAVAILABLE, "doctor is not available here");
		return op_fail(call, &err);
	}
	struct examination *examination = xnew(struct examination);

	examination->call = call;
	config->doctor(config->arg, on_examined, examination);
	return op_wait(call, drop_examination, examination);
}
