#include "src/configure.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "src/deadman.h"
#include "src/env.h"
#include "src/machine.h"
#include "src/options.h"
#include "src/port.h"
#include "src/stream.h"

#define CA_FILE        "/usr/local/share/ca-certificates/paddock.crt"
#define IMAGE_BUNDLE   "/etc/ssl/certs/ca-certificates.crt"
#define PADDOCK_BUNDLE "/etc/ssl/certs/paddock-bundle.crt"

#define NS_PER_SECOND 1000000000
#define STEP_NS       ((int64_t)PROTO_CLOCK_STEP_MS * 1000000)

/* ---- single settings: 0 or -1 and errno ----------------------------------------------------- */

static uint64_t realtime_ns(void)
{
	struct timespec at;

	clock_gettime(CLOCK_REALTIME, &at);
	return (uint64_t)at.tv_sec * NS_PER_SECOND + (uint64_t)at.tv_nsec;
}

static bool is_small(int64_t shift_ns)
{
	return shift_ns <= STEP_NS && shift_ns >= -STEP_NS;
}

static int set_clock(uint64_t ns)
{
	struct timespec at = {
		.tv_sec = (time_t)(ns / NS_PER_SECOND), .tv_nsec = (long)(ns % NS_PER_SECOND)};

	if (!options.owns_machine || is_small((int64_t)(ns - realtime_ns()))) {
		return 0;
	}
	return clock_settime(CLOCK_REALTIME, &at);
}

static int shift_clock(int64_t ns)
{
	struct timex t = {0};

	if (is_small(ns)) {
		t.modes = ADJ_OFFSET_SINGLESHOT;
		t.offset = (long)(ns / 1000);
	} else {
		int64_t rest = ns % NS_PER_SECOND;

		t.modes = ADJ_SETOFFSET | ADJ_NANO;
		t.time.tv_sec = (time_t)(ns / NS_PER_SECOND - (rest < 0));
		t.time.tv_usec = (suseconds_t)(rest < 0 ? rest + NS_PER_SECOND : rest);
	}
	return options.owns_machine && adjtimex(&t) < 0 ? -1 : 0;
}

static int add_entropy(const uint8_t *data, size_t len)
{
	/* struct rand_pool_info ends in an array without size. */
	union {
		struct rand_pool_info info;
		uint8_t bytes[sizeof(struct rand_pool_info) + PROTO_ENTROPY_MAX_BYTES];
	} pool = {0};

	if (!options.owns_machine) {
		return 0;
	}
	int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		return -1;
	}
	pool.info.entropy_count = (int)len * 8;
	pool.info.buf_size = (int)len;
	memcpy(pool.bytes + sizeof pool.info, data, len);

	int result = ioctl(fd, RNDADDENTROPY, &pool);

	if (result == 0) {
		result = ioctl(fd, RNDRESEEDCRNG);
	}
	explicit_bzero(&pool, sizeof pool);
	close(fd);
	return result;
}

static bool is_hostname(const char *name)
{
	size_t len = strlen(name);

	for (const char *p = name; *p != '\0'; p++) {
		if (!isalnum((unsigned char)*p) && *p != '-') {
			return false;
		}
	}
	return len > 0 && name[0] != '-' && name[len - 1] != '-';
}

/* The image's bundle and ours in one file, for programs that take only one. */
static int trust_ca(const uint8_t *pem, size_t len)
{
	if (!options.owns_machine) {
		return 0;
	}
	mkdir("/usr/local/share/ca-certificates", 0755);
	if (util_save(CA_FILE, pem, len) != 0) {
		return -1;
	}
	struct stat st;
	int fd = open(IMAGE_BUNDLE, O_RDONLY | O_CLOEXEC);
	size_t size = fd >= 0 && fstat(fd, &st) == 0 ? (size_t)st.st_size : 0;
	char *all = malloc(size + 1 + len);
	ssize_t n = all == NULL || size == 0 ? 0 : read(fd, all, size);
	int result = -1;

	util_close(&fd);
	mkdir("/etc/ssl", 0755);
	mkdir("/etc/ssl/certs", 0755);
	if (all != NULL && n >= 0) {
		all[n] = '\n';
		memcpy(all + n + 1, pem, len);
		result = util_save(PADDOCK_BUNDLE, all, (size_t)n + 1 + len);
	}
	free(all);
	if (result == 0) {
		env_set_ca(PADDOCK_BUNDLE, CA_FILE);
	}
	return result;
}

/* ---- the call ------------------------------------------------------------------------------- */

