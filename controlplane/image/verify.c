#include "image/verify.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/xalloc.h"
#include "image/manifest.h"

/*
 * Theory of operation
 *
 * Stamps are taken before anything is read and again at the end; when they differ, somebody was
 * writing meanwhile and nothing is known. The sums tell accidents; against malice stands the rule
 * that only the owner may write to any of it, from the images directory down: the manifest itself
 * is believed.
 */

#define HASH_CHUNK_BYTES (1024 * 1024)

static_assert(IMAGE_FILE_MANIFEST == ARRAY_SIZE(manifest_file_names),
	"the manifest lists every file but itself");

/* ---- names ---- */

bool image_version_is_valid(const char *version)
{
	size_t len = strlen(version);

	return len > 0 && len < IMAGE_VERSION_BYTES && strspn(version, "0123456789abcdef") == len;
}

static const char *file_name(enum image_file file)
{
	return file == IMAGE_FILE_MANIFEST ? "manifest.json" : manifest_file_names[file];
}

static char *file_path(const struct images_config *config, const char *name, const char *version,
	enum image_file file)
{
	return xasprintf("%s/%s/%s/%s", config->dir, name, version, file_name(file));
}

int image_current(const struct images_config *config, const char *name,
	char ret[IMAGE_VERSION_BYTES], struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/%s/current", config->dir, name);
	char target[IMAGE_VERSION_BYTES];
	ssize_t len = readlink(path, target, sizeof(target));

	if (len < 0 && (errno == ENOENT || errno == ENOTDIR)) {
		return 0;
	}
	if (len >= 0 && (size_t)len < sizeof(target)) {
		target[len] = '\0';
		if (image_version_is_valid(target)) {
			memcpy(ret, target, sizeof(target));
			return 1;
		}
	}
	return err_set(err, ERR_UNAVAILABLE, "\"current\" is not a link to a version");
}

/* ---- stamps ---- */

static void take_stamp(const char *path, bool is_dir, struct image_stamp *ret)
{
	struct stat st;

	*ret = (struct image_stamp){0};
	if ((is_dir ? stat(path, &st) : lstat(path, &st)) < 0) {
		return;
	}
	ret->dev = st.st_dev;
	ret->ino = st.st_ino;
	ret->uid = st.st_uid;
	ret->mode = st.st_mode;
	/* A directory's times change with each new version in it. */
	if (!is_dir) {
		ret->size = st.st_size;
		ret->mtime = st.st_mtim;
		ret->ctime = st.st_ctim;
	}
}

void image_stamps_take(const struct images_config *config, const char *name, const char *version,
	struct image_stamps *ret)
{
	_cleanup_free_ char *of_name = xasprintf("%s/%s", config->dir, name);
	_cleanup_free_ char *of_version = xasprintf("%s/%s", of_name, version);

	take_stamp(config->dir, true, &ret->dirs[0]);
	take_stamp(of_name, true, &ret->dirs[1]);
	take_stamp(of_version, true, &ret->dirs[2]);
	for (unsigned i = 0; i < IMAGE_FILE_MAX; i++) {
		_cleanup_free_ char *path = file_path(config, name, version, (enum image_file)i);

		take_stamp(path, false, &ret->files[i]);
	}
}

static bool stamp_equal(const struct image_stamp *a, const struct image_stamp *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->uid == b->uid && a->mode == b->mode &&
	       a->size == b->size && a->mtime.tv_sec == b->mtime.tv_sec &&
	       a->mtime.tv_nsec == b->mtime.tv_nsec && a->ctime.tv_sec == b->ctime.tv_sec &&
	       a->ctime.tv_nsec == b->ctime.tv_nsec;
}

bool image_stamps_equal(const struct image_stamps *a, const struct image_stamps *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(a->dirs); i++) {
		if (!stamp_equal(&a->dirs[i], &b->dirs[i])) {
			return false;
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(a->files); i++) {
		if (!stamp_equal(&a->files[i], &b->files[i])) {
			return false;
		}
	}
	return true;
}

/* ---- checks ---- */

