#pragma once

/*
 * cursor - where a list of sandboxes goes on
 *
 * Purpose: the position after a page's last row as text that clients hand back unread. It names a
 *          row by (created_at, id), which never change, so pages neither skip nor repeat a row
 * while others come and go, and the row itself may be gone. Thread:  loop. Errors:  ERR_INVALID:
 * damaged, made up, or given out by another list: with other filters, for another account, by
 * another instance. Uses:    base, store.
 */

#include "base/id.h"
#include "base/json.h"
#include "store/store_sandbox.h"

struct cursor {
	int64_t created_at_ms;
	char id[ID_BYTES];
};

#define CURSOR_TEXT_BYTES 53

/* @query: what it is a page of; @metadata: the object that query->metadata is the text of, or NULL.
 */
void cursor_write(const struct store *store, const struct store_sandbox_query *query,
	json_object *metadata, const struct store_sandbox_list *page, char out[CURSOR_TEXT_BYTES]);
int cursor_read(const struct store *store, const struct store_sandbox_query *query,
	json_object *metadata, const char *text, struct cursor *ret, struct err *err);
