#pragma once

/*
 * view - the shape of answers
 *
 * Purpose: from rows and results to JSON; the only place where output is given its form.
 * Owns:    nothing: the caller has what is returned.
 * Thread:  loop.
 * Uses:    base, api, store, sandbox, image, hv.h.
 */

#include <event2/buffer.h>

#include "base/json.h"
#include "hv/hv.h"
#include "image/image.h"
#include "sandbox/sandbox.h"
#include "sandbox/strays.h"
#include "store/store_account.h"
#include "store/store_key.h"
#include "store/store_sandbox.h"

void view_set(json_object *obj, const char *key, json_object *value);    /* takes @value */
void view_set_text(json_object *obj, const char *key, const char *text); /* NULL: null */
void view_set_int(json_object *obj, const char *key, int64_t number);
void view_set_bool(json_object *obj, const char *key, bool is_true);
void view_set_time(json_object *obj, const char *key, int64_t wall_ms);
/* Of a record, where 0 says that it hasn't been yet: null. */
void view_set_moment(json_object *obj, const char *key, int64_t wall_ms);
/* Bytes that needn't be UTF-8: @key has the text, with U+FFFD where need be, and only then
 * KEY_base64 has the very bytes. */
void view_set_bytes(json_object *obj, const char *key, const char *bytes, size_t len);

/* As text: what isn't UTF-8 becomes U+FFFD. */
json_object *view_text(const char *bytes, size_t len);
json_object *view_base64(const char *bytes, size_t len);

/* @code may be NULL. The text of ERR_INTERNAL isn't shown. */
json_object *view_error(const struct err *err, const char *code, const char *request_id);

json_object *view_sandbox(const struct store_sandbox *row, bool has_account);
/* What a time-out is called, as timeout(1) has it. */
#define VIEW_EXIT_CODE_TIMED_OUT 124
/* How a command ended, with its outputs. */
json_object *view_exec(const struct sandbox_exec_result *result);
/* The same without them: they were streamed. */
json_object *view_exec_end(const struct sandbox_exec_result *result);
json_object *view_exec_record(const struct store_exec *row);
/* @dropped: bytes that were asked for, and aren't there any more. */
struct output_piece;
json_object *view_output(const struct store_exec *row, const struct output_piece *piece,
	uint64_t dropped, bool is_end);
/* How a command ended, by its record. */
json_object *view_exec_exit(const struct store_exec *row);
/* An entry of the directory @dir, which is as the caller wrote it. */
json_object *view_entry(const char *dir, size_t dir_len, const struct guest_entry *entry);
/* Drains @content. */
json_object *view_file(const char *path, size_t path_len, const struct guest_file_info *info,
	struct evbuffer *content);
json_object *view_account(const struct store_account *account);
json_object *view_key(const struct store_key *key);
json_object *view_image(const struct image_status *image);
/* The answer of `strays`: also what paddockd prints when it looks without a daemon. */
json_object *view_strays(const struct strays_report *report);
json_object *view_hypervisor(const struct hv_info *info);
