#pragma once

/*
 * api - the operation table
 *
 * Purpose: one row for each operation: name, method and path, scope, arguments with their bounds
 *          and their docs. Routes, argument checks, schemas, CLI verbs, docs/api.md and
 *          authorisation all come from it.
 * Owns:    nothing: constant data.
 * Thread:  any.
 * Uses:    base.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(ID): the order of docs/api.md. */
#define API_OPS(X)                                                                                 \
	X(SANDBOX_CREATE)                                                                          \
	X(SANDBOX_LIST)                                                                            \
	X(SANDBOX_GET)                                                                             \
	X(SANDBOX_DELETE)                                                                          \
	X(SANDBOX_EXTEND)                                                                          \
	X(SANDBOX_RESTART)                                                                         \
	X(SANDBOX_RESET)                                                                           \
	X(EXEC)                                                                                    \
	X(EXEC_LIST)                                                                               \
	X(EXEC_GET)                                                                                \
	X(EXEC_OUTPUT)                                                                             \
	X(EXEC_STDIN)                                                                              \
	X(EXEC_KILL)                                                                               \
	X(PTY)                                                                                     \
	X(FILE_READ)                                                                               \
	X(FILE_WRITE)                                                                              \
	X(SERVICE_INFO)                                                                            \
	X(HEALTHZ)                                                                                 \
	X(READYZ)                                                                                  \
	X(OPENAPI)                                                                                 \
	X(ACCOUNT_CREATE)                                                                          \
	X(ACCOUNT_LIST)                                                                            \
	X(KEY_CREATE)                                                                              \
	X(KEY_LIST)                                                                                \
	X(KEY_REVOKE)                                                                              \
	X(IMAGE_LIST)                                                                              \
	X(DOCTOR)                                                                                  \
	X(STRAYS)                                                                                  \
	X(STATUS)

enum api_op {
#define X(id) API_##id,
	API_OPS(X)
#undef X
		API_OP_MAX
};

enum api_method { API_GET, API_POST, API_PUT, API_DELETE, API_METHOD_MAX };
const char *api_method_name(enum api_method method); /* "GET" */

/* What a caller must hold. READ and USE are both in a user's key; they tell clients what changes
 * something. */
enum api_scope {
	API_SCOPE_ANONYMOUS, /* no key needed; one that is given isn't looked at */
	API_SCOPE_READ,
	API_SCOPE_USE,
	API_SCOPE_ADMIN,
};
const char *api_scope_name(enum api_scope scope); /* "read" */

enum api_flag {
	API_ADMIN_SOCKET = 1 << 0, /* a route of the admin socket alone; elsewhere it is unknown */
	API_RAW_BODY = 1 << 1,     /* application/octet-stream is the body itself; arguments are in
				      the query then */
	API_RAW_ANSWER = 1 << 2,   /* answers application/octet-stream where that is accepted */
	API_SANDBOX = 1 << 3,      /* {id} names a sandbox, by id or by name */
	API_IDEMPOTENCY_KEY = 1 << 4, /* takes the header Idempotency-Key */
	API_EVENTS = 1 << 5,          /* answers text/event-stream where that is accepted */
	API_SOCKET = 1 << 6,          /* a WebSocket, .subprotocol, and nothing else */
};

enum api_type {
	API_STRING,
	API_INT,
	API_BOOL,
	API_ENUM,    /* one of .choices */
	API_STRINGS, /* array of strings; in a query: the name repeated */
	API_MAP,     /* object of strings; in a query: NAME.KEY=value */
};

/* Where a field may come from; bits of api_field.in. A value in two places is refused. */
enum api_in {
	API_IN_PATH = 1 << 0,
	API_IN_QUERY = 1 << 1,
	API_IN_BODY = 1 << 2,
	API_IN_RAW_QUERY = 1 << 3, /* in the query of a request whose body is raw */
	API_IN_HEADER = 1 << 4,    /* .header; a value in query or body goes before it */
};

