#pragma once

/*
 * fixture - images for tests
 *
 * Purpose: makes small versions in the test's directory, as images/build lays them out.
 */

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "base/cleanup.h"
#include "image/image.h"
#include "image/manifest.h"
#include "tests/lib/cm.h"
#include "tests/lib/tmpdir.h"

#define FIXTURE_CMDLINE       "console=ttyS0 quiet"
#define FIXTURE_VERSION_BYTES 17

static inline struct images_config fixture_config(void)
{
	return (struct images_config){.dir = tmpdir, .default_name = "minimal", .owner = geteuid()};
}

static inline void fixture_write(const char *path, const char *text)
{
	struct err err;

	assert_ok(fs_write_atomic(path, text, strlen(text), 0444, &err), &err);
}

static inline void fixture_sha256(const char *text, char out[65])
{
	unsigned char digest[EVP_MAX_MD_SIZE];

	assert_int_equal(EVP_Digest(text, strlen(text), digest, NULL, EVP_sha256(), NULL), 1);
	manifest_hex(digest, 32, out);
}

/* The text of a manifest for files with those contents; *ret_version follows from them. */
static inline char *fixture_manifest(
	const char *name, const char *const contents[3], char ret_version[FIXTURE_VERSION_BYTES])
{
	char sums[3][65];

	for (int i = 0; i < 3; i++) {
		fixture_sha256(contents[i], sums[i]);
	}
	snprintf(ret_version, FIXTURE_VERSION_BYTES, "%.16s", sums[2]);
	return xasprintf("{\"format\": 1, \"name\": \"%s\", \"version\": \"%s\","
			 " \"created\": \"2026-01-31T12:00:00Z\", \"kernel_version\": \"6.1\","
			 " \"agent_version\": \"0.1.0\", \"cmdline\": \"" FIXTURE_CMDLINE "\","
			 " \"virtual_size_bytes\": 1073741824, \"files\": {"
			 "\"vmlinuz\": {\"sha256\": \"%s\", \"size\": %zu},"
			 "\"initrd.img\": {\"sha256\": \"%s\", \"size\": %zu},"
			 "\"root.qcow2\": {\"sha256\": \"%s\", \"size\": %zu}},"
			 " \"packages\": []}",
		name, ret_version, sums[0], strlen(contents[0]), sums[1], strlen(contents[1]),
		sums[2], strlen(contents[2]));
}

/* The caller frees: "NAME/VERSION/FILE" below the test's directory. */
static inline char *fixture_path(const char *name, const char *version, const char *file)
{
	return xasprintf("%s/%s/%s/%s", tmpdir, name, version, file);
}

static inline void fixture_set_current(const char *name, const char *version)
{
	_cleanup_free_ char *link = xasprintf("%s/%s/current", tmpdir, name);
	_cleanup_free_ char *partial = xasprintf("%s/%s/.current", tmpdir, name);

	assert_int_equal(symlink(version, partial), 0);
	assert_int_equal(rename(partial, link), 0);
}

/* Makes a version whose disk holds @base, and makes it the current one. */
static inline void fixture_image(
	const char *name, const char *base, char ret_version[FIXTURE_VERSION_BYTES])
{
	const char *const contents[3] = {"kernel", "initrd", base};
	_cleanup_free_ char *manifest = fixture_manifest(name, contents, ret_version);
	_cleanup_free_ char *dir = xasprintf("%s/%s/%s", tmpdir, name, ret_version);
	_cleanup_free_ char *manifest_path = fixture_path(name, ret_version, "manifest.json");
	struct err err;

	assert_int_equal(chmod(tmpdir, 0755), 0);
	assert_ok(fs_mkdir_parents(dir, 0755, &err), &err);
	for (int i = 0; i < 3; i++) {
		_cleanup_free_ char *path = fixture_path(name, ret_version, manifest_file_names[i]);

		fixture_write(path, contents[i]);
	}
	fixture_write(manifest_path, manifest);
	fixture_set_current(name, ret_version);
}

/* Flips a byte, whatever the mode: what a bad disk does, and what an intruder would. */
static inline void fixture_damage(const char *path)
{
	static time_t tick = 1000;
	struct timespec times[2] = {{.tv_sec = tick + 1}, {.tv_sec = tick + 1}};
	_cleanup_close_ int fd = -1;
	char byte;

	assert_int_equal(chmod(path, 0644), 0);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, 0), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, 0), 1);
	tick++;
	/* The file system's clock is coarse: two changes within a tick would look like one. */
	assert_int_equal(futimens(fd, times), 0);
	assert_int_equal(chmod(path, 0444), 0);
}
