#include "ops/cursor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ops/digest.h"
#include "store/store.h"

/*
 * Theory of operation
 *
 * 16 hexadecimal digits of created_at, the 20 of the id, and 16 of a digest over these and over
 * what the list is of. The digest is a checksum, no signature: a cursor gives no right to anything,
 * since the account is in the query and not in here.
 */

#define TIME_DIGITS 16
#define SUM_DIGITS  16
#define TEXT_DIGITS (TIME_DIGITS + ID_RANDOM_DIGITS + SUM_DIGITS)

_Static_assert(TEXT_DIGITS + 1 == CURSOR_TEXT_BYTES, "the text has room");

/* @position: the first two parts. */
static void sum(const struct store *store, const struct store_sandbox_query *query,
	json_object *metadata, const char *position, char out[DIGEST_TEXT_BYTES])
{
	struct digest *digest = digest_new();

	digest_add_text(digest, "position", position);
	digest_add_text(digest, "instance", store_instance(store));
	digest_add_text(digest, "account", query->account);
	digest_add_text(digest, "state", query->is_live_only ? "live" : query->state);
	digest_add(digest, "metadata", metadata);
	digest_end(digest, out);
}

void cursor_write(const struct store *store, const struct store_sandbox_query *query,
	json_object *metadata, const struct store_sandbox_list *page, char out[CURSOR_TEXT_BYTES])
{
	char digest[DIGEST_TEXT_BYTES];

	ASSERT(strlen(page->last_id) == strlen(ID_SANDBOX) + ID_RANDOM_DIGITS);
	snprintf(out, CURSOR_TEXT_BYTES, "%016" PRIx64 "%s", (uint64_t)page->last_created_at_ms,
		page->last_id + strlen(ID_SANDBOX));
	sum(store, query, metadata, out, digest);
	memcpy(out + TIME_DIGITS + ID_RANDOM_DIGITS, digest, SUM_DIGITS);
	out[TEXT_DIGITS] = '\0';
}

int cursor_read(const struct store *store, const struct store_sandbox_query *query,
	json_object *metadata, const char *text, struct cursor *ret, struct err *err)
{
	char position[TIME_DIGITS + ID_RANDOM_DIGITS + 1];
	char time[TIME_DIGITS + 1];
	char digest[DIGEST_TEXT_BYTES];

	if (strlen(text) == TEXT_DIGITS && strspn(text, "0123456789abcdef") == TEXT_DIGITS) {
		snprintf(position, sizeof position, "%s", text);
		sum(store, query, metadata, position, digest);
		if (memcmp(digest, text + TIME_DIGITS + ID_RANDOM_DIGITS, SUM_DIGITS) == 0) {
			snprintf(time, sizeof time, "%s", text);
			ret->created_at_ms = (int64_t)strtoull(time, NULL, 16);
			snprintf(ret->id, sizeof ret->id, ID_SANDBOX "%s", position + TIME_DIGITS);
			return 0;
		}
	}
	return err_set(err, ERR_INVALID,
		"\"cursor\" is not one that this list gave out; it goes with the filters of the "
		"page that it came from");
}
