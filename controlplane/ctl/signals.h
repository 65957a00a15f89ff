#pragma once

/*
 * signals - signals that are dealt with where the program waits
 *
 * Purpose: a signal that is caught becomes a byte in a pipe, which can be polled, and is dealt with
 *          by an ordinary function. Calls that wait are interrupted, and deal with it, too.
 * Owns:    the pipe and the handlers, to the end of the process.
 * Thread:  one.
 */

#include <stddef.h>

/* 0, or -1: what is going on is to be given up. */
typedef int (*signal_fn)(void *arg, int number);

/* From now on @deal is called for these; one that is ignored (by nohup and the like) stays so.
 * Returns the pipe. */
int signals_catch(const int *numbers, size_t count, signal_fn deal, void *arg);
/* Calls it for all that came. */
int signals_deal(void);
/* Ends the process as @number would have, had it not been caught. */
void signals_die(int number) __attribute__((noreturn));
