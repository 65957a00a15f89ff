#include "fake_images.h"

#include <string.h>

#include "base/xalloc.h"

struct images {
	struct image image;
};

struct images *fake_images_new(void)
{
	struct images *images = xnew(struct images);

	images->image = (struct image){.refs = 1,
		.name = (char *)"minimal",
		.version = (char *)"0123456789abcdef",
		.kernel = (char *)"/nonexistent/vmlinuz",
		.initrd = (char *)"/nonexistent/initrd.img",
		.base = (char *)"/nonexistent/root.qcow2",
		.cmdline = (char *)"quiet",
		.virtual_size_bytes = UINT64_C(2) << 30,
		.kernel_version = (char *)"6.1",
		.agent_version = (char *)"0",
		.created = (char *)"2026-01-01T00:00:00Z"};
	return images;
}

void fake_images_free(struct images *images)
{
	ASSERT(images->image.refs == 1);
	free(images);
}

bool images_is_ready(const struct images *images)
{
	(void)images;
	return true;
}

struct image *image_ref(struct image *image)
{
	image->refs++;
	return image;
}

void image_unref(struct image *image)
{
	if (image) {
		ASSERT(image->refs > 1);
		image->refs--;
	}
}

struct image *image_get(
	struct images *images, const char *name, const char *version, struct err *err)
{
	if ((name && strcmp(name, images->image.name) != 0) ||
		(version && strcmp(version, images->image.version) != 0)) {
		err_set(err, ERR_NOT_FOUND, "there is no image \"%.63s\"; there are: minimal",
			name ? name : "");
		return NULL;
	}
	return image_ref(&images->image);
}

const char *images_default(const struct images *images)
{
	return images->image.name;
}

void images_each(const struct images *images, image_status_fn fn, void *arg)
{
	const struct image_status status = {.name = images->image.name,
		.version = images->image.version,
		.state = IMAGE_GOOD,
		.image = &images->image,
		.is_current = true,
		.is_default = true};

	fn(arg, &status);
}
