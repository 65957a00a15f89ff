#pragma once

/*
 * msg - bodies of calls and of their answers
 *
 * Purpose: tags, status numbers, and a writer and reader for tag-length-value bodies.
 * Owns:    nothing; writer and reader borrow the caller's buffer.
 * Thread:  any.
 * Errors:  a writer that would overflow latches .overflow; a reader that meets a malformed field
 *          latches .bad. Check once at the end.
 * Uses:    limits.h.
 *
 * A field is {u16 tag, u16 zero, u32 length, value[length]}, unpadded. Numbers have exactly the
 * size their tag says. MSG_CRITICAL is no part of a tag's number: a sender sets it where ignoring
 * the field would be wrong. A receiver skips tags it doesn't know, except those with MSG_CRITICAL,
 * which it answers with STATUS_UNSUPPORTED: this is how the protocol grows without breaking older
 * guests.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

#define MSG_FIELD_HEADER_BYTES 8u
#define MSG_CRITICAL           0x8000u

/* X(number, NAME, kind): u32, u64, bytes (text is bytes without NUL). Numbers are never reused. */
#define MSG_TAGS(X)                                                                                \
	/* HELLO */                                                                                \
	X(1, VERSION, u32)                                                                         \
	X(2, FEATURES, u64)  /* bits of enum proto_feature */                                      \
	X(3, SOFTWARE, text) /* name/version of the sender */                                      \
	X(4, BOOT_ID, text)  /* guest: changes with every boot */                                  \
	X(5, IMAGE, text)    /* guest: contents of /etc/paddock-image, if there */                 \
	/* EXEC */                                                                                 \
	X(16, ARG, text)     /* repeated: argv; excludes COMMAND */                                \
	X(17, COMMAND, text) /* run by the image's shell */                                        \
	X(18, CWD, text)                                                                           \
	X(19, ENV, text) /* repeated, NAME=VALUE; also in CONFIGURE */                             \
	X(20, TIMEOUT_MS, u64)                                                                     \
	X(21, GRACE_MS, u64)                                                                       \
	X(22, OUTPUT_CAP, u64) /* bytes of stdout and stderr together; the rest is counted */      \
	X(23, EXEC_FLAGS, u32)                                                                     \
	X(24, ID, text)      /* by which later calls name the command */                           \
	X(25, SHELL, text)   /* takes COMMAND after -c */                                          \
	X(26, TAIL_CAP, u64) /* bytes beyond OUTPUT_CAP: the last of each stream that are kept */  \
	X(27, ROWS, u32)     /* of the terminal */                                                 \
	X(28, COLS, u32)                                                                           \
	/* FILE_* */                                                                               \
	X(32, PATH, bytes)                                                                         \
	X(33, MODE, u32)                                                                           \
	X(34, FILE_FLAGS, u32)                                                                     \
	X(35, OFFSET, u64) /* of a file; JOB_READ: of a job's output */                            \
	X(36, LENGTH, u64)                                                                         \
	X(37, SIZE, u64) /* PUT: bytes that will come; STARTED of GET: the file's size */          \
	X(38, MTIME_NS, u64)                                                                       \
	X(39, LIMIT, u32)                                                                          \
	/* CONFIGURE: each optional */                                                             \
	X(48, REALTIME_NS, u64) /* wall clock now, since the epoch */                              \
	X(49, ENTROPY, bytes)   /* credited to the kernel, then reseeded */                        \
	X(50, HOSTNAME, text)                                                                      \
	X(51, DEADLINE_MS, u64)    /* power off after this from now; 0: never */                   \
	X(52, CA, bytes)           /* PEM, trusted beside the image's own */                       \
	X(53, ENV_RESET, u32)      /* 1: forget earlier ENV before taking these */                 \
	X(54, CLOCK_SHIFT_NS, u64) /* moves the wall clock; two's complement */                    \
	/* STARTED */                                                                              \
	X(64, PID, u32)                                                                            \
	/* END, ABORT */                                                                           \
	X(80, STATUS, u32)                                                                         \
	X(81, ERRNO, u32)                                                                          \
	X(82, TEXT, text)                                                                          \
	X(83, EXIT_CODE, u32) /* 128+signal where it died of one */                                \
	X(84, SIGNAL, u32)    /* that it died of; call SIGNAL: to send */                          \
	X(85, END_FLAGS, u32)                                                                      \
	X(86, OUT_BYTES, u64) /* true count, dropped ones included */                              \
	X(87, ERR_BYTES, u64)                                                                      \
	X(88, DURATION_US, u64)                                                                    \
	X(89, BYTES, u64)    /* moved by a file call */                                            \
	X(90, OUT_TAIL, u64) /* so many of the bytes that came last were the last of stdout */     \
	X(91, ERR_TAIL, u64)                                                                       \
	/* JOB_*, and what they tell of a job */                                                   \
	X(96, WAIT_MS, u64)                                                                        \
	X(97, JOB_FLAGS, u32)                                                                      \
	X(98, FIRST_OFFSET, u64) /* of what the ring still holds */                                \
	X(99, END_OFFSET, u64)

