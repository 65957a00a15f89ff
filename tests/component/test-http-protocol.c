#include "tests/lib/http_check.h"
#include "tests/lib/http_fixture.h"

#include <dirent.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "http/server_priv.h"

/*
 * What the listener makes of bytes that no decent client sends. Each row is what goes over the
 * socket, byte for byte, and what must come of it: the statuses of all answers in order, type and
 * words of the last one, and whether the connection lives on.
 */

#define BODY_BYTES (1u << 20)
#ifndef PATIENCE_MS
#define PATIENCE_MS 20000
#endif

/* $KEY becomes the key, $FILL{C,N} N times the character C. */
#define HOST   "Host: localhost\r\n"
#define AUTH   HOST "Authorization: Bearer $KEY\r\n"
#define JSON   "Content-Type: application/json\r\n"
#define GET    "GET /healthz HTTP/1.1\r\n"
#define POST   "POST /v1/sandboxes HTTP/1.1\r\n" AUTH JSON
#define WAIT   "{\"wait\":1}" /* 10 bytes; refused by the name of the field, so nothing is made */
#define LEN    "Content-Length: 10\r\n"
#define SECOND GET HOST "\r\n" /* what a smuggler wants to have answered */

enum after {
	LIVES,  /* the connection takes another request */
	CLOSES, /* it ends with the answer */
	SILENT, /* it ends without one */
};

struct row {
	const char *name;
	const char *bytes;
	size_t len;
	const char *statuses;
	const char *type; /* of the last answer: "ok" is a success; NULL: there is none */
	const char *says;
	enum after after;
	bool is_head;
	bool is_cut; /* the client's side ends here */
};

#define ROW(name, bytes, ...)                                                                      \
	{                                                                                          \
		name, bytes, sizeof(bytes) - 1, __VA_ARGS__                                        \
	}
#define BAD "invalid_request"

