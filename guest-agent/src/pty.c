#include "src/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "src/options.h"

bool pty_is_there(void)
{
	int theirs;
	int fd = pty_open(24, 80, true, &theirs);

	if (fd < 0) {
		return false;
	}
	close(fd);
	close(theirs);
	return true;
}

/* The command's end, by its number and not by a path that somebody may have mounted over. */
static int open_theirs(int fd)
{
	return unlockpt(fd) != 0 ? -1 : ioctl(fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static int set_up(int fd, int theirs, unsigned rows, unsigned cols, bool is_root)
{
	struct termios mode;

	if (tcgetattr(theirs, &mode) != 0) {
		return -1;
	}
	mode.c_iflag |= IUTF8; /* erasing takes whole characters */
	if (tcsetattr(theirs, TCSANOW, &mode) != 0 || pty_resize(fd, rows, cols) != 0) {
		return -1;
	}
	return options.can_setuid && !is_root ? fchown(theirs, options.uid, (gid_t)-1) : 0;
}

int pty_open(unsigned rows, unsigned cols, bool is_root, int *ret_theirs)
{
	int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	int theirs = fd < 0 ? -1 : open_theirs(fd);

	if (theirs < 0 || set_up(fd, theirs, rows, cols, is_root) != 0) {
		int saved = errno;

		util_close(&theirs);
		util_close(&fd);
		errno = saved;
		return -1;
	}
	*ret_theirs = theirs;
	return fd;
}

int pty_resize(int fd, unsigned rows, unsigned cols)
{
	struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};

	return ioctl(fd, TIOCSWINSZ, &size);
}
