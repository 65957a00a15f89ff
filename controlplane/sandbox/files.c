#include "base/xalloc.h"
#include "sandbox/sandbox_call.h"

/*
 * Theory of operation. Bodies travel through pipes between the caller and the channel; nothing of
 * them is held here. What is here is the wrapping that lets a caller go away.
 */

struct file_call {
	struct sandbox_call call;
	guest_done_fn done; /* PUT */
	void *arg;
	struct guest_get_hooks get;
	struct guest_list_hooks list;
};

static struct sandbox_call *begin(
	struct sandbox *sb, struct file_call *file, struct guest_call *guest_call)
{
	if (!guest_call) {
		free(file);
		return NULL;
	}
	call_begin(sb, &file->call, guest_call);
	return &file->call;
}

static void on_put_done(void *arg, const struct guest_status *status, const struct err *err)
{
	struct file_call *file = arg;
	struct err better;

	err = call_end(&file->call, err, &better);
	if (!file->call.is_abandoned) {
		file->done(file->arg, status, err);
	}
	free(file);
}

static void on_get_info(void *arg, const struct guest_file_info *info)
{
	struct file_call *file = arg;

	if (!file->call.is_abandoned) {
		file->get.on_info(file->get.arg, info);
	}
}

static void on_get_done(void *arg, const struct guest_status *status, const struct err *err)
{
	struct file_call *file = arg;
	struct err better;

	err = call_end(&file->call, err, &better);
	if (!file->call.is_abandoned) {
		file->get.on_done(file->get.arg, status, err);
	}
	free(file);
}

static void on_list_entry(void *arg, const struct guest_entry *entry)
{
	struct file_call *file = arg;

	if (!file->call.is_abandoned) {
		file->list.on_entry(file->list.arg, entry);
	}
}

static void on_list_done(
	void *arg, bool is_cut, const struct guest_status *status, const struct err *err)
{
	struct file_call *file = arg;
	struct err better;

	err = call_end(&file->call, err, &better);
	if (!file->call.is_abandoned) {
		file->list.on_done(file->list.arg, is_cut, status, err);
	}
	free(file);
}

struct sandbox_call *sandbox_file_put(struct sandbox *sb, const struct guest_file_spec *spec,
	struct pipe *body, guest_done_fn done, void *arg, struct err *err)
{
	if (call_check(sb, err) != 0) {
		return NULL;
	}
	struct file_call *file = xnew(struct file_call);

	file->done = done;
	file->arg = arg;
	return begin(sb, file, sb->guest->ops->put(sb->guest, spec, body, on_put_done, file, err));
}

struct sandbox_call *sandbox_file_get(struct sandbox *sb, const struct guest_file_spec *spec,
	struct pipe *body, const struct guest_get_hooks *hooks, struct err *err)
{
	if (call_check(sb, err) != 0) {
		return NULL;
	}
	struct file_call *file = xnew(struct file_call);
	const struct guest_get_hooks own = {
		.on_info = on_get_info, .on_done = on_get_done, .arg = file};

	file->get = *hooks;
	return begin(sb, file, sb->guest->ops->get(sb->guest, spec, body, &own, err));
}

struct sandbox_call *sandbox_file_list(struct sandbox *sb, const struct guest_file_spec *spec,
	const struct guest_list_hooks *hooks, struct err *err)
{
	if (call_check(sb, err) != 0) {
		return NULL;
	}
	struct file_call *file = xnew(struct file_call);
	const struct guest_list_hooks own = {
		.on_entry = on_list_entry, .on_done = on_list_done, .arg = file};

	file->list = *hooks;
	return begin(sb, file, sb->guest->ops->list(sb->guest, spec, &own, err));
}
