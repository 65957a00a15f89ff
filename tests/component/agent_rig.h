#pragma once

/*
 * agent_rig - the host side against the real agent, without a virtual machine
 *
 * Purpose: listens where QEMU would and hands each connection to an agent of its own as descriptor
 *          3. PADDOCK_AGENT names the program.
 * Owns:    the agent and its workspace.
 */

#include "tests/lib/cm.h"

#include "fixture.h"

struct rig {
	struct fixture f;
	char workspace[64];
	pid_t agent;
};

/* Ready. */
void rig_init(struct rig *rig);
void rig_fini(struct rig *rig);
/* Takes the next connection of the host and hands it to an agent. */
void rig_spawn_agent(struct rig *rig);
void rig_end_agent(struct rig *rig);