static const struct row rows[] = {
	/* ---- the request line ---- */
	ROW("plain", GET HOST "\r\n", "200", "ok", NULL, LIVES),
	ROW("HTTP/1.0", "GET /healthz HTTP/1.0\r\n" HOST "\r\n", "200", "ok", NULL, CLOSES),
	ROW("HTTP/1.0 that stays",
		"GET /healthz HTTP/1.0\r\n" HOST "Connection: keep-alive\r\n\r\n", "200", "ok",
		NULL, LIVES),
	ROW("HTTP/0.9", "GET /healthz\r\n\r\n", "400", BAD, "one blank", CLOSES),
	ROW("HTTP/2.0", "GET /healthz HTTP/2.0\r\n" HOST "\r\n", "400", BAD, "version", CLOSES),
	ROW("HTTP/9.9", "GET /healthz HTTP/9.9\r\n" HOST "\r\n", "400", BAD, "version", CLOSES),
	ROW("a version in lower case", "GET /healthz http/1.1\r\n" HOST "\r\n", "400", BAD,
		"version", CLOSES),
	ROW("a version and more", "GET /healthz HTTP/1.1x\r\n" HOST "\r\n", "400", BAD, "version",
		CLOSES),
	ROW("an empty line first", "\r\n" GET HOST "\r\n", "400", BAD, "one blank", CLOSES),
	ROW("two blanks", "GET  /healthz HTTP/1.1\r\n" HOST "\r\n", "400", BAD, "one blank",
		CLOSES),
	ROW("a blank in the path", "GET /healthz /x HTTP/1.1\r\n" HOST "\r\n", "400", BAD,
		"one blank", CLOSES),
	ROW("a method in lower case", "get /healthz HTTP/1.1\r\n" HOST "\r\n", "501", BAD, "method",
		CLOSES),
	ROW("an unknown method", "BREW /healthz HTTP/1.1\r\n" HOST "\r\n", "501", BAD, "method",
		CLOSES),
	ROW("TRACE", "TRACE /healthz HTTP/1.1\r\n" HOST "\r\n", "501", BAD, "method", CLOSES),
	ROW("CONNECT", "CONNECT localhost:80 HTTP/1.1\r\n" HOST "\r\n" SECOND, "400", BAD,
		"CONNECT", CLOSES),
	ROW("CONNECT to a path", "CONNECT /healthz HTTP/1.1\r\n" HOST "\r\n" SECOND, "400", BAD,
		"CONNECT", CLOSES),
	ROW("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400", BAD,
		"control character", CLOSES),
	ROW("HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400", BAD, "version", CLOSES),
	ROW("a control character in the path", "GET /healthz\x0b HTTP/1.1\r\n" HOST "\r\n", "400",
		BAD, "control character", CLOSES),
	ROW("bytes beyond ASCII in the path", "GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n", "400", BAD,
		"must be ASCII", CLOSES),
	ROW("a long path", "GET /v1/sandboxes/$FILL{a,8000} HTTP/1.1\r\n" AUTH "\r\n", "400", BAD,
		"\"id\" in the path must have at most", LIVES),
	ROW("a path over the limit", "GET /$FILL{a,40000} HTTP/1.1\r\n" AUTH "\r\n", "400", BAD,
		"longer than may be", CLOSES),

	/* ---- methods ---- */
	ROW("OPTIONS", "OPTIONS /v1/sandboxes HTTP/1.1\r\n" AUTH "\r\n", "405", BAD,
		"this path takes POST, GET, HEAD", LIVES),
	ROW("OPTIONS *", "OPTIONS * HTTP/1.1\r\n" AUTH "\r\n", "400", BAD, "must be a path", LIVES),
	ROW("PATCH", "PATCH /v1/sandboxes HTTP/1.1\r\n" AUTH JSON LEN "\r\n" WAIT, "405", BAD,
		"this path takes", LIVES),
	ROW("PUT where there is none", "PUT /v1/sandboxes HTTP/1.1\r\n" AUTH JSON LEN "\r\n" WAIT,
		"405", BAD, "this path takes", LIVES),
	ROW("HEAD", "HEAD /v1/service HTTP/1.1\r\n" HOST "\r\n", "200", "ok", NULL, LIVES, true),
	ROW("HEAD of nothing", "HEAD /v1/nothing HTTP/1.1\r\n" HOST "\r\n", "404", "ok", NULL,
		LIVES, true),
	ROW("another method in a header",
		"GET /v1/sandboxes HTTP/1.1\r\n" AUTH "X-HTTP-Method-Override: DELETE\r\n\r\n",
		"200", "ok", NULL, LIVES),

	/* ---- hosts ---- */
	ROW("no Host", GET "\r\n", "400", BAD, "Host", LIVES),
	ROW("two Hosts", GET HOST HOST "\r\n", "400", BAD, "Host is given twice", CLOSES),
	ROW("another Host", GET "Host: evil.example\r\n\r\n", "403", "forbidden", "Host", LIVES),
	ROW("a Host with a user", GET "Host: localhost@evil.example\r\n\r\n", "403", "forbidden",
		"Host", LIVES),
	ROW("an empty Host", GET "Host:\r\n\r\n", "403", "forbidden", "Host", LIVES),
	ROW("another Origin", GET HOST "Origin: https://evil.example\r\n\r\n", "403", "forbidden",
		"Origin", LIVES),
	ROW("a whole URL", "GET http://localhost/healthz HTTP/1.1\r\n" HOST "\r\n", "200", "ok",
		NULL, LIVES),
	ROW("a proxy's whole URL",
		"GET http://localhost/healthz HTTP/1.1\r\n" HOST
		"Proxy-Connection: keep-alive\r\n\r\n" SECOND,
		"200 200", "ok", NULL, LIVES),
	ROW("a whole URL elsewhere", "GET http://evil.example/healthz HTTP/1.1\r\n" HOST "\r\n",
		"403", "forbidden", "Host", LIVES),
	ROW("a whole URL, another Host",
		"GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403",
		"forbidden", "Host", LIVES),
	ROW("a URL of another kind", "GET file:///etc/passwd HTTP/1.1\r\n" HOST "\r\n", "400", BAD,
		"must be a path", LIVES),

	/* ---- paths ---- */
	ROW("dots", "GET /v1/../v1/sandboxes HTTP/1.1\r\n" AUTH "\r\n", "404", "not_found", NULL,
		LIVES),
	ROW("dots as an id", "GET /v1/sandboxes/.. HTTP/1.1\r\n" AUTH "\r\n", "400", BAD, "\"id\"",
		LIVES),
	ROW("encoded dots as an id",
		"GET /v1/sandboxes/%2e%2e/files?path=x HTTP/1.1\r\n" AUTH "\r\n", "400", BAD,
		"\"id\"", LIVES),
	ROW("an encoded slash in an id", "DELETE /v1/sandboxes/a%2fb HTTP/1.1\r\n" AUTH "\r\n",
		"400", BAD, "\"id\"", LIVES),
	ROW("an encoded NUL in an id", "GET /v1/sandboxes/a%00 HTTP/1.1\r\n" AUTH "\r\n", "400",
		BAD, "\"id\"", LIVES),
	ROW("an escape that is none", "GET /v1/sandboxes/%zz HTTP/1.1\r\n" AUTH "\r\n", "400", BAD,
		"\"id\"", LIVES),
	ROW("an encoded letter in a route", "GET /%68ealthz HTTP/1.1\r\n" HOST "\r\n", "404",
		"not_found", NULL, LIVES),
	ROW("slashes before the path", "GET //v1/service HTTP/1.1\r\n" HOST "\r\n", "200", "ok",
		NULL, LIVES),
	ROW("slashes within the path", "GET /v1/sandboxes//files HTTP/1.1\r\n" AUTH "\r\n", "404",
		"not_found", NULL, LIVES),
	ROW("a backslash", "GET /v1\\sandboxes HTTP/1.1\r\n" AUTH "\r\n", "404", "not_found", NULL,
		LIVES),
	ROW("a path parameter", "GET /healthz;x=1 HTTP/1.1\r\n" HOST "\r\n", "404", "not_found",
		NULL, LIVES),
	ROW("a fragment", "GET /healthz#x HTTP/1.1\r\n" HOST "\r\n", "400", BAD, "must be a path",
		LIVES),
	ROW("an unknown parameter", "GET /healthz?x=1 HTTP/1.1\r\n" HOST "\r\n", "400", BAD,
		"\"x\"", LIVES),
	ROW("administration on TCP", "GET /v1/admin/keys HTTP/1.1\r\n" AUTH "\r\n", "404",
		"not_found", NULL, LIVES),

	/* ---- headers ---- */
	ROW("a folded header", GET HOST "X-A: b\r\n c\r\n\r\n", "400", BAD, "second line", CLOSES),
	ROW("a folded first header", GET " X-A: b\r\n" HOST "\r\n", "400", BAD, "second line",
		CLOSES),
	ROW("lines that end with LF", "GET /healthz HTTP/1.1\nHost: localhost\n\n", "400", BAD,
		"LF alone", CLOSES),
	ROW("one line that ends with LF", GET "X-A: b\n" HOST "\r\n", "400", BAD, "LF alone",
		CLOSES),
	ROW("a bare CR in a value", GET HOST "X-A: b\rX-B: c\r\n\r\n", "400", BAD, "CR without LF",
		CLOSES),
	ROW("a bare CR at an end", GET HOST "X-A: b\r\r\n\r\n", "400", BAD, "CR without LF",
		CLOSES),
	ROW("a NUL in a value", GET HOST "X-A: b\0c\r\n\r\n", "400", BAD, "control character",
		CLOSES),
	ROW("a NUL in a Host", GET "Host: localhost\0.evil\r\n\r\n", "400", BAD,
		"control character", CLOSES),
	ROW("a NUL for the last line", GET HOST "\0\r\n" LEN "\r\n" WAIT SECOND, "400", BAD,
		"control character", CLOSES),
	ROW("a blank before the colon", POST "Content-Length : 10\r\n\r\n" WAIT SECOND, "400", BAD,
		"name", CLOSES),
	ROW("a header without a colon", GET HOST "X-A\r\n\r\n", "400", BAD, "no colon", CLOSES),
	ROW("a header without a name", GET HOST ": b\r\n\r\n", "400", BAD, "name", CLOSES),
	ROW("a name with odd characters", GET HOST "X(A): b\r\n\r\n", "400", BAD, "name", CLOSES),
	ROW("a long header", GET HOST "X-A: $FILL{a,40000}\r\n\r\n", "400", BAD,
		"longer than may be", CLOSES),
	ROW("many headers", GET HOST "$FILL{h,1000}\r\n", "200", "ok", NULL, LIVES),
	ROW("more headers than may be", GET HOST "$FILL{h,40000}\r\n", "400", BAD, "more headers",
		CLOSES),
	ROW("a flood of headers", GET HOST "$FILL{h,80000}\r\n", "400", BAD, "more headers",
		CLOSES),
	ROW("a flood that doesn't end", GET HOST "X-A: $FILL{a,200000}", "400", BAD,
		"longer than may be", CLOSES),
	ROW("two keys", "GET /v1/sandboxes HTTP/1.1\r\n" AUTH "Authorization: Bearer x\r\n\r\n",
		"400", BAD, "Authorization is given twice", CLOSES),
	ROW("a key of another scheme",
		"GET /v1/sandboxes HTTP/1.1\r\n" HOST "Authorization: Basic YTpi\r\n\r\n", "401",
		"unauthenticated", NULL, LIVES),
	ROW("no key", "GET /v1/sandboxes HTTP/1.1\r\n" HOST "\r\n", "401", "unauthenticated", NULL,
		LIVES),
	ROW("an upgrade", GET HOST "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", "200", "ok",
		NULL, LIVES),
	ROW("a close that is asked for", GET HOST "Connection: close\r\n\r\n" SECOND, "200", "ok",
		NULL, CLOSES),

	/* ---- lengths ---- */
	ROW("a body", POST LEN "\r\n" WAIT, "400", BAD, "\"wait\"", LIVES),
	ROW("two lengths that agree", POST LEN LEN "\r\n" WAIT SECOND, "400", BAD,
		"Content-Length is given twice", CLOSES),
	ROW("two lengths, short first", POST "Content-Length: 0\r\n" LEN "\r\n" WAIT SECOND, "400",
		BAD, "Content-Length is given twice", CLOSES),
	ROW("two lengths, long first", POST LEN "Content-Length: 0\r\n\r\n" WAIT SECOND, "400", BAD,
		"Content-Length is given twice", CLOSES),
	ROW("a length and chunks", POST LEN "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" SECOND,
		"400", BAD, "exclude each other", CLOSES),
	ROW("chunks and a length", POST "Transfer-Encoding: chunked\r\n" LEN "\r\n0\r\n\r\n" SECOND,
		"400", BAD, "exclude each other", CLOSES),
	ROW("a length with a sign", POST "Content-Length: +10\r\n\r\n" WAIT SECOND, "400", BAD,
		"Content-Length must", CLOSES),
	ROW("a list of lengths", POST "Content-Length: 10, 10\r\n\r\n" WAIT SECOND, "400", BAD,
		"Content-Length must", CLOSES),
	ROW("a hexadecimal length", POST "Content-Length: 0xa\r\n\r\n" WAIT SECOND, "400", BAD,
		"Content-Length must", CLOSES),
	ROW("a negative length", POST "Content-Length: -1\r\n\r\n" WAIT SECOND, "400", BAD,
		"Content-Length must", CLOSES),
	ROW("an empty length", POST "Content-Length:\r\n\r\n" WAIT SECOND, "400", BAD,
		"Content-Length must", CLOSES),
	ROW("a body with GET", GET HOST LEN "\r\n" WAIT SECOND, "400", BAD, "takes no body",
		CLOSES),
	ROW("chunks with GET", GET HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" SECOND, "400",
		BAD, "takes no body", CLOSES),
	ROW("a body with DELETE", "DELETE /v1/sandboxes/x HTTP/1.1\r\n" AUTH LEN "\r\n" WAIT SECOND,
		"400", BAD, "takes no body", CLOSES),
	ROW("a request as the body of another", GET HOST "Content-Length: 42\r\n\r\n" SECOND, "400",
		BAD, "takes no body", CLOSES),

	/* ---- chunks ---- */
	ROW("chunks", POST "Transfer-Encoding: chunked\r\n\r\na\r\n" WAIT "\r\n0\r\n\r\n" SECOND,
		"400 200", "ok", NULL, LIVES),
	ROW("an unknown coding", POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" SECOND,
		"400", BAD, "must be chunked", CLOSES),
	ROW("a coding that looks like one",
		POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" SECOND, "400", BAD,
		"must be chunked", CLOSES),
	ROW("identity", POST "Transfer-Encoding: identity\r\n\r\n" SECOND, "400", BAD,
		"must be chunked", CLOSES),
	ROW("a coding after a tab", POST "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n" SECOND,
		"400", BAD, "must be chunked", CLOSES),
	ROW("a folded coding", POST "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" SECOND, "400",
		BAD, "second line", CLOSES),
	ROW("a coding with a blank before the colon",
		POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" SECOND, "400", BAD, "name",
		CLOSES),
	ROW("a chunk extension",
		POST "Transfer-Encoding: chunked\r\n\r\na;x=y\r\n" WAIT "\r\n0\r\n\r\n" SECOND,
		"400 200", "ok", NULL, LIVES),
	ROW("a chunk size that is none",
		POST "Transfer-Encoding: chunked\r\n\r\nxyz\r\n" WAIT "\r\n0\r\n\r\n" SECOND, "400",
		BAD, "hexadecimal", CLOSES),
	ROW("a negative chunk",
		POST "Transfer-Encoding: chunked\r\n\r\n-1\r\n" WAIT "\r\n0\r\n\r\n" SECOND, "400",
		BAD, "hexadecimal", CLOSES),
	ROW("a chunk size with 0x",
		POST "Transfer-Encoding: chunked\r\n\r\n0xa\r\n" WAIT "\r\n0\r\n\r\n" SECOND, "400",
		BAD, "hexadecimal", CLOSES),
	ROW("a chunk without its end",
		POST "Transfer-Encoding: chunked\r\n\r\na\r\n" WAIT "0\r\n\r\n" SECOND, "400", BAD,
		"where its size says", CLOSES),
	ROW("a trailer that is a length",
		POST "Transfer-Encoding: chunked\r\n\r\na\r\n" WAIT "\r\n0\r\n" LEN "\r\n" SECOND,
		"400 200", "ok", NULL, LIVES),
	ROW("a trailer that is a key",
		"POST /v1/sandboxes HTTP/1.1\r\n" HOST JSON
		"Transfer-Encoding: chunked\r\n\r\na\r\n" WAIT
		"\r\n0\r\nAuthorization: Bearer $KEY\r\n\r\n" SECOND,
		"401 200", "ok", NULL, LIVES),

	/* ---- bodies ---- */
	ROW("no content type", "POST /v1/sandboxes HTTP/1.1\r\n" AUTH LEN "\r\n" WAIT, "400", BAD,
		"Content-Type", LIVES),
	ROW("another content type",
		"POST /v1/sandboxes HTTP/1.1\r\n" AUTH "Content-Type: text/plain\r\n" LEN
		"\r\n" WAIT,
		"400", BAD, "Content-Type", LIVES),
	ROW("a form",
		"POST /v1/sandboxes HTTP/1.1\r\n" AUTH
		"Content-Type: application/x-www-form-urlencoded\r\n" LEN "\r\nname=abcde",
		"400", BAD, "Content-Type", LIVES),
	ROW("a type that starts like one",
		"POST /v1/sandboxes HTTP/1.1\r\n" AUTH "Content-Type: application/jsonx\r\n" LEN
		"\r\n" WAIT,
		"400", BAD, "Content-Type", LIVES),
	ROW("a compressed body", POST "Content-Encoding: gzip\r\n" LEN "\r\n" WAIT, "400", BAD,
		"Content-Encoding", LIVES),
	ROW("a type with a charset",
		"POST /v1/sandboxes HTTP/1.1\r\n" AUTH
		"Content-Type: Application/JSON; charset=utf-8\r\n" LEN "\r\n" WAIT,
		"400", BAD, "\"wait\"", LIVES),
	ROW("a body that is no JSON", POST LEN "\r\n0123456789", "400", BAD, "JSON", LIVES),
	ROW("a deep body", POST "Content-Length: 20000\r\n\r\n$FILL{[,20000}", "400", BAD,
		"nested more than", LIVES),
	ROW("a body over the limit", POST "Content-Length: 2000000\r\n\r\n$FILL{a,2000000}", "413",
		"too_large", "at most 1048576 bytes", CLOSES),
	ROW("chunks over the limit",
		POST "Transfer-Encoding: chunked\r\n\r\n1e8480\r\n$FILL{a,2000000}", "413",
		"too_large", "at most 1048576 bytes", CLOSES),
	ROW("100-continue with the body", POST "Expect: 100-continue\r\n" LEN "\r\n" WAIT, "400",
		BAD, "\"wait\"", LIVES),
	ROW("another expectation", POST "Expect: 200-ok\r\n" LEN "\r\n" WAIT, "417", BAD, "Expect",
		CLOSES),

	/* ---- several, and parts ---- */
	ROW("pipelined after an error", POST LEN "\r\n" WAIT SECOND, "400 200", "ok", NULL, LIVES),
	ROW("pipelined after a missing path", "GET /v1/x HTTP/1.1\r\n" HOST "\r\n" SECOND SECOND,
		"404 200 200", "ok", NULL, LIVES),
	ROW("an odd head behind a good one", SECOND GET HOST "X-A: b\r\n c\r\n\r\n" SECOND,
		"200 400", BAD, "second line", CLOSES),
	ROW("rubbish behind a good one", SECOND "rubbish\r\n\r\n", "200 400", BAD, "one blank",
		CLOSES),
	ROW("nothing", "", "", NULL, NULL, SILENT, false, true),
	ROW("half a request line", "GET /heal", "", NULL, NULL, SILENT, false, true),
	ROW("half a head", GET "Host: loc", "", NULL, NULL, SILENT, false, true),
	ROW("half a body", POST LEN "\r\n{\"wa", "", NULL, NULL, SILENT, false, true),
	ROW("half a chunk", POST "Transfer-Encoding: chunked\r\n\r\na\r\n{\"wa", "", NULL, NULL,
		SILENT, false, true),
	ROW("chunks without the last", POST "Transfer-Encoding: chunked\r\n\r\na\r\n" WAIT "\r\n",
		"", NULL, NULL, SILENT, false, true),
};

