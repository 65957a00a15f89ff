#pragma once

/*
 * machine - what PID 1 does before anything else runs
 *
 * Purpose: mounts, network, host name, the size of the root file system.
 * Owns:    nothing that lasts.
 * Thread:  the agent has one.
 * Errors:  each step that fails is logged and the rest goes on: a guest that answers and says what
 *          is wrong beats one that doesn't boot.
 * Uses:    options.h, log.h.
 */

#include "src/util.h"

/* As PID 1: everything. */
void machine_set_up(void);
/* Sets it now, for later boots and in /etc/hosts. */
int machine_set_hostname(const char *name);
/* True when the root file system fills its disk. */
bool machine_grow_root(void);

/* PID 1: ends every process, syncs, powers off. Under another init: asks it to. Under test: exits.
 */
_noreturn_ void machine_power_off(void);
