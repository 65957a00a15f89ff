#include "http/head.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/xalloc.h"

/*
 * Theory of operation. One form of a head is known, that of RFC 9112: lines of printable text that
 * end with CR LF, a method, a target and a version with one blank between them; then a name, a
 * colon and a value each; then an empty line. Each byte is looked at once, as it comes, and kept
 * in .text; the ends of parts become NULs there, so that they are C strings when the head is over.
 * Texts move while they grow, so parts are kept as offsets until then.
 */

#define LENGTH_DIGITS_MAX 18
#define TEXT_FIRST_BYTES  512
/* What a connection keeps between requests. */
#define TEXT_KEPT_BYTES 2048

void http_head_init(struct http_head *head, size_t max_bytes)
{
	head->state = HTTP_HEAD_LINE;
	head->problem = NULL;
	head->text = NULL;
	head->size = 0;
	head->max_bytes = max_bytes;
	http_head_reset(head);
}

void http_head_reset(struct http_head *head)
{
	if (head->size > TEXT_KEPT_BYTES) {
		http_head_fini(head);
	}
	head->state = HTTP_HEAD_LINE;
	head->problem = NULL;
	head->method = NULL;
	head->target = NULL;
	head->is_old = false;
	head->len = 0;
	head->taken_bytes = 0;
	head->line_start = 0;
	head->target_start = 0;
	head->blanks = 0;
	head->lines = 0;
	head->after_cr = false;
	head->header_count = 0;
}

void http_head_fini(struct http_head *head)
{
	free(head->text);
	head->text = NULL;
	head->size = 0;
}

bool http_head_is_fresh(const struct http_head *head)
{
	return head->taken_bytes == 0;
}

/* ---- bytes ---- */

static bool is_name_byte(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static void keep(struct http_head *head, char c)
{
	if (head->len == head->size) {
		head->size = MAX((size_t)TEXT_FIRST_BYTES, head->size * 2);
		head->text = xrealloc(head->text, head->size, 1);
	}
	head->text[head->len++] = c;
}

/* Cuts blanks off the end of the part that began at @start. */
static void trim(struct http_head *head, size_t start)
{
	while (head->len > start && is_blank(head->text[head->len - 1])) {
		head->len--;
	}
}

static bool is_token(const char *text)
{
	size_t len = 0;

	while (is_name_byte((unsigned char)text[len])) {
		len++;
	}
	return len > 0 && text[len] == '\0';
}

static const char odd_request_line[] =
	"the request line must be a method, a path and a version, with one blank between them";

static const char *end_request_line(struct http_head *head)
{
	if (head->blanks != 2 || head->text[head->target_start] == '\0') {
		return odd_request_line;
	}
	const char *target = head->text + head->target_start;
	const char *version = target + strlen(target) + 1;

	if (!is_token(head->text) || strlen(head->text) > HTTP_METHOD_MAX_BYTES) {
		return "the request line doesn't begin with a method";
	}
	if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) {
		return "the request's version must be HTTP/1.1 or HTTP/1.0";
	}
	head->is_old = strcmp(version, "HTTP/1.0") == 0;
	return NULL;
}

static const char *end_line(struct http_head *head)
{
	const char *problem = NULL;
	bool is_empty = head->len == head->line_start;

	if (++head->lines > HTTP_HEAD_LINES_MAX) {
		return "the request has more headers than may be";
	}
	if (head->state == HTTP_HEAD_NAME && !is_empty) {
		return "a header has no colon";
	}
	if (head->state == HTTP_HEAD_VALUE) {
		trim(head, head->headers[head->header_count - 1].value);
	}
	keep(head, '\0');
	if (head->state == HTTP_HEAD_LINE) {
		problem = end_request_line(head);
	} else if (is_empty) {
		head->state = HTTP_HEAD_OVER;
		head->method = head->text;
		head->target = head->text + head->target_start;
		return NULL;
	}
	head->state = HTTP_HEAD_NAME;
	head->line_start = head->len;
	return problem;
}

static const char *take_line_byte(struct http_head *head, char c)
{
	if ((unsigned char)c >= 0x80) {
		return "the request line must be ASCII; percent-encode the rest";
	}
	if (c == '\t') {
		return odd_request_line;
	}
	if (c != ' ') {
		keep(head, c);
		return NULL;
	}
	keep(head, '\0');
	if (++head->blanks == 1) {
		head->target_start = head->len;
	}
	return NULL;
}

static const char *take_name_byte(struct http_head *head, char c)
{
	bool is_first = head->len == head->line_start;

	if (is_first && is_blank(c)) {
		return "a header goes on in a second line";
	}
	if (c == ':' && !is_first) {
		struct http_header *header = &head->headers[head->header_count++];

		keep(head, '\0');
		header->name = (uint32_t)head->line_start;
		header->value = (uint32_t)head->len;
		head->state = HTTP_HEAD_VALUE;
		return NULL;
	}
	if (!is_name_byte((unsigned char)c)) {
		return "a header's name has a character that no name may have";
	}
	keep(head, c);
	return NULL;
}

