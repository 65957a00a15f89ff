#pragma once

/*
 * request - the body of a call, field by field
 *
 * Purpose: a msg_writer that grows up to PROTO_REQUEST_MAX_BYTES and knows which field was too
 *          much.
 * Owns:    the bytes until request_steal().
 * Thread:  any.
 * Errors:  ERR_TOO_LARGE or ERR_INVALID, the first one; latched, so check once: request_check().
 * Uses:    base, proto.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

struct request {
	uint8_t *buf;
	size_t size;
	size_t len;
	struct err err;
};

#define REQUEST_INIT ((struct request){.err = ERR_INIT})
void request_fini(struct request *request);
#define _cleanup_request_ _cleanup_(request_fini)

/* @field is the name that messages use. */
void request_u32(struct request *request, uint16_t tag, uint32_t value);
void request_u64(struct request *request, uint16_t tag, uint64_t value);
void request_bytes(struct request *request, uint16_t tag, const char *field, const void *data,
	size_t len, size_t max);
/* NULL: nothing. */
void request_text(
	struct request *request, uint16_t tag, const char *field, const char *text, size_t max);
/* One field for each; NULL: none. */
void request_texts(struct request *request, uint16_t tag, const char *field, char *const *texts,
	size_t max_count);
/* request_texts() whose entries must be NAME=VALUE. */
void request_env(struct request *request, char *const *env);

/* 0, or -1 with the first error. */
int request_check(const struct request *request, struct err *err);
/* The bytes, malloc'ed; NULL when there are none. */
uint8_t *request_steal(struct request *request);