/* What is wrong with a field, or NULL. Looks at all of them before any is applied. */
static const char *check_field(struct msg_reader *r, const struct msg_field *f)
{
	char name[PROTO_HOSTNAME_MAX_BYTES + 1];

	switch (f->tag & ~MSG_CRITICAL) {
	case MSG_REALTIME_NS:
	case MSG_CLOCK_SHIFT_NS:
	case MSG_DEADLINE_MS:
		msg_u64(r, f);
		return NULL;
	case MSG_ENV_RESET:
		msg_u32(r, f);
		return NULL;
	case MSG_ENTROPY:
		return f->len <= PROTO_ENTROPY_MAX_BYTES ? NULL : "entropy is too long";
	case MSG_CA:
		return f->len <= PROTO_CA_MAX_BYTES ? NULL : "ca is too long";
	case MSG_HOSTNAME:
		msg_text(r, f, name, sizeof name);
		return is_hostname(name) ? NULL : "hostname isn't one";
	case MSG_ENV:
		return env_is_valid((const char *)f->data, f->len)
			       ? NULL
			       : "an environment variable is not NAME=VALUE";
	default:
		return NULL;
	}
}

/* The name of the setting that failed, or NULL. */
static const char *apply_field(struct msg_reader *r, const struct msg_field *f)
{
	char name[PROTO_HOSTNAME_MAX_BYTES + 1];

	switch (f->tag & ~MSG_CRITICAL) {
	case MSG_REALTIME_NS:
		return set_clock(msg_u64(r, f)) == 0 ? NULL : "clock";
	case MSG_CLOCK_SHIFT_NS:
		return shift_clock((int64_t)msg_u64(r, f)) == 0 ? NULL : "clock";
	case MSG_DEADLINE_MS:
		return deadman_set(msg_u64(r, f)) == 0 ? NULL : "deadline";
	case MSG_ENTROPY:
		return add_entropy(f->data, f->len) == 0 ? NULL : "entropy";
	case MSG_CA:
		return trust_ca(f->data, f->len) == 0 ? NULL : "ca";
	case MSG_HOSTNAME:
		msg_text(r, f, name, sizeof name);
		return !options.owns_machine || machine_set_hostname(name) == 0 ? NULL : "hostname";
	case MSG_ENV:
		errno = ENOSPC;
		return env_configure((const char *)f->data, f->len) ? NULL : "env";
	default:
		return NULL;
	}
}

static bool is_known(uint16_t tag)
{
	return (tag >= MSG_REALTIME_NS && tag <= MSG_CLOCK_SHIFT_NS) || tag == MSG_ENV;
}

/* False when the stream has been ended with the reason. */
static bool check(struct stream *s, const uint8_t *body, size_t len)
{
	struct msg_reader r = {.buf = body, .len = len};
	bool must_reset = false;

	for (struct msg_field f; msg_next(&r, &f);) {
		uint16_t tag = f.tag & (uint16_t)~MSG_CRITICAL;
		const char *wrong = check_field(&r, &f);

		if ((f.tag & MSG_CRITICAL) != 0 && !is_known(tag)) {
			stream_fail(s, STATUS_UNSUPPORTED, 0, "unsupported setting");
			return false;
		}
		if (wrong != NULL) {
			stream_fail(s, STATUS_INVALID, 0, "%s", wrong);
			return false;
		}
		must_reset = must_reset || (tag == MSG_ENV_RESET && msg_u32(&r, &f) == 1);
	}
	if (r.bad) {
		stream_fail(s, STATUS_INVALID, 0, "malformed request");
		return false;
	}
	if (must_reset) {
		env_reset_configured();
	}
	return true;
}

static void configure_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct stream_result ok = {.status = STATUS_OK};
	struct msg_reader r = {.buf = body, .len = len};

	if (!check(s, body, len)) {
		return;
	}
	for (struct msg_field f; msg_next(&r, &f);) {
		const char *failed = apply_field(&r, &f);

		if (failed != NULL) {
			int sys = errno;

			stream_fail(s, stream_status_of(sys), sys, "%s: %s", failed, strerror(sys));
			return;
		}
	}
	ok.realtime_ns = realtime_ns();
	stream_end(s, &ok);
}

static void shutdown_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct stream_result ok = {.status = STATUS_OK};

	(void)body;
	(void)len;
	stream_end(s, &ok);
	port_flush_blocking(500);
	machine_power_off();
}

const struct call_ops configure_ops = {
	.type = FRAME_CONFIGURE,
	.name = "configure",
	.start = configure_start,
};

const struct call_ops shutdown_ops = {
	.type = FRAME_SHUTDOWN,
	.name = "shutdown",
	.start = shutdown_start,
};
