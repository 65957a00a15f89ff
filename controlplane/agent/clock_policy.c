#include "agent/clock_policy.h"

#include <stdbool.h>

#include "base/macros.h"
#include "proto/limits.h"

#define CLOCK_STEP_US (PROTO_CLOCK_STEP_MS * INT64_C(1000))

static uint32_t wait_ms(struct clock_policy *policy, bool is_urgent)
{
	if (!is_urgent) {
		policy->hurried = 0;
		return CLOCK_LOOK_MS;
	}
	uint32_t wait = CLOCK_SOON_MS << MIN(policy->hurried, 8u);

	policy->hurried++;
	return MIN(wait, CLOCK_LOOK_MS);
}

struct clock_advice clock_policy_judge(struct clock_policy *policy, const struct clock_look *look)
{
	int64_t half = (int64_t)(look->took_us / 2);
	int64_t ahead = look->guest_us - (look->wall_us - half);
	int64_t off = ahead < 0 ? -ahead : ahead;
	/* A move is wrong by half at most: so it must be off by more than that already. */
	bool must_move = off > 2 * half + CLOCK_FINE_US;

	return (struct clock_advice){
		.shift_us = must_move ? -ahead : 0,
		.again_ms = wait_ms(policy, off > CLOCK_STEP_US || look->took_us > CLOCK_VAGUE_US),
	};
}