static int check_owner(const struct images_config *config, const struct image_stamp *stamp,
	const char *what, struct err *err)
{
	if (stamp->uid != config->owner) {
		return err_set(err, ERR_UNAVAILABLE, "%s belongs to uid %u instead of %u", what,
			stamp->uid, config->owner);
	}
	if (stamp->mode & (S_IWGRP | S_IWOTH)) {
		return err_set(
			err, ERR_UNAVAILABLE, "%s may be written by others than its owner", what);
	}
	return 0;
}

/* QEMU runs as a user of its own for each sandbox, who is a member of nothing. */
static int check_readable(
	const struct image_stamp *stamp, const char *what, mode_t needed, struct err *err)
{
	if ((stamp->mode & needed) == needed) {
		return 0;
	}
	return err_set(err, ERR_UNAVAILABLE, "%s can't be %s by the users that QEMU runs as", what,
		needed & S_IROTH ? "read" : "entered");
}

static int check_owners(
	const struct images_config *config, const struct image_stamps *stamps, struct err *err)
{
	static const char *const dirs[] = {
		"the directory of all images", "its directory", "its version's directory"};

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		if (!S_ISDIR(stamps->dirs[i].mode)) {
			return err_set(err, ERR_UNAVAILABLE, "%s is missing", dirs[i]);
		}
		if (check_owner(config, &stamps->dirs[i], dirs[i], err) < 0 ||
			check_readable(&stamps->dirs[i], dirs[i], S_IXOTH, err) < 0) {
			return -1;
		}
	}
	for (unsigned i = 0; i < IMAGE_FILE_MAX; i++) {
		const char *name = file_name((enum image_file)i);

		if (stamps->files[i].mode == 0) {
			return err_set(err, ERR_UNAVAILABLE, "%s is missing", name);
		}
		if (!S_ISREG(stamps->files[i].mode)) {
			return err_set(err, ERR_UNAVAILABLE, "%s is not a regular file", name);
		}
		if (check_owner(config, &stamps->files[i], name, err) < 0 ||
			check_readable(&stamps->files[i], name, S_IROTH, err) < 0) {
			return -1;
		}
	}
	return 0;
}

static int read_manifest(const struct images_config *config, const char *name, const char *version,
	struct manifest *ret, struct err *err)
{
	_cleanup_free_ char *path = file_path(config, name, version, IMAGE_FILE_MANIFEST);
	_cleanup_free_ char *text = NULL;
	size_t len = 0;

	if (fs_read(path, MANIFEST_MAX_BYTES, &text, &len, err) < 0) {
		return err_set(err, ERR_UNAVAILABLE, "its manifest can't be read");
	}
	if (manifest_parse(text, len, ret, err) < 0) {
		return -1;
	}
	if (strcmp(ret->name, name) != 0) {
		return err_set(
			err, ERR_UNAVAILABLE, "its manifest is that of image \"%s\"", ret->name);
	}
	if (strcmp(ret->version, version) != 0) {
		return err_set(
			err, ERR_UNAVAILABLE, "its manifest is that of version %s", ret->version);
	}
	return 0;
}

static int hash_file(const char *path, char ret_hex[65])
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	_cleanup_free_ char *chunk = xcalloc(1, HASH_CHUNK_BYTES);
	unsigned char digest[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *sum;
	ssize_t n;

	if (fd < 0) {
		return -1;
	}
	sum = EVP_MD_CTX_new();
	ASSERT(sum && EVP_DigestInit_ex(sum, EVP_sha256(), NULL) == 1);
	while ((n = read(fd, chunk, HASH_CHUNK_BYTES)) > 0 || (n < 0 && errno == EINTR)) {
		if (n > 0) {
			ASSERT(EVP_DigestUpdate(sum, chunk, (size_t)n) == 1);
		}
	}
	ASSERT(EVP_DigestFinal_ex(sum, digest, NULL) == 1);
	EVP_MD_CTX_free(sum);
	if (n < 0) {
		return -1;
	}
	manifest_hex(digest, 32, ret_hex);
	return 0;
}

