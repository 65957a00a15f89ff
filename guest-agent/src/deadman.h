#pragma once

/*
 * deadman - powers the guest off when nobody has said for too long that it may live on
 *
 * Purpose: the control plane names a deadline and extends it; should it be gone, guests don't stay
 *          for ever.
 * Owns:    a timer. The guard looks at the same deadline, should the agent be stuck.
 * Thread:  the agent has one.
 * Errors:  -1 and errno.
 * Uses:    loop.h, guard.h, machine.h.
 */

#include "src/util.h"

int deadman_init(void);
/* From now, on the clock that goes on while a guest is suspended; 0: never. */
int deadman_set(uint64_t ms);
void deadman_on_event(void);
