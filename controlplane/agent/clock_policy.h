#pragma once

/*
 * clock_policy - what is to be done about a guest's clock
 *
 * Purpose: from one look at it, by how much it is to be moved and when to look again. Pure.
 * Owns:    nothing.
 * Thread:  any.
 * Errors:  none.
 * Uses:    base, proto.
 *
 * The guest read its clock at some moment between our question and its answer. So a look is good
 * to half the time between the two; a clock is moved only where that surely makes it better.
 */

#include <stdint.h>

/* Between looks. Short enough that PING, which silence asks for, is rarely needed besides. */
#define CLOCK_LOOK_MS 20000u
/* After a look that moved the clock, or that was too vague; doubles while they stay so. */
#define CLOCK_SOON_MS 1000u
/* An error so small isn't worth moving the clock. */
#define CLOCK_FINE_US 3000
/* A look that took longer can't tell enough. */
#define CLOCK_VAGUE_US 80000u

struct clock_look {
	int64_t guest_us; /* what the guest's said */
	int64_t wall_us;  /* ours, when the answer came */
	uint64_t took_us; /* from question to answer */
};

struct clock_policy {
	unsigned hurried; /* looks in a row after which the next one came soon */
};

struct clock_advice {
	int64_t shift_us; /* to be added to the guest's clock */
	uint32_t again_ms;
};

struct clock_advice clock_policy_judge(struct clock_policy *policy, const struct clock_look *look);