static const char *take_value_byte(struct http_head *head, char c)
{
	/* Spaces before a value aren't part of it. A tab is: there are readers that don't skip it,
	 * so a length behind one is none. */
	if (c != ' ' || head->len > head->headers[head->header_count - 1].value) {
		keep(head, c);
	}
	return NULL;
}

static const char *take_text(struct http_head *head, char c)
{
	if (((unsigned char)c < 0x20 && c != '\t') || c == 0x7f) {
		return "the head of the request has a control character";
	}
	switch (head->state) {
	case HTTP_HEAD_LINE:
		return take_line_byte(head, c);
	case HTTP_HEAD_NAME:
		return take_name_byte(head, c);
	case HTTP_HEAD_VALUE:
	case HTTP_HEAD_OVER:
	case HTTP_HEAD_BAD:
	default:
		return take_value_byte(head, c);
	}
}

static const char *take_byte(struct http_head *head, char c)
{
	if (++head->taken_bytes > head->max_bytes) {
		return "the head of the request is longer than may be";
	}
	if (c == '\n') {
		if (!head->after_cr) {
			return "a line ends with LF alone instead of CR LF";
		}
		head->after_cr = false;
		return end_line(head);
	}
	if (head->after_cr) {
		return "the head of the request has a CR without LF";
	}
	if (c == '\r') {
		head->after_cr = true;
		return NULL;
	}
	return take_text(head, c);
}

size_t http_head_take(struct http_head *head, const char *bytes, size_t len)
{
	size_t i = 0;

	while (i < len && head->state != HTTP_HEAD_OVER && head->state != HTTP_HEAD_BAD) {
		head->problem = take_byte(head, bytes[i++]);
		if (head->problem) {
			head->state = HTTP_HEAD_BAD;
		}
	}
	return i;
}

/* ---- headers ---- */

static const char *name_at(const struct http_head *head, size_t i)
{
	return head->text + head->headers[i].name;
}

static const char *value_at(const struct http_head *head, size_t i)
{
	return head->text + head->headers[i].value;
}

const char *http_head_find(const struct http_head *head, const char *name)
{
	for (size_t i = 0; i < head->header_count; i++) {
		if (strcasecmp(name_at(head, i), name) == 0) {
			return value_at(head, i);
		}
	}
	return NULL;
}

static bool list_has(const char *list, const char *token)
{
	size_t token_len = strlen(token);

	while (*list) {
		list += strspn(list, ", \t");
		size_t len = strcspn(list, ",");
		size_t end = len;

		while (end > 0 && is_blank(list[end - 1])) {
			end--;
		}
		if (end == token_len && strncasecmp(list, token, end) == 0) {
			return true;
		}
		list += len;
	}
	return false;
}

bool http_head_has_token(const struct http_head *head, const char *name, const char *token)
{
	for (size_t i = 0; i < head->header_count; i++) {
		if (strcasecmp(name_at(head, i), name) == 0 && list_has(value_at(head, i), token)) {
			return true;
		}
	}
	return false;
}

/* A recipient that takes the first and one that takes the last would see different requests. */
static const char *const once[] = {"Host", "Content-Length", "Transfer-Encoding", "Content-Type",
	"Content-Encoding", "Authorization", "x-api-key", "Idempotency-Key", "X-File-Path",
	"Origin", "Expect", "Upgrade", "Sec-WebSocket-Key", "Sec-WebSocket-Version"};

static int check_once(const struct http_head *head, struct err *err)
{
	bool seen[ARRAY_SIZE(once)] = {false};

	for (size_t i = 0; i < head->header_count; i++) {
		for (size_t k = 0; k < ARRAY_SIZE(once); k++) {
			if (strcasecmp(name_at(head, i), once[k]) != 0) {
				continue;
			}
			if (seen[k]) {
				return err_set(
					err, ERR_INVALID, "the header %s is given twice", once[k]);
			}
			seen[k] = true;
		}
	}
	return 0;
}

static bool is_length(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return digits > 0 && digits <= LENGTH_DIGITS_MAX && text[digits] == '\0';
}

int http_head_length(
	const struct http_head *head, bool may_have_body, struct http_length *ret, struct err *err)
{
	const char *length = http_head_find(head, "Content-Length");
	const char *coding = http_head_find(head, "Transfer-Encoding");

	*ret = (struct http_length){.is_chunked = coding != NULL};
	if (check_once(head, err) < 0) {
		return -1;
	}
	if (length && coding) {
		return err_set(err, ERR_INVALID,
			"Content-Length and Transfer-Encoding exclude each other");
	}
	if (coding && strcasecmp(coding, "chunked") != 0) {
		return err_set(err, ERR_INVALID, "Transfer-Encoding must be chunked");
	}
	/* A proxy that speaks HTTP/1.0 doesn't know chunks. */
	if (coding && head->is_old) {
		return err_set(err, ERR_INVALID, "HTTP/1.0 has no Transfer-Encoding");
	}
	if (length && !is_length(length)) {
		return err_set(err, ERR_INVALID, "Content-Length must be a whole number");
	}
	ret->bytes = length ? strtoull(length, NULL, 10) : 0;
	if (!may_have_body && (coding || ret->bytes > 0)) {
		return err_set(err, ERR_INVALID, "this method takes no body");
	}
	return 0;
}
