#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int64_t clock_wall_ms(void)
{
	struct timespec ts = read_clock(CLOCK_REALTIME);

	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000 + test_wall_ms;
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

/* Reads "Z" or "+hh:mm"; the offset in minutes. */
static int parse_offset(const char *s, int *ret_minutes)
{
	int hours;
	int minutes;
	int end = 0;

	if (strcmp(s, "Z") == 0 || strcmp(s, "z") == 0) {
		*ret_minutes = 0;
		return 0;
	}
	if ((s[0] != '+' && s[0] != '-') || strlen(s) != 6 ||
		sscanf(s + 1, "%2d:%2d%n", &hours, &minutes, &end) != 2 || end != 5 || hours < 0 ||
		hours > 23 || minutes < 0 || minutes > 59) {
		return -1;
	}
	*ret_minutes = (s[0] == '-' ? -1 : 1) * (hours * 60 + minutes);
	return 0;
}

int clock_parse(const char *text, int64_t *ret_wall_ms, struct err *err)
{
	struct tm tm = {0};
	int64_t ms = 0;
	int offset;
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);

	if (rest == NULL || strspn(text, "0123456789") != 4) {
		return err_set(err, ERR_INVALID, "not a time like 2026-01-31T12:00:00Z");
	}
	if (*rest == '.') {
		size_t digits = strspn(rest + 1, "0123456789");

		if (digits < 1 || digits > 9) {
			return err_set(err, ERR_INVALID, "not a time like 2026-01-31T12:00:00Z");
		}
		char three[4] = "000";
		memcpy(three, rest + 1, MIN(digits, (size_t)3));
		ms = atoi(three);
		rest += 1 + digits;
	}
	if (parse_offset(rest, &offset) != 0) {
		return err_set(err, ERR_INVALID, "a time must end with Z or an offset like +02:00");
	}
	*ret_wall_ms = ((int64_t)timegm(&tm) - offset * 60) * 1000 + ms;
	return 0;
}

void clock_test_advance(int64_t monotonic_ms, int64_t wall_ms)
{
	test_monotonic_ms += monotonic_ms;
	test_wall_ms += wall_ms;
}
