#pragma once

/*
 * limits - every maximum of the guest protocol
 *
 * Purpose: the one place where host and guest find the bounds they enforce on each other.
 *          PROTOCOL.md says what happens when one is exceeded.
 * Uses:    nothing.
 */

/* Version of the protocol. A peer speaks min(own, other); below PROTO_VERSION_MIN it aborts. */
#define PROTO_VERSION     1u
#define PROTO_VERSION_MIN 1u

/* Name of the virtio-serial port, as found in /sys/class/virtio-ports/<dev>/name. */
#define PROTO_PORT_NAME "org.paddock.agent.0"

/* Frame: header and largest payload. The guest's driver takes 32 KiB in one write: two a frame. */
#define PROTO_HEADER_BYTES      12u
#define PROTO_PAYLOAD_MAX_BYTES 65536u

/* A request body may span several frames (FRAME_MORE); its sum stays below this. */
#define PROTO_REQUEST_MAX_BYTES (1024u * 1024u)
/* Requests that a session may have in parts at one time. */
#define PROTO_PARTIAL_MAX 4u

/* Streams open at once in a session. */
#define PROTO_STREAMS_MAX 64u

/* Credit that each channel of a stream starts with, and the most it may ever hold. */
#define PROTO_WINDOW_INITIAL_BYTES (256u * 1024u)
#define PROTO_WINDOW_MAX_BYTES     (4u * 1024u * 1024u)
/* Of OUT's credit, what a GAP costs: about as much as its receiver has to keep for it. */
#define PROTO_GAP_BYTES 64u

/* Lengths of single fields. */
#define PROTO_PATH_MAX_BYTES     4095u
#define PROTO_TEXT_MAX_BYTES     255u
#define PROTO_HOSTNAME_MAX_BYTES 63u
#define PROTO_ENTROPY_MAX_BYTES  512u
#define PROTO_CA_MAX_BYTES       (512u * 1024u)
#define PROTO_ARGS_MAX           1024u
#define PROTO_ENV_MAX            1024u
#define PROTO_ID_MAX_BYTES       63u /* of a command: letters, digits, '_', '-' */
#define PROTO_SIGNAL_MAX         64u
#define PROTO_TTY_SIZE_MAX       65535u /* rows, columns */

/* What the guest keeps of a command's output. */
#define PROTO_TAIL_MAX_BYTES (1024u * 1024u) /* TAIL_CAP of an EXEC is cut down to it */
#define PROTO_RING_BYTES     (1024u * 1024u) /* of a job */
#define PROTO_RING_RUNS      32768u          /* pieces of one stream in it */

/* Jobs: more than that don't start; of the ended ones the oldest make room. */
#define PROTO_JOBS_RUNNING_MAX 32u
#define PROTO_JOBS_ENDED_MAX   64u
/* What the rings of ended jobs hold together; beyond it the oldest are cut down to their ends. */
#define PROTO_JOBS_ENDED_BYTES (8u * 1024u * 1024u)
#define PROTO_JOB_TAIL_BYTES   (64u * 1024u)
#define PROTO_JOB_TAIL_RUNS    4096u

/* Timings. */
#define PROTO_SYNC_RETRY_MS    250u   /* host: beyond PARTIAL_FRAME, before SYNC again */
#define PROTO_PARTIAL_FRAME_MS 1000u  /* guest: an unfinished frame with no new byte is given up */
#define PROTO_SILENCE_MAX_MS   20000u /* guest: while a command is held before its program */
#define PROTO_EXEC_GRACE_MS    2000u  /* default time between SIGTERM and SIGKILL */
#define PROTO_CLOCK_STEP_MS    50u /* guest: its wall clock is set at once beyond it, else slewed */
