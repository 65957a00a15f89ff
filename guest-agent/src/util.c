#include "src/util.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

uint64_t now_ms(void)
{
	return now_us() / 1000u;
}

int util_write_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			return -1;
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static int write_file(const char *path, int flags, const void *data, size_t len)
{
	int fd = open(path, flags | O_WRONLY | O_CLOEXEC | O_NOCTTY, 0644);

	if (fd < 0) {
		return -1;
	}
	int result = util_write_all(fd, data, len);
	int saved = errno;

	close(fd);
	errno = saved;
	return result;
}

int util_write_text(const char *path, const char *text)
{
	return write_file(path, 0, text, strlen(text));
}

int util_save(const char *path, const void *data, size_t len)
{
	char fresh[256];
	int n = snprintf(fresh, sizeof fresh, "%s.paddock-new", path);

	if (n < 0 || (size_t)n >= sizeof fresh) {
		errno = ENAMETOOLONG;
		return -1;
	}
	unlink(fresh); /* of a try that was cut short */
	if (write_file(fresh, O_CREAT | O_EXCL, data, len) != 0 || rename(fresh, path) != 0) {
		int saved = errno;

		unlink(fresh);
		errno = saved;
		return -1;
	}
	return 0;
}

ssize_t util_read_text(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t len = 0;

	out[0] = '\0';
	if (fd < 0) {
		return -1;
	}
	while (len < size - 1) {
		ssize_t n = read(fd, out + len, size - 1 - len);

		if (n <= 0) {
			break;
		}
		len += (size_t)n;
	}
	close(fd);
	out[len] = '\0';
	return (ssize_t)len;
}

uint64_t util_read_number(const char *path)
{
	char text[64];

	if (util_read_text(path, text, sizeof text) < 0) {
		return 0;
	}
	return strtoull(text + strcspn(text, "0123456789"), NULL, 10);
}

static bool is_first;

void util_become_first(void)
{
	struct sched_param param = {.sched_priority = 1};

	is_first = sched_setscheduler(0, SCHED_RR, &param) == 0;
}

void util_become_ordinary(void)
{
	struct sched_param param = {0};

	if (is_first) {
		sched_setscheduler(0, SCHED_OTHER, &param);
	}
}

void util_close(int *fd)
{
	if (*fd >= 0) {
		close(*fd);
		*fd = -1;
	}
}
