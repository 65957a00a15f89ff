#pragma once

/*
 * pty - a terminal for a command
 *
 * Purpose: opens one, and tells its size.
 * Owns:    nothing; the caller closes both ends.
 * Thread:  the agent has one.
 * Errors:  -1 and errno.
 * Uses:    options.h.
 */

#include "src/util.h"

/* Whether this machine has any. */
bool pty_is_there(void);
/* Our end, which doesn't block, and the command's, which belongs to the user it runs as. */
int pty_open(unsigned rows, unsigned cols, bool is_root, int *ret_theirs);
/* Tells the programs on it by SIGWINCH. */
int pty_resize(int fd, unsigned rows, unsigned cols);
