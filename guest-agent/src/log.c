#include "src/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static int kmsg_fd = -1;

void log_to_kernel(void)
{
	kmsg_fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

/* True when this line may be written; counts it otherwise. */
static bool rate_allows(unsigned *ret_suppressed)
{
	static uint64_t window_start_ms;
	static unsigned in_window;
	static unsigned suppressed;
	uint64_t now = now_ms();

	*ret_suppressed = 0;
	if (now - window_start_ms >= 1000 || window_start_ms == 0) {
		window_start_ms = now;
		in_window = 0;
		*ret_suppressed = suppressed;
		suppressed = 0;
	}
	if (in_window >= LOG_PER_SECOND) {
		suppressed++;
		return false;
	}
	in_window++;
	return true;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	int saved = errno;
	char line[400];
	unsigned suppressed;

	if (!rate_allows(&suppressed)) {
		return;
	}
	int len = snprintf(line, sizeof line, "<%d>paddock-agent: ", (int)level);

	if (suppressed > 0) {
		len += snprintf(
			line + len, sizeof line - (size_t)len, "(%u lines held back) ", suppressed);
	}
	va_list args;

	va_start(args, fmt);
	errno = saved;
	int body = vsnprintf(line + len, sizeof line - (size_t)len - 1, fmt, args);

	va_end(args);
	len = MIN(len + MAX(body, 0), (int)sizeof line - 2);
	line[len++] = '\n';
	if (write(kmsg_fd >= 0 ? kmsg_fd : STDERR_FILENO, line, (size_t)len) < 0) {
		/* There is nowhere to say so. */
	}
	errno = saved;
}
