#pragma once

/*
 * off-loop - calls a blocking function as a worker would: on a thread that isn't the loop's
 */

#include <pthread.h>

#include "base/macros.h"
#include "loop/loop.h"

struct off_loop_call {
	void (*fn)(void *arg);
	void *arg;
};

static inline void *off_loop_main(void *arg)
{
	const struct off_loop_call *call = arg;

	call->fn(call->arg);
	return NULL;
}

/* The caller has a loop; it stands still meanwhile. */
static inline void off_loop(void (*fn)(void *arg), void *arg)
{
	struct off_loop_call call = {.fn = fn, .arg = arg};
	pthread_t thread;

	ASSERT(loop_is_current());
	ASSERT(pthread_create(&thread, NULL, off_loop_main, &call) == 0);
	ASSERT(pthread_join(thread, NULL) == 0);
}