enum api_text {
	API_TEXT_NO_NUL = 0, /* UTF-8 without NUL: all that becomes a C string */
	API_TEXT_NAME,       /* name_is_valid() */
	API_TEXT_REF,        /* an id or a name: letters, digits, "_" and "-" */
	API_TEXT_LINE,       /* no control characters */
	API_TEXT_PATH,       /* any bytes but NUL: names in a guest needn't be UTF-8 */
	API_TEXT_MODE,       /* "0644" */
	API_TEXT_ANY,        /* NUL too */
	API_TEXT_BASE64,     /* base64 with padding; .max counts the decoded bytes */
	API_TEXT_ENV,        /* of a MAP: keys are names of environment variables */
};

struct api_field {
	const char *name;
	enum api_type type;
	unsigned in;
	bool is_required;
	bool is_nullable; /* null in a body is as good as leaving it out */
	enum api_text text;
	int64_t min; /* INT: the value; STRING: bytes; STRINGS, MAP: members */
	int64_t max;
	int64_t item_max;           /* STRINGS, MAP: bytes of each value */
	const char *const *choices; /* ENUM; NULL-terminated */
	const char *default_text;   /* as in a query; NULL: none */
	const char *header;         /* IN_HEADER */
	const char *doc;            /* a sentence, without its full stop */
};

struct api_row {
	enum api_op op;
	const char *name; /* "sandbox.create" */
	enum api_method method;
	const char *path; /* "/v1/sandboxes/{id}" */
	enum api_scope scope;
	unsigned flags;
	int status;                     /* of success */
	const struct api_field *fields; /* the last has no name */
	const char *doc;                /* a sentence */
	const char *answer;             /* a sentence or two: what comes back */
	const char *subprotocol;        /* API_SOCKET: "paddock.pty.v1" */
};

const struct api_row *api_row(enum api_op op);
/* NULL: none. */
const struct api_row *api_row_by_name(const char *name);
const struct api_field *api_row_field(const struct api_row *row, const char *name);
/* The row has a field that a JSON body can carry. */
bool api_row_has_body(const struct api_row *row);

/* ---- bounds that more than one place needs ---- */

/* A JSON body, and a file in a JSON answer: parsing and writing it takes the loop's time. What is
 * larger goes as bytes. */
#define API_JSON_MAX_BYTES        (16 * 1024 * 1024)
#define API_TIMEOUT_MINUTES_MAX   (365 * 24 * 60) /* limits.max_lifetime is what counts */
#define API_EXEC_TIMEOUT_MS_MAX   (24 * 3600 * 1000)
#define API_EXEC_OUTPUT_MAX_BYTES (64 * 1024 * 1024)
#define API_WAIT_MS_MAX           60000 /* for a command's end or output */
#define API_TTY_SIZE_MAX          1000  /* rows, columns */
#define API_OUTPUT_LIMIT_MAX      (1024 * 1024)
#define API_COMMAND_MAX_BYTES     (256 * 1024)
#define API_ARG_MAX_BYTES         (128 * 1024 - 1) /* Linux takes no longer one */
#define API_ARGS_MAX              1024
#define API_EXEC_ENV_MAX          1024
#define API_ENV_MAX               256
#define API_ENV_VALUE_MAX_BYTES   (32 * 1024)
/* Of a sandbox's own variables, which the guest is told in one request with the operator's. */
#define API_ENV_MAX_BYTES         (128 * 1024)
#define API_METADATA_MAX          64
#define API_METADATA_MAX_BYTES    1024
#define API_PATH_MAX_BYTES        4095
#define API_CONTENT_MAX_BYTES     API_JSON_MAX_BYTES
#define API_LIST_LIMIT_MAX        1000
#define API_FILE_LIST_LIMIT_MAX   10000
#define API_IDEMPOTENCY_MAX_BYTES 255
