#include "hv/spec.h"

#include "base/xalloc.h"

struct hv_paths *hv_paths_dup(const struct hv_paths *paths)
{
	struct hv_paths *copy = xnew(struct hv_paths);

	copy->disk_dir = xstrdup(paths->disk_dir);
	copy->overlay = xstrdup(paths->overlay);
	copy->overlay_next = xstrdup(paths->overlay_next);
	copy->run_dir = xstrdup(paths->run_dir);
	copy->agent_socket = xstrdup(paths->agent_socket);
	copy->console_socket = xstrdup(paths->console_socket);
	return copy;
}

void hv_paths_free(struct hv_paths *paths)
{
	if (!paths) {
		return;
	}
	free(paths->disk_dir);
	free(paths->overlay);
	free(paths->overlay_next);
	free(paths->run_dir);
	free(paths->agent_socket);
	free(paths->console_socket);
	free(paths);
}

/* The strings of a copy are ours, whatever the type says. */
static void free_text(const char *text)
{
	free((char *)text);
}

struct hv_spec *hv_spec_dup(const struct hv_spec *spec)
{
	struct hv_spec *copy = xmemdup(spec, sizeof *spec);

	copy->id = xstrdup(spec->id);
	copy->name = xstrdup(spec->name);
	copy->account = xstrdup(spec->account);
	copy->kernel = xstrdup(spec->kernel);
	copy->initrd = xstrdup(spec->initrd);
	copy->cmdline = xstrdup(spec->cmdline);
	copy->base_image = xstrdup(spec->base_image);
	copy->paths = hv_paths_dup(spec->paths);
	return copy;
}

void hv_spec_free(struct hv_spec *spec)
{
	if (!spec) {
		return;
	}
	free_text(spec->id);
	free_text(spec->name);
	free_text(spec->account);
	free_text(spec->kernel);
	free_text(spec->initrd);
	free_text(spec->cmdline);
	free_text(spec->base_image);
	hv_paths_free((struct hv_paths *)spec->paths);
	free(spec);
}