static int set_up(void **state)
{
	const struct http_config config = {.body_bytes = BODY_BYTES};

	(void)state;
	h = http_world_new(&config);
	return 0;
}

/* ---- bytes ---- */

static void fill(struct evbuffer *out, char c, size_t count)
{
	_cleanup_free_ char *bytes = xcalloc(count + 1, 1);

	if (c == 'h') {
		for (size_t i = 0; i < count / 5; i++) {
			evbuffer_add(out, "a: b\r\n", 6);
		}
		return;
	}
	memset(bytes, c, count);
	evbuffer_add(out, bytes, count);
}

static struct evbuffer *bytes_of(const struct row *row)
{
	struct evbuffer *out = evbuffer_new();
	const char *end = row->bytes + row->len;

	for (const char *at = row->bytes; at < end;) {
		char c;
		size_t count;
		int used = 0;

		if (strncmp(at, "$KEY", 4) == 0) {
			evbuffer_add(out, h->key, strlen(h->key));
			at += 4;
		} else if (sscanf(at, "$FILL{%c,%zu}%n", &c, &count, &used) == 2 && used > 0) {
			fill(out, c, count);
			at += used;
		} else {
			evbuffer_add(out, at++, 1);
		}
	}
	return out;
}

/* ---- one row ---- */