static int check_file_blocking(const struct images_config *config, const struct manifest *manifest,
	const struct image_stamps *stamps, enum image_file file, struct err *err)
{
	_cleanup_free_ char *path = file_path(config, manifest->name, manifest->version, file);
	const struct manifest_file *listed = &manifest->files[file];
	char sha256[65];

	if ((uint64_t)stamps->files[file].size != listed->size) {
		return err_set(err, ERR_UNAVAILABLE,
			"%s doesn't match its manifest: it has %" PRIu64
			" bytes instead of %" PRIu64,
			file_name(file), (uint64_t)stamps->files[file].size, listed->size);
	}
	if (hash_file(path, sha256) < 0) {
		return err_set(err, ERR_UNAVAILABLE, "%s can't be read", file_name(file));
	}
	if (strcmp(sha256, listed->sha256) != 0) {
		return err_set(
			err, ERR_UNAVAILABLE, "%s doesn't match its manifest", file_name(file));
	}
	return 0;
}

/* ---- the whole ---- */

static struct image *make_image(const struct images_config *config, struct manifest *manifest)
{
	struct image *image = xnew(struct image);

	image->refs = 1;
	image->kernel = file_path(config, manifest->name, manifest->version, IMAGE_FILE_KERNEL);
	image->initrd = file_path(config, manifest->name, manifest->version, IMAGE_FILE_INITRD);
	image->base = file_path(config, manifest->name, manifest->version, IMAGE_FILE_BASE);
	image->name = steal_ptr(&manifest->name);
	image->version = steal_ptr(&manifest->version);
	image->cmdline = steal_ptr(&manifest->cmdline);
	image->kernel_version = steal_ptr(&manifest->kernel_version);
	image->agent_version = steal_ptr(&manifest->agent_version);
	image->created = steal_ptr(&manifest->created);
	image->virtual_size_bytes = manifest->virtual_size_bytes;
	return image;
}

struct image *image_verify_blocking(const struct images_config *config, const char *name,
	const char *version, struct image_stamps *ret_stamps, struct err *err)
{
	_cleanup_manifest_ struct manifest manifest = {0};
	struct image_stamps after;

	image_stamps_take(config, name, version, ret_stamps);
	if (check_owners(config, ret_stamps, err) < 0 ||
		read_manifest(config, name, version, &manifest, err) < 0) {
		return NULL;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(manifest.files); i++) {
		if (check_file_blocking(config, &manifest, ret_stamps, (enum image_file)i, err) <
			0) {
			return NULL;
		}
	}
	image_stamps_take(config, name, version, &after);
	if (!image_stamps_equal(ret_stamps, &after)) {
		err_set(err, ERR_UNAVAILABLE, "its files changed while they were read");
		return NULL;
	}
	return make_image(config, &manifest);
}

struct image *image_load_blocking(
	const struct images_config *config, const char *name, const char *version, struct err *err)
{
	char current[IMAGE_VERSION_BYTES] = "";
	struct image_stamps stamps;
	struct image *image = NULL;
	int found = 1;

	if (!name) {
		name = config->default_name;
	}
	if (name_is_valid(name) && !version) {
		found = image_current(config, name, current, err);
		version = current;
	}
	if (!name_is_valid(name) || found == 0 ||
		(found == 1 && !image_version_is_valid(version))) {
		err_set(err, ERR_NOT_FOUND, "there is no such image");
		return NULL;
	}
	if (found == 1) {
		image = image_verify_blocking(config, name, version, &stamps, err);
	}
	if (!image) {
		err_wrap(err, "image \"%s\" is refused", name);
	}
	return image;
}

/* ---- references ---- */

struct image *image_ref(struct image *image)
{
	image->refs++;
	return image;
}

void image_unref(struct image *image)
{
	if (!image) {
		return;
	}
	ASSERT(image->refs > 0);
	image->refs--;
	if (image->refs > 0) {
		return;
	}
	free(image->name);
	free(image->version);
	free(image->kernel);
	free(image->initrd);
	free(image->base);
	free(image->cmdline);
	free(image->kernel_version);
	free(image->agent_version);
	free(image->created);
	free(image);
}
