#pragma once

/*
 * input - our stdin as the body of a call
 *
 * Purpose: bytes go on as they come, whatever stdin is; nothing waits for its end.
 * Owns:    nothing: stdin is the process's.
 * Thread:  one.
 * Errors:  printed.
 */

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "client/rest_client.h"

struct input {
	char first[16384]; /* what was looked at beforehand */
	size_t len;
	size_t used;
	int fd; /* -1 as long as there is some of that */
};

/* 1: there is something, or may be later; 0: it is empty; -1: it can't be read. */
int input_open(struct input *input);
/* Makes it the body of @request. */
void input_stream(struct input *input, struct rest_request *request);
/* All of it as base64, where it has at most INPUT_COLLECT_MAX bytes; else NULL after a message. */
json_object *input_collect(struct input *input);

/* In base64, and with a command beside it, it must fit into a JSON body. */
#define INPUT_COLLECT_MAX_MIB 11
#define INPUT_COLLECT_MAX     ((size_t)INPUT_COLLECT_MAX_MIB * 1024 * 1024)
