#pragma once

/*
 * hv - the hypervisor as the domain layer sees it
 *
 * Purpose: the interface between sandbox/ and what runs virtual machines. hv_libvirt.h makes the
 *          real one; the tests' fake implements the same table.
 * Owns:    connection, worker threads, lanes.
 * Thread:  loop. Every call returns at once; done() comes later from the loop, exactly once, never
 *          from within the call, and is safe to call hv from.
 * Errors:  ERR_UNAVAILABLE: no connection, too much is waiting, or the host's disk is full.
 *          ERR_TIMEOUT: no answer within the deadline; the call may still take effect, and
 *          on_late() tells when it came back. ERR_NOT_FOUND: no such domain. ERR_CONFLICT: it is
 *          there already, or in no state for this. ERR_CANCELLED: by close(). ERR_INTERNAL: else.
 * Uses:    base, loop.
 *
 * A domain is named by the id of its sandbox. The implementation only ever touches domains that
 * carry its own instance id in their metadata. Calls for one id run in the order in which they were
 * made; set_link() has an order of its own.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/id.h"

#define HV_INSTANCE_BYTES 17 /* 16 hex digits and a terminator */
#define HV_ACCOUNT_BYTES  ID_BYTES

enum hv_network {
	HV_NETWORK_NONE, /* no network card at all */
	HV_NETWORK_USER, /* QEMU's user-mode network; the host filter (netfilter/) bounds it */
};

/* Where a sandbox's files are. Absolute; made by sandbox/paths.c. */
struct hv_paths {
	char *disk_dir; /* holds the overlay, which alone is the sandbox's uid's */
	char *overlay;
	char *overlay_next; /* while a reset prepares it */
	char *run_dir; /* holds the two sockets; only the daemon may enter, QEMU inherits them */
	char *agent_socket;
	char *console_socket;
};

/* Everything about a domain. The callee copies what it keeps. */
struct hv_spec {
	const char *id;
	const char *name; /* NULL: none */
	const char *account;
	int64_t expires_at_ms; /* wall clock; 0: never */
	uid_t uid;             /* QEMU runs as this user */
	gid_t gid;
	unsigned vcpus;
	unsigned memory_mb;
	uint64_t disk_bytes;
	enum hv_network network;
	bool is_link_down;    /* start with the link down (filter not in place) */
	bool is_disk_durable; /* cache=writeback rather than unsafe */
	const char *kernel;
	const char *initrd;
	const char *cmdline;
	const char *base_image; /* qcow2, read-only */
	const struct hv_paths *paths;
};

enum hv_domain_state {
	HV_DOMAIN_RUNNING,
	HV_DOMAIN_PAUSED,    /* for example on a full host disk */
	HV_DOMAIN_SHUTOFF,   /* gone: libvirt says so and the process is, too */
	HV_DOMAIN_UNSETTLED, /* can't be told yet: being re-attached, or dying */
};

/* What is known of a domain of this instance. */
struct hv_facts {
	char id[ID_BYTES];
	char account[HV_ACCOUNT_BYTES];
	int64_t expires_at_ms;
	enum hv_domain_state state;
	pid_t pid;             /* 0: unknown */
	uint64_t pid_start;    /* field 22 of /proc/PID/stat; together with pid an identity */
	int64_t started_at_ms; /* of the process, wall clock; 0: unknown */
};

/* A domain of another instance. It can be looked at and nothing else. */
struct hv_other {
	char instance[HV_INSTANCE_BYTES];
	struct hv_facts facts;
};

enum hv_residue_kind {
	HV_RESIDUE_PROCESS,   /* a QEMU of ours that the hypervisor doesn't know */
	HV_RESIDUE_LOG,       /* the log of a domain */
	HV_RESIDUE_FILE,      /* another file that was a domain's */
	HV_RESIDUE_DIRECTORY, /* a directory that was a domain's, or a probe's */
};

#define HV_RESIDUE_NAME_BYTES 192

/* Something that outlived its domain, or never had one. */
struct hv_residue {
	enum hv_residue_kind kind;
	char id[ID_BYTES];                /* the sandbox that it was for; "": can't be told */
	char name[HV_RESIDUE_NAME_BYTES]; /* a path below the hypervisor's root, or a command */
	int64_t since_ms; /* wall clock: start of a process, last change of a file */
	pid_t pid;        /* PROCESS: with pid_start its identity */
	uint64_t pid_start;
};

/* Valid during the call that brings it. */
struct hv_survey {
	const struct hv_facts *domains; /* of this instance */
	size_t domain_count;
	const struct hv_other *others;
	size_t other_count;
	const struct hv_residue *residue;
	size_t residue_count;
};

