#include "http/body.h"

#include "base/macros.h"
#include "base/parse.h"

/*
 * Theory of operation. Chunks are read in the one form that RFC 9112 gives them: a size of
 * hexadecimal digits, perhaps extensions, CR LF, as many bytes, CR LF; the size 0 is the last, and
 * header lines up to an empty one may follow it. Readers that disagree about any of it see other
 * requests behind the body, so everything else is a problem.
 */

#define SIZE_DIGITS_MAX 15 /* less than 2^60 bytes */

void http_body_init(struct http_body *body, bool is_chunked, uint64_t bytes)
{
	*body = (struct http_body){
		.is_chunked = is_chunked,
		.left = is_chunked ? 0 : bytes,
		.state = is_chunked  ? HTTP_BODY_SIZE
			 : bytes > 0 ? HTTP_BODY_CONTENT
				     : HTTP_BODY_OVER,
	};
}

bool http_body_is_end(const struct http_body *body)
{
	return body->state == HTTP_BODY_OVER;
}

uint64_t http_body_content(const struct http_body *body)
{
	return body->state == HTTP_BODY_CONTENT ? body->left : 0;
}

void http_body_took(struct http_body *body, uint64_t bytes)
{
	ASSERT(body->state == HTTP_BODY_CONTENT && bytes <= body->left);
	body->left -= bytes;
	body->total_bytes += bytes;
	if (body->left == 0) {
		body->state = body->is_chunked ? HTTP_BODY_CHUNK_END : HTTP_BODY_OVER;
	}
}

/* ---- framing ---- */

static void begin_line(struct http_body *body, enum http_body_state state)
{
	body->state = state;
	body->digits = 0;
	body->line_bytes = 0;
}

/* The size's line is whole. */
static const char *end_size(struct http_body *body)
{
	if (body->digits == 0) {
		return "a chunk has no size";
	}
	begin_line(body, body->left > 0 ? HTTP_BODY_CONTENT : HTTP_BODY_TRAILER);
	return NULL;
}

static const char *take_size_byte(struct http_body *body, char c)
{
	int digit = parse_hex_digit(c);

	if (digit >= 0) {
		if (++body->digits > SIZE_DIGITS_MAX) {
			return "a chunk's size has too many digits";
		}
		body->left = body->left << 4 | (unsigned)digit;
		return NULL;
	}
	if (body->digits == 0 || (c != ';' && c != ' ' && c != '\t')) {
		return "a chunk's size must be a hexadecimal number";
	}
	body->state = HTTP_BODY_EXTENSION;
	body->extension_bytes++;
	return NULL;
}

static const char *take_text(struct http_body *body, char c)
{
	if (((unsigned char)c < 0x20 && c != '\t') || c == 0x7f) {
		return "a line between chunks has a control character";
	}
	body->line_bytes++;
	switch (body->state) {
	case HTTP_BODY_SIZE:
		return take_size_byte(body, c);
	case HTTP_BODY_EXTENSION:
		return body->line_bytes > HTTP_CHUNK_LINE_MAX_BYTES ||
				       ++body->extension_bytes > HTTP_EXTENSIONS_MAX_BYTES
			       ? "the chunks have longer extensions than may be"
			       : NULL;
	case HTTP_BODY_TRAILER:
		return ++body->trailer_bytes > HTTP_TRAILER_MAX_BYTES
			       ? "what follows the last chunk is longer than may be"
			       : NULL;
	case HTTP_BODY_CHUNK_END:
	case HTTP_BODY_CONTENT:
	case HTTP_BODY_OVER:
	default:
		return "a chunk doesn't end where its size says";
	}
}

static const char *end_line(struct http_body *body)
{
	switch (body->state) {
	case HTTP_BODY_SIZE:
	case HTTP_BODY_EXTENSION:
		return end_size(body);
	case HTTP_BODY_CHUNK_END:
		begin_line(body, HTTP_BODY_SIZE);
		return NULL;
	case HTTP_BODY_TRAILER:
	case HTTP_BODY_CONTENT:
	case HTTP_BODY_OVER:
	default:
		begin_line(body, body->line_bytes == 0 ? HTTP_BODY_OVER : HTTP_BODY_TRAILER);
		body->trailer_bytes += 2;
		return NULL;
	}
}

static const char *take_byte(struct http_body *body, char c)
{
	if (body->after_cr != (c == '\n')) {
		return "the lines between chunks must end with CR LF";
	}
	if (c == '\n') {
		body->after_cr = false;
		return end_line(body);
	}
	if (c == '\r') {
		body->after_cr = true;
		return NULL;
	}
	return take_text(body, c);
}

size_t http_body_frame(struct http_body *body, const char *bytes, size_t len)
{
	size_t i = 0;

	while (i < len && !body->problem && body->state != HTTP_BODY_CONTENT &&
		body->state != HTTP_BODY_OVER) {
		body->problem = take_byte(body, bytes[i++]);
	}
	return i;
}
