#include "ctl/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/macros.h"

static struct termios before;
static volatile sig_atomic_t is_raw;

bool terminal_is_there(void)
{
	return isatty(STDIN_FILENO);
}

static int set_modes(const struct termios *modes)
{
	int rc;

	/* In the background the first call stops us; it goes on when we are in front again. */
	do {
		rc = tcsetattr(STDIN_FILENO, TCSADRAIN, modes);
	} while (rc != 0 && errno == EINTR);
	return rc;
}

/* tcsetattr() and raise() may be called here. */
static void on_fault(int number)
{
	terminal_restore();
	raise(number); /* SA_RESETHAND: it ends us now */
}

/* Once. */
static void restore_at_the_end(void)
{
	static const int faults[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
	struct sigaction action = {.sa_handler = on_fault, .sa_flags = (int)SA_RESETHAND};
	static bool is_done;

	if (is_done) {
		return;
	}
	is_done = true;
	atexit(terminal_restore);
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		sigaction(faults[i], &action, NULL);
	}
}

int terminal_make_raw(void)
{
	struct termios raw;

	if (!is_raw && tcgetattr(STDIN_FILENO, &before) != 0) {
		return -1;
	}
	restore_at_the_end();
	raw = before;
	cfmakeraw(&raw);
	raw.c_cc[VMIN] = 1;
	raw.c_cc[VTIME] = 0;
	is_raw = 1;
	return set_modes(&raw);
}

void terminal_restore(void)
{
	if (is_raw) {
		is_raw = 0;
		set_modes(&before);
	}
}

void terminal_size(unsigned *ret_rows, unsigned *ret_cols)
{
	static const int fds[] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
	struct winsize size;

	*ret_rows = 24;
	*ret_cols = 80;
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		if (ioctl(fds[i], TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
			*ret_rows = size.ws_row;
			*ret_cols = size.ws_col;
			return;
		}
	}
}
