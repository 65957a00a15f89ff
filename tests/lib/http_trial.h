#pragma once

/*
 * http_trial - one request with one field of one operation as somebody wants it
 *
 * Purpose: everything else about the request is right, as the operation table has it.
 * Owns:    nothing: callers free what they get.
 * Thread:  loop.
 */

#include "tests/lib/http_world.h"

struct trial {
	struct http_world *h;
	const char *sandbox; /* for {id} */
	const struct api_row *row;
	const struct api_field *field; /* NULL: none; the request is right but for @member */
	enum api_in place;             /* of the field */
	const char *what;              /* for messages */
};

/*
 * Sends the request. @member: `"name":value` for a body, `name=value` for a query, a value for a
 * path, a line for a header; the @len bytes may hold NULs, in a body. "": left out.
 */
struct answer *trial_ask(const struct trial *t, const char *member, size_t len);

char *trial_repeat(char c, int64_t count);
/* Text that the field's form allows, of @count bytes as the field counts them. */
char *trial_text(const struct api_field *field, int64_t count);
/* "[…]" or "{…}" of @count strings with @item bytes each. */
char *trial_members(const struct api_field *field, int64_t count, int64_t item);
/* A good value as JSON; in a query it goes without its quotes. */
char *trial_value(const struct api_field *field);

/* ---- what must come of it: these send the request ---- */

/* Requests that were sent, and what was wrong with their answers. */
extern size_t trial_tried;
extern size_t trial_failed;

/* Counts and prints a failure, and goes on: one run tells of all that is wrong. */
void trial_fail(const struct trial *t, const struct answer *a, const char *why);
/* 400 and invalid_request; the message names the field and has @says in it (NULL: nothing). */
void trial_expect_refused(const struct trial *t, const char *member, const char *says);
void trial_expect_refused_len(
	const struct trial *t, const char *member, size_t len, const char *says);
/* Its form is fine. What it means may still be refused: a name that nothing has, a service's own
 * limit; then by its name, and never as a fault. */
void trial_expect_taken(const struct trial *t, const char *member);
