#pragma once

/*
 * hv-rig - a real hypervisor layer for tests
 *
 * Purpose: a state directory, a loop and hv_libvirt over the embedded driver, with calls that wait.
 * Owns:    all of it; one a process.
 * Thread:  loop.
 * Uses:    base, loop, hv. PADDOCK_TEST_IMAGE names a directory with a built image (its
 * manifest.json and the files beside it). With PADDOCK_TEST_SYSTEM set, a libvirtd that runs is
 * used instead of the embedded driver.
 */

#include "hv/hv.h"
#include "loop/loop.h"

#define RIG_INSTANCE  "0123456789abcdef"
#define RIG_ACCOUNT   "ac_00000000000000000001"
#define RIG_GID       107 /* kvm on Debian */
#define RIG_UID       300001
#define RIG_CALL_MS   6000
#define RIG_WORKERS   2
#define RIG_DIR_BYTES 64

struct rig_event {
	char id[ID_BYTES];
	enum hv_event event;
};

struct rig {
	char dir[RIG_DIR_BYTES];
	char uri[RIG_DIR_BYTES + 32];
	struct loop *loop;
	struct hv *hv;
	bool is_ready;
	struct err down;
	struct rig_event events[64];
	size_t event_count;
	char late_id[ID_BYTES];
};

/* One sandbox's names. */
struct rig_box {
	char id[ID_BYTES];
	struct hv_paths paths;
	struct hv_spec spec;
	char kernel[256], initrd[256], base[256], cmdline[512];
};

/* False where there is no image to boot. */
bool rig_has_image(void);
bool rig_is_system(void);
/* A new state directory under /tmp. */
void rig_make_directory(char out[RIG_DIR_BYTES]);
/* @dir NULL: a new directory. Opens and waits for readiness. */
void rig_open(struct rig *rig, const char *dir);
/* Closes; @remove: and removes the directory. */
void rig_close(struct rig *rig, bool remove);
/* Runs the loop until *flag, at most @timeout_ms; returns *flag. */
bool rig_wait(struct rig *rig, const bool *flag, uint64_t timeout_ms);
bool rig_wait_event(struct rig *rig, const char *id, enum hv_event event, uint64_t timeout_ms);

/* The @n-th sandbox of the rig: @n names id, uid and directories. */
void rig_box_init(const struct rig *rig, struct rig_box *box, unsigned n);
void rig_box_fini(struct rig_box *box);

/* Calls that wait for their answer; ERR_NONE: fine. */
enum err_kind rig_disk_create(struct rig *rig, const struct rig_box *box);
enum err_kind rig_disk_remove(struct rig *rig, const struct rig_box *box);
enum err_kind rig_start(struct rig *rig, const struct rig_box *box, struct hv_facts *ret);
enum err_kind rig_destroy(struct rig *rig, const char *id);
enum err_kind rig_resume(struct rig *rig, const char *id);
enum err_kind rig_set_link(struct rig *rig, const char *id, bool is_up);
enum err_kind rig_set_expiry(struct rig *rig, const char *id, int64_t expires_at_ms);
/* The facts of @id; ERR_NOT_FOUND when they aren't in the list. */
enum err_kind rig_find(struct rig *rig, const char *id, struct hv_facts *ret);

/* Disk and domain of the @n-th; it must work. */
void rig_box_start(struct rig *rig, struct rig_box *box, unsigned n, struct hv_facts *ret);
/* Both gone, whether or not the domain still ran. */
void rig_box_end(struct rig *rig, struct rig_box *box);
bool rig_is_alive(const struct hv_facts *facts);
/* The caller frees. */
char *rig_proc_text(pid_t pid, const char *file);