enum msg_tag {
#define X(number, name, kind) MSG_##name = number,
	MSG_TAGS(X)
#undef X
};

enum proto_feature {
	PROTO_FEATURE_CGROUP = 1u << 0, /* commands run in a cgroup each; time-outs reach setsid */
	PROTO_FEATURE_RESIZE = 1u << 1, /* the root file system was grown to the disk */
	PROTO_FEATURE_JOBS = 1u << 2,   /* SIGNAL, JOB_*; ID, SHELL and TAIL_CAP in EXEC */
	PROTO_FEATURE_PTY = 1u << 3,    /* MSG_EXEC_TTY in JOB_START */
	PROTO_FEATURE_CLOCK = 1u << 4,  /* CLOCK_SHIFT_NS in CONFIGURE, REALTIME_NS in its END */
};

enum msg_exec_flag {
	MSG_EXEC_STDIN = 1u << 0, /* DATA and CLOSE on IN follow; without it stdin is /dev/null */
	MSG_EXEC_ROOT = 1u << 1,  /* run as root instead of as the sandbox user */
	MSG_EXEC_TTY = 1u << 2,   /* JOB_START: on a terminal of its own */
};

enum msg_job_flag {
	MSG_JOB_FOLLOW = 1u << 0, /* JOB_READ: go on until the job ends */
	MSG_JOB_CLOSE = 1u << 1,  /* JOB_INPUT: stdin ends behind it */
	/* what is told of a job */
	MSG_JOB_RUNNING = 1u << 2,
	MSG_JOB_TTY = 1u << 3,
};

enum msg_file_flag {
	MSG_FILE_PARENTS = 1u << 0,   /* make missing parent directories */
	MSG_FILE_RECURSIVE = 1u << 1, /* LIST: whole tree */
	MSG_FILE_APPEND = 1u << 2,    /* PUT: at the end, not replacing */
};

enum msg_end_flag {
	MSG_END_TIMED_OUT = 1u << 0,
	MSG_END_TRUNCATED = 1u << 1, /* output over the cap, or a list over its limit */
	MSG_END_CANCELLED = 1u << 2,
};

/* Outcome of a call. Anything but OK carries TEXT, and ERRNO where a system call said so. */
#define MSG_STATUSES(X)                                                                            \
	X(0, OK)                                                                                   \
	X(1, INVALID) /* the request makes no sense; TEXT names the field */                       \
	X(2, NOT_FOUND)                                                                            \
	X(3, PERMISSION)                                                                           \
	X(4, EXISTS)                                                                               \
	X(5, IS_DIRECTORY)                                                                         \
	X(6, NOT_DIRECTORY)                                                                        \
	X(7, NO_SPACE)                                                                             \
	X(8, READ_ONLY)                                                                            \
	X(9, NAME_TOO_LONG)                                                                        \
	X(10, LOOP)                                                                                \
	X(11, NOT_REGULAR) /* a device, fifo or socket where a file was wanted */                  \
	X(12, BUSY)        /* out of streams, processes or memory: may work later */               \
	X(13, UNSUPPORTED)                                                                         \
	X(14, CANCELLED)                                                                           \
	X(15, IO)                                                                                  \
	X(16, INTERNAL)                                                                            \
	X(17, LIMIT) /* as many of the kind as there may be at once: end some first */