enum hv_event {
	HV_EVENT_STOPPED, /* the guest powered itself off */
	HV_EVENT_LOST,    /* it ended otherwise: QEMU died, was killed, or we destroyed it */
	HV_EVENT_PAUSED,
	HV_EVENT_RESUMED,
};

struct hv_hooks {
	/* Something happened to a domain of ours, asked for or not. May come late, or twice. */
	void (*on_event)(void *arg, const char *id, enum hv_event event);
	/* A call that was answered with ERR_TIMEOUT has come back: look at that sandbox again. */
	void (*on_late)(void *arg, const char *id);
	/* The connection came or went. Ready only once capabilities are primed and domains
	 * re-attached. */
	void (*on_ready)(void *arg, bool is_ready, const struct err *err);
	void *arg;
};

/* For people: /v1/service, doctor. Valid while hv lives; acceleration is known when ready. */
struct hv_info {
	const char *driver;           /* "libvirt (qemu:///embed?root=…)" without the path */
	const char *acceleration;     /* "kvm", "tcg", "" when unknown */
	const char *acceleration_why; /* one sentence */
	const char *libvirt_version;
	const char *qemu_version;
	const char *warning; /* NULL, or what slows it down and the fix */
	bool is_ready;
};

typedef void (*hv_done_fn)(void *arg, const struct err *err); /* err NULL: fine */
typedef void (*hv_start_fn)(void *arg, const struct hv_facts *facts, const struct err *err);
/* @facts: @count of them, valid during the call. */
typedef void (*hv_list_fn)(
	void *arg, const struct hv_facts *facts, size_t count, const struct err *err);
typedef void (*hv_survey_fn)(void *arg, const struct hv_survey *survey, const struct err *err);

struct hv;

struct hv_ops {
	/* Connects; on_ready() follows, and again after each loss of the connection. */
	void (*open)(struct hv *hv, const struct hv_hooks *hooks);
	/* Lets domains run on. After it no callback comes. */
	void (*close)(struct hv *hv);
	const struct hv_info *(*info)(const struct hv *hv);

	/* Makes directories and overlay. Something left there is replaced. Parents must exist. */
	void (*disk_create)(struct hv *hv, const struct hv_spec *spec, hv_done_fn done, void *arg);
	/* A fresh overlay beside the one in use; one left there is replaced. */
	void (*disk_prepare)(struct hv *hv, const struct hv_spec *spec, hv_done_fn done, void *arg);
	/* What was prepared takes the overlay's place. The domain must not run. ERR_NOT_FOUND:
	 * nothing is prepared. */
	void (*disk_swap)(struct hv *hv, const char *id, const struct hv_paths *paths,
		hv_done_fn done, void *arg);
	/* Removes what was prepared; nothing there is fine. */
	void (*disk_discard)(struct hv *hv, const char *id, const struct hv_paths *paths,
		hv_done_fn done, void *arg);
	/* Removes disk and run directories of @id; none there is fine. */
	void (*disk_remove)(struct hv *hv, const char *id, const struct hv_paths *paths,
		hv_done_fn done, void *arg);
	/* Starts a transient domain, in a new run directory. A domain of that id which exists
	 * already is ERR_CONFLICT. */
	void (*start)(struct hv *hv, const struct hv_spec *spec, hv_start_fn done, void *arg);
	/* Ends it and waits until the process is gone. No such domain: fine. Where libvirt doesn't
	 * carry it out, the process is killed and the answer is the failure. */
	void (*destroy)(struct hv *hv, const char *id, hv_done_fn done, void *arg);
	/* Continues a paused domain. */
	void (*resume)(struct hv *hv, const char *id, hv_done_fn done, void *arg);
	/* Writes the expiry into the domain's metadata. */
	void (*set_expiry)(
		struct hv *hv, const char *id, int64_t expires_at_ms, hv_done_fn done, void *arg);
	/* Plugs or pulls the network cable. Where libvirt doesn't pull it soon, the process is
	 * stopped until it does or the cable may be plugged, and the answer is the failure. */
	void (*set_link)(struct hv *hv, const char *id, bool is_up, hv_done_fn done, void *arg);
	/* All domains of this instance, settled or not. */
	void (*list)(struct hv *hv, hv_list_fn done, void *arg);
	/* The same, and with it what isn't as it should be: domains of other instances, and what of
	 * ours outlived its domain. Of the latter only what no domain uses is told. */
	void (*survey)(struct hv *hv, hv_survey_fn done, void *arg);
	/* Removes what a survey told of, after another look; gone already is fine. ERR_CONFLICT:
	 * it is in use, or can't be told from what is just being made. */
	void (*residue_remove)(
		struct hv *hv, const struct hv_residue *item, hv_done_fn done, void *arg);
};

/* First member of every implementation. */
struct hv {
	const struct hv_ops *ops;
};
