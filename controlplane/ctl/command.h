#pragma once

/*
 * command - what a guest's command wrote, and how it ended
 *
 * Purpose: what the verbs share that show a command: its event stream becomes stdout and stderr, as
 *          it comes, and its end becomes our exit status.
 * Owns:    the event under way and the last one that told the end.
 * Thread:  one.
 * Errors:  printed.
 * Uses:    base, client.
 */

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "client/sse.h"

/* Our exit status for @answer, which has the fields of a command's end. Says what ended it where
 * the status alone doesn't: its time, or that there is no result. */
int command_status(json_object *answer);

/* The output @name of an answer or event, whose bytes are in @base64_name where they aren't text.
 * 0, or -1 after a message. */
int command_write_output(json_object *answer, const char *name, const char *base64_name, int fd);

struct command_stream {
	struct sse sse;
	char id[80];       /* of the command; "" before its start is known */
	char offset[32];   /* where a reader would go on; "" where the stream doesn't tell */
	json_object *exit; /* how it ended; NULL: it isn't known */
	bool has_failed;   /* what went wrong was told */
	/* Once the command runs; NULL: nobody cares. */
	void (*on_start)(void *arg);
	void *arg;
};

void command_stream_init(struct command_stream *stream);
void command_stream_fini(struct command_stream *stream);
#define _cleanup_command_stream_ _cleanup_(command_stream_fini)
/* A rest_write_fn: the next bytes. Has enough once the end is known. */
int command_stream_take(void *arg, const void *data, size_t len);
