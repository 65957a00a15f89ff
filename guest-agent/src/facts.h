#pragma once

/*
 * facts - what HELLO says about this guest
 *
 * Uses:    proto/msg.h.
 */

#include <stdint.h>

struct facts {
	uint64_t features;
	char image[128]; /* /etc/paddock-image, "" where there is none */
};

extern struct facts facts;

void facts_init(void);
/* 32 hex digits, the same as long as the agent runs. */
const char *facts_boot_id(void);
