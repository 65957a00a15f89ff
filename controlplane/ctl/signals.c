#include "ctl/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/macros.h"

static int ends[2] = {-1, -1};
static signal_fn deal_with;
static void *deal_arg;

static void on_signal(int number)
{
	int saved = errno;
	unsigned char byte = (unsigned char)number;
	ssize_t n = write(ends[1], &byte, 1); /* full: there are enough of them */

	(void)n;
	errno = saved;
}

int signals_catch(const int *numbers, size_t count, signal_fn deal, void *arg)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct sigaction old;

	deal_with = deal;
	deal_arg = arg;
	if (ends[0] < 0) {
		int rc = pipe2(ends, O_CLOEXEC | O_NONBLOCK);
		ASSERT(rc == 0);
	}
	for (size_t i = 0; i < count; i++) {
		if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) {
			sigaction(numbers[i], &action, NULL);
		}
	}
	return ends[0];
}

int signals_deal(void)
{
	unsigned char byte;

	while (ends[0] >= 0 && read(ends[0], &byte, 1) == 1) {
		if (deal_with(deal_arg, byte) != 0) {
			return -1;
		}
	}
	return 0;
}

void signals_die(int number)
{
	signal(number, SIG_DFL);
	raise(number);
	_exit(128 + number); /* it was blocked */
}
