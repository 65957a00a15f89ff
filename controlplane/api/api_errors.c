#include "api/api_errors.h"

#include <string.h>

#define RETRY_S       1  /* soon */
#define RETRY_QUOTA_S 30 /* somebody has to let go of something first */

/* clang-format off */
static const struct api_error errors[] = {
	[ERR_NONE] = {"", 200, API_EXIT_OK, 0, ""},
	[ERR_INVALID] = {"invalid_request", 400, 64, 0, "the request is wrong; the message names the field and its limit"},
	[ERR_UNAUTHENTICATED] = {"unauthenticated", 401, 77, 0, "no key, or one that isn't good"},
	[ERR_CREDIT] = {"insufficient_credit", 402, 69, 0, "the account's credit is used up"},
	[ERR_FORBIDDEN] = {"forbidden", 403, 77, 0, "this key may not do that"},
	[ERR_NOT_FOUND] = {"not_found", 404, 66, 0, "there is no such thing, or it is another account's"},
	[ERR_CONFLICT] = {"conflict", 409, 73, 0, "something else is there already, or in the way"},
	[ERR_ENDED] = {"sandbox_ended", 409, 73, 0, "the sandbox is over"},
	[ERR_TOO_LARGE] = {"too_large", 413, 65, 0, "more than the service takes"},
	[ERR_QUOTA] = {"quota_exceeded", 429, 69, RETRY_QUOTA_S, "the account holds as much as it may"},
	[ERR_RATE] = {"rate_limited", 429, 75, RETRY_S, "too many requests; see Retry-After"},
	[ERR_INTERNAL] = {"internal", 500, API_EXIT_INTERNAL, 0, "a fault of the service; its log has more under the request_id"},
	[ERR_UNAVAILABLE] = {"unavailable", 503, 75, RETRY_S, "not now; try again"},
	[ERR_TIMEOUT] = {"timeout", 504, 75, 0, "something didn't answer in time"},

	/* The client left, or the service stops: whoever still reads this may try again. */
	[ERR_CANCELLED] = {"unavailable", 503, 75, RETRY_S, "not now; try again"},
	/* The guest's word is lost: all that is known is that it said no. */
	[ERR_GUEST] = {"invalid_request", 400, 64, 0, "the guest refused"},
};
/* clang-format on */

_Static_assert(sizeof errors / sizeof errors[0] == ERR_KIND_MAX, "every kind has a row");

const struct api_guest_code api_guest_codes[] = {
#define X(code, kind, doc) {code, ERR_##kind, doc},
	API_GUEST_CODES(X)
#undef X
		{NULL},
};

const struct api_error *api_error_of(enum err_kind kind)
{
	ASSERT((size_t)kind < ERR_KIND_MAX && errors[kind].type);
	return &errors[kind];
}

enum err_kind api_error_of_guest(const char *code)
{
	for (const struct api_guest_code *row = api_guest_codes; row->code; row++) {
		if (strcmp(row->code, code) == 0) {
			return row->kind;
		}
	}
	return ERR_INTERNAL;
}

enum err_kind api_error_parse(const char *type)
{
	/* CANCELLED and GUEST share their types with others and come last. */
	for (size_t kind = ERR_NONE + 1; kind < ERR_KIND_MAX; kind++) {
		if (kind != ERR_CANCELLED && kind != ERR_GUEST &&
			strcmp(errors[kind].type, type) == 0) {
			return (enum err_kind)kind;
		}
	}
	return ERR_INTERNAL;
}
