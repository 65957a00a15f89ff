#pragma once

/*
 * terminal - our terminal, given over to a guest's
 *
 * Purpose: raw mode, in which every key goes to the guest, and its end on every way out.
 * Owns:    the modes of stdin's terminal between terminal_make_raw() and terminal_restore(). The
 *          latter runs at exit and before a signal of a fault ends us, too.
 * Thread:  one.
 */

#include <stdbool.h>

/* Whether stdin is one. */
bool terminal_is_there(void);
/* Again is fine: after a stop others may have changed the modes. -1: it has gone. */
int terminal_make_raw(void);
void terminal_restore(void);
/* Of stdin's, or else of stdout's or stderr's; 24 × 80 where there is none or it doesn't know. */
void terminal_size(unsigned *ret_rows, unsigned *ret_cols);