static size_t failed;

static void fail_row(const struct row *row, const char *why, const struct answer *a)
{
	failed++;
	print_error("%s: %s: %s%.300s\n", row->name, why, a ? a->headers : "", a ? a->body : "");
}

static bool has_head(struct client *c)
{
	client_poll(c);
	return evbuffer_search(c->in, "\r\n\r\n", 4, NULL).pos >= 0;
}

/* NULL: none came. */
static struct answer *next_answer(struct client *c, bool is_head)
{
	uint64_t until = real_ms() + PATIENCE_MS;

	while (!has_head(c) && !c->is_eof && real_ms() < until) {
		world_turn(h->w);
	}
	return has_head(c) ? client_answer(c, is_head) : NULL;
}

static bool wait_end(struct client *c)
{
	uint64_t until = real_ms() + PATIENCE_MS;

	while (client_poll(c), !c->is_eof && real_ms() < until) {
		world_turn(h->w);
	}
	return c->is_eof;
}

static void check_last(const struct row *row, const struct answer *a)
{
	const char *problem = NULL;

	if (strcmp(row->type, "ok") != 0) {
		problem = http_check_error(a);
		if (!problem && strcmp(answer_text(a, "error.type"), row->type) != 0) {
			problem = "another type";
		}
	}
	if (!problem && row->says && !strstr(answer_text(a, "error.message"), row->says)) {
		problem = row->says;
	}
	if (problem) {
		fail_row(row, problem, a);
	}
}

