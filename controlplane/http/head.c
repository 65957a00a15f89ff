#include "http/head.h"

#include <event2/keyvalq_struct.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

/*
 * Theory of operation. evhttp reads lines as C strings that end with LF, folds continuation lines
 * and takes any name before a colon. What it makes of an odd head is therefore not what a proxy
 * before us may have made of it. http_head_scan() sees the bytes themselves and knows the one form
 * that RFC 9112 gives a head: lines of printable text that end with CR LF, a name, a colon, a
 * value. http_head_check() looks at what must agree between headers.
 */

#define LENGTH_DIGITS_MAX 18

/* ---- bytes ---- */

static bool is_name_byte(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static const char *end_line(struct http_head *head)
{
	size_t len = head->line_bytes;

	head->line_bytes = 0;
	if (++head->lines > HTTP_HEAD_LINES_MAX) {
		return "the request has more headers than may be";
	}
	if (head->state == HTTP_HEAD_NAME && len > 0) {
		return "a header has no colon";
	}
	if (head->state == HTTP_HEAD_LINE && head->blanks != 2) {
		return "the request line must be a method, a path and a version, with one blank "
		       "between them";
	}
	head->state = len == 0 ? HTTP_HEAD_OVER : HTTP_HEAD_NAME;
	return NULL;
}

static const char *take_text(struct http_head *head, unsigned char c)
{
	bool is_first = head->line_bytes++ == 0;

	if ((c < 0x20 && c != '\t') || c == 0x7f) {
		return "the head of the request has a control character";
	}
	head->blanks += head->state == HTTP_HEAD_LINE && (c == ' ' || c == '\t');
	if (head->state == HTTP_HEAD_LINE && c >= 0x80) {
		return "the request line must be ASCII; percent-encode the rest";
	}
	if (head->state != HTTP_HEAD_NAME) {
		return NULL;
	}
	if (is_first && (c == ' ' || c == '\t')) {
		return "a header goes on in a second line";
	}
	if (c == ':' && !is_first) {
		head->state = HTTP_HEAD_VALUE;
		return NULL;
	}
	return is_name_byte(c) ? NULL : "a header's name has a character that no name may have";
}

static const char *take_byte(struct http_head *head, unsigned char c)
{
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

void http_head_scan(struct http_head *head, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len && head->state != HTTP_HEAD_OVER && !head->problem; i++) {
		head->problem = take_byte(head, (unsigned char)bytes[i]);
	}
}

/* ---- headers ---- */

/* A recipient that takes the first and one that takes the last would see different requests. */
static const char *const once[] = {"Host", "Content-Length", "Transfer-Encoding", "Content-Type",
	"Authorization", "x-api-key", "Idempotency-Key", "X-File-Path", "Origin", "Expect", NULL};

static int check_once(const struct evkeyvalq *headers, struct err *err)
{
	bool seen[sizeof once / sizeof once[0]] = {false};
	const struct evkeyval *header;

	TAILQ_FOREACH (header, headers, next) {
		for (size_t i = 0; once[i]; i++) {
			if (strcasecmp(header->key, once[i]) != 0) {
				continue;
			}
			if (seen[i]) {
				return err_set(
					err, ERR_INVALID, "the header %s is given twice", once[i]);
			}
			seen[i] = true;
		}
	}
	return 0;
}

static bool is_length(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return digits > 0 && digits <= LENGTH_DIGITS_MAX && text[digits] == '\0';
}

bool http_head_is_chunked(const struct evkeyvalq *headers)
{
	return evhttp_find_header(headers, "Transfer-Encoding") != NULL;
}

int http_head_check(const struct evkeyvalq *headers, bool may_have_body, struct err *err)
{
	const char *length = evhttp_find_header(headers, "Content-Length");
	const char *coding = evhttp_find_header(headers, "Transfer-Encoding");

	if (check_once(headers, err) < 0) {
		return -1;
	}
	if (length && coding) {
		return err_set(err, ERR_INVALID,
			"Content-Length and Transfer-Encoding exclude each other");
	}
	if (coding && strcasecmp(coding, "chunked") != 0) {
		return err_set(err, ERR_INVALID, "Transfer-Encoding must be chunked");
	}
	if (length && !is_length(length)) {
		return err_set(err, ERR_INVALID, "Content-Length must be a whole number");
	}
	/* It isn't read, and what follows would be taken for the next request. */
	if (!may_have_body && (coding || (length && strspn(length, "0") != strlen(length)))) {
		return err_set(err, ERR_INVALID, "this method takes no body");
	}
	return 0;
}
