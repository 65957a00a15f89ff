/*
 * filter-watch - runs the host filter by itself, for tests
 *
 * usage: filter-watch INSTANCE UID_FIRST UID_COUNT RESOLV_CONF [CIDR:PORT...]
 *
 * Prints a line `MILLISECONDS STATE REASON` (CLOCK_BOOTTIME) on every change of state. Runs until
 * its standard input ends, then leaves the table there; a line `remove` takes it away first.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "netfilter/netfilter.h"

static void print_state(void *arg, enum filter_state state, const char *reason)
{
	(void)arg;
	printf("%llu %s %s\n", (unsigned long long)clock_monotonic_ms(), filter_state_name(state),
		reason);
	fflush(stdout);
}

struct input {
	struct loop *loop;
	bool is_removal_wanted;
};

static void on_input(evutil_socket_t fd, short what, void *arg)
{
	struct input *input = arg;
	char text[64];
	ssize_t n = read(fd, text, sizeof text - 1);

	(void)what;
	if (n > 0) {
		text[n] = '\0';
		input->is_removal_wanted = strncmp(text, "remove", 6) == 0;
	}
	loop_stop(input->loop);
}

static int fail(const struct err *err)
{
	fprintf(stderr, "filter-watch: %s\n", err->msg);
	return 1;
}

int main(int argc, char **argv)
{
	struct exceptions_bounds bounds = {0};
	struct err err;

	if (argc < 5) {
		fprintf(stderr, "usage: filter-watch INSTANCE FIRST COUNT RESOLV [CIDR:PORT...]\n");
		return 2;
	}
	struct netfilter_settings settings = {.instance = argv[1],
		.uid_first = (uid_t)strtoul(argv[2], NULL, 10),
		.uid_count = (unsigned)strtoul(argv[3], NULL, 10),
		.resolv_conf = argv[4]};
	const struct netfilter_hooks hooks = {.on_state = print_state};
	_cleanup_free_ struct ip_prefix *own = exceptions_own_addresses(&bounds.own_count, &err);

	bounds.own = own;
	if (!own || exceptions_parse(argv + 5, &bounds, &settings.exceptions, &err) != 0) {
		return fail(&err);
	}
	_cleanup_(loop_free_p) struct loop *loop = loop_new(&err);
	if (!loop) {
		return fail(&err);
	}
	_cleanup_(netfilter_free_p) struct netfilter *nf = netfilter_new(
		loop, &settings, &hooks, &err);
	if (!nf) {
		return fail(&err);
	}
	struct input input = {.loop = loop};
	struct event *readable = event_new(
		loop_base(loop), STDIN_FILENO, EV_READ | EV_PERSIST, on_input, &input);

	event_add(readable, NULL);
	loop_run(loop);
	event_free(readable);
	if (input.is_removal_wanted && netfilter_remove_blocking(argv[1], &err) != 0) {
		return fail(&err);
	}
	return 0;
}