static void check_end(const struct row *row, struct client *c)
{
	static const char next[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
	struct answer *a;

	if (row->after != LIVES) {
		if (!wait_end(c)) {
			fail_row(row, "the connection stays open", NULL);
		} else if (evbuffer_get_length(c->in) > 0) {
			fail_row(row, "more was answered than was asked", NULL);
		}
		return;
	}
	client_send(c, next, sizeof next - 1);
	a = next_answer(c, false);
	if (!a || a->status != 200) {
		fail_row(row, "the connection takes no other request", a);
	}
	if (a) {
		answer_free(a);
	}
}

static void try_row(const struct row *row)
{
	struct client *c = client_new(h);
	struct evbuffer *bytes = bytes_of(row);
	char statuses[64] = "";
	struct answer *last = NULL;
	size_t wanted = row->statuses[0] != '\0';

	for (const char *s = row->statuses; *s; s++) {
		wanted += *s == ' ';
	}
	client_send(c, evbuffer_pullup(bytes, -1), evbuffer_get_length(bytes));
	if (row->is_cut) {
		shutdown(c->fd, SHUT_WR);
	}
	for (size_t i = 0; i < wanted; i++) {
		if (last) {
			answer_free(last);
		}
		last = next_answer(c, row->is_head);
		if (!last) {
			break;
		}
		size_t used = strlen(statuses);

		snprintf(statuses + used, sizeof statuses - used, "%s%d", used ? " " : "",
			last->status);
	}
	if (strcmp(statuses, row->statuses) != 0) {
		fail_row(row, "other statuses", last);
	} else {
		if (last) {
			check_last(row, last);
		}
		check_end(row, c);
	}
	if (last) {
		answer_free(last);
	}
	evbuffer_free(bytes);
	client_free(c);
}

/* ---- what is left ---- */

static size_t count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t count = 0;

	assert_non_null(dir);
	while (readdir(dir)) {
		count++;
	}
	closedir(dir);
	return count;
}

