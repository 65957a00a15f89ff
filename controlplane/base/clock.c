#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t test_monotonic_ms;
static int64_t test_wall_ms;

static struct timespec read_clock(clockid_t id)
{
	struct timespec ts;

	ASSERT(clock_gettime(id, &ts) == 0);
	return ts;
}

uint64_t clock_monotonic_us(void)
{
	struct timespec ts = read_clock(CLOCK_BOOTTIME);

	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000 +
	       (uint64_t)test_monotonic_ms * 1000;
}

uint64_t clock_monotonic_ms(void)
{
	return clock_monotonic_us() / 1000;
}

int64_t clock_wall_us(void)
{
	struct timespec ts = read_clock(CLOCK_REALTIME);

	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000 + test_wall_ms * 1000;
}

int64_t clock_wall_ms(void)
{
	return clock_wall_us() / 1000;
}

const char *clock_format(int64_t wall_ms, char out[CLOCK_TEXT_BYTES])
{
	time_t seconds = (time_t)(wall_ms / 1000);
	int ms = (int)(wall_ms % 1000);
	struct tm tm;

	if (ms < 0) {
		ms += 1000;
		seconds--;
	}
	ASSERT(gmtime_r(&seconds, &tm) != NULL);
	size_t n = strftime(out, CLOCK_TEXT_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, CLOCK_TEXT_BYTES - n, ".%03dZ", ms);
	return out;
}

void clock_test_advance(int64_t monotonic_ms, int64_t wall_ms)
{
	test_monotonic_ms += monotonic_ms;
	test_wall_ms += wall_ms;
}