enum msg_status {
#define X(number, name) STATUS_##name = number,
	MSG_STATUSES(X)
#undef X
};
const char *msg_status_name(uint32_t status); /* "no_space"; "unknown" for others */

/* 1 to PROTO_ID_MAX_BYTES letters, digits, '_' and '-'. */
bool msg_id_is_valid(const char *id, size_t len);

struct msg_writer {
	uint8_t *buf;
	size_t size;
	size_t len;
	bool overflow;
};

void msg_put_u32(struct msg_writer *w, uint16_t tag, uint32_t value);
void msg_put_u64(struct msg_writer *w, uint16_t tag, uint64_t value);
void msg_put_bytes(struct msg_writer *w, uint16_t tag, const void *data, size_t len);
void msg_put_text(struct msg_writer *w, uint16_t tag, const char *text);

struct msg_field {
	uint16_t tag;
	const uint8_t *data; /* into the buffer; not terminated */
	size_t len;
};

struct msg_reader {
	const uint8_t *buf;
	size_t len;
	size_t pos;
	bool bad;
};

/* The next field; false at the end or when malformed (.bad tells which). */
bool msg_next(struct msg_reader *r, struct msg_field *ret);
/* Value of a number field; a wrong size latches .bad and gives 0. */
uint32_t msg_u32(struct msg_reader *r, const struct msg_field *f);
uint64_t msg_u64(struct msg_reader *r, const struct msg_field *f);
/* Copies text into @out with a terminator; longer than @size - 1 or with a NUL inside latches .bad.
 */
void msg_text(struct msg_reader *r, const struct msg_field *f, char *out, size_t size);

/*
 * FILE_LIST sends its entries on OUT, one after the other, each whole within one DATA frame:
 *   {u32 bytes of the entry, u32 st_mode, u64 size, u64 mtime in ns, u8 type, u8 zero[3], name}
 * The name is the path relative to the one asked for; its length is what remains of the entry.
 */
#define MSG_ENTRY_HEADER_BYTES 28u
enum msg_entry_type { ENTRY_FILE = 'f', ENTRY_DIR = 'd', ENTRY_SYMLINK = 'l', ENTRY_OTHER = 'o' };

struct msg_entry {
	uint32_t mode;
	uint64_t size;
	uint64_t mtime_ns;
	uint8_t type;
	const char *name; /* into the buffer; not terminated */
	size_t name_len;
};

/* Appends an entry; false when it doesn't fit (send what is there first) or has no proper name. */
bool msg_entry_put(struct msg_writer *w, const struct msg_entry *entry);
/* Takes the next entry off r; false at the end or when malformed (.bad). */
bool msg_entry_next(struct msg_reader *r, struct msg_entry *ret);

/*
 * What a guest tells of a job: fields in the STARTED of JOB_READ, and in the entries of JOB_LIST,
 * which come on OUT one after the other, each whole within one DATA frame: {u32 bytes of the entry,
 * fields}.
 */
#define MSG_JOB_MAX_BYTES 256u

struct msg_job {
	char id[PROTO_ID_MAX_BYTES + 1];
	uint32_t flags; /* MSG_JOB_RUNNING, MSG_JOB_TTY */
	uint64_t first_offset;
	uint64_t end_offset;
	/* once it has ended */
	uint32_t exit_code;
	uint32_t signal;
	uint32_t end_flags;
	uint64_t out_bytes;
	uint64_t err_bytes;
	uint64_t duration_us;
};

void msg_job_put(struct msg_writer *w, const struct msg_job *job);
/* Takes a field into @job; false when it isn't one of a job's. A bad value latches r->bad. */
bool msg_job_take(struct msg_reader *r, const struct msg_field *f, struct msg_job *job);
/* Whether what was taken can be: an id, offsets and counts that agree, an exit code. */
bool msg_job_is_sound(const struct msg_job *job);