static void on_nothing(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
}

/* libevent keeps some bytes for each number of a descriptor that it has ever watched; which numbers
 * are the server's and which are the clients' is chance. */
static void have_all_watched(void)
{
	int fds[32];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_true(fds[i] >= 0);
		struct event *event = event_new(
			loop_base(h->w->loop), fds[i], EV_READ, on_nothing, NULL);

		assert_int_equal(event_add(event, NULL), 0);
		event_free(event);
	}
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		close(fds[i]);
	}
}

static void try_all(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		try_row(&rows[i]);
	}
	WORLD_UNTIL(h->w, TAILQ_EMPTY(&h->server->conns));
	world_run(h->w, 50);
}

static void test_odd_bytes_are_answered_as_the_table_says(void **state)
{
	(void)state;
	assert_true(ARRAY_SIZE(rows) >= 40);
	failed = 0;
	try_all();
	assert_int_equal(failed, 0);
	assert_int_equal(http_get(h, NULL, "/healthz")->status, 200);
	assert_int_equal(sandboxes_count(h->w->all), 0);
}

static void test_nothing_is_left_of_them(void **state)
{
	(void)state;
	failed = 0;
	mallopt(M_MXFAST, 0);
	have_all_watched();
	try_all();
	size_t descriptors = count_descriptors();
	size_t bytes = mallinfo2().uordblks;

	for (int i = 0; i < 3; i++) {
		try_all();
	}
	assert_int_equal(count_descriptors(), descriptors);
	assert_int_equal(mallinfo2().uordblks, bytes);
	assert_int_equal(failed, 0);
}

/* What lies in the allocator's caches would count as used. */
static void without_caches(char *argv[])
{
	if (!getenv("GLIBC_TUNABLES")) {
		setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
		execv("/proc/self/exe", argv);
	}
}

int main(int argc, char *argv[])
{
	(void)argc;
	without_caches(argv);
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, http_tear_down)
		T(test_odd_bytes_are_answered_as_the_table_says),
		T(test_nothing_is_left_of_them),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
