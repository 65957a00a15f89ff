#include "hv-rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/xalloc.h"
#include "hv/hv_libvirt.h"
#include "hv/process.h"

#define ANSWER_MS 120000

struct answer {
	bool is_done;
	struct err err;
	struct hv_facts facts;
	const char *id; /* to look for in a list */
	bool is_found;
};

static const char *image_dir(void)
{
	return getenv("PADDOCK_TEST_IMAGE");
}

bool rig_has_image(void)
{
	return image_dir() != NULL;
}

bool rig_is_system(void)
{
	return getenv("PADDOCK_TEST_SYSTEM") != NULL;
}

/* ---- loop ---- */

bool rig_wait(struct rig *rig, const bool *flag, uint64_t timeout_ms)
{
	uint64_t end = clock_monotonic_ms() + timeout_ms;

	while (!*flag && clock_monotonic_ms() < end) {
		loop_turn_for(rig->loop, 20);
	}
	return *flag;
}

static bool has_event(const struct rig *rig, const char *id, enum hv_event event)
{
	for (size_t i = 0; i < rig->event_count; i++) {
		if (strcmp(rig->events[i].id, id) == 0 && rig->events[i].event == event) {
			return true;
		}
	}
	return false;
}

bool rig_wait_event(struct rig *rig, const char *id, enum hv_event event, uint64_t timeout_ms)
{
	uint64_t end = clock_monotonic_ms() + timeout_ms;
	bool never = false;

	while (!has_event(rig, id, event) && clock_monotonic_ms() < end) {
		rig_wait(rig, &never, 50);
	}
	return has_event(rig, id, event);
}

/* ---- hooks ---- */

static void on_event(void *arg, const char *id, enum hv_event event)
{
	struct rig *rig = arg;

	if (rig->event_count < ARRAY_SIZE(rig->events)) {
		struct rig_event *slot = &rig->events[rig->event_count++];

		snprintf(slot->id, sizeof slot->id, "%s", id);
		slot->event = event;
	}
}

static void on_late(void *arg, const char *id)
{
	struct rig *rig = arg;

	snprintf(rig->late_id, sizeof rig->late_id, "%s", id);
}

static void on_ready(void *arg, bool is_ready, const struct err *err)
{
	struct rig *rig = arg;

	rig->is_ready = is_ready;
	if (err) {
		rig->down = *err;
		fprintf(stderr, "not ready: %s\n", err->msg);
	}
}

/* ---- the rig ---- */

void rig_make_directory(char out[RIG_DIR_BYTES])
{
	char path[RIG_DIR_BYTES + 8];

	snprintf(out, RIG_DIR_BYTES, "/tmp/hv-XXXXXX");
	ASSERT(mkdtemp(out) != NULL && chmod(out, 0711) == 0);
	snprintf(path, sizeof path, "%s/disk", out);
	ASSERT(mkdir(path, 0711) == 0);
	snprintf(path, sizeof path, "%s/run", out);
	ASSERT(mkdir(path, 0711) == 0);
}

void rig_open(struct rig *rig, const char *dir)
{
	struct err err;
	const struct hv_hooks hooks = {
		.on_event = on_event, .on_late = on_late, .on_ready = on_ready, .arg = rig};

	memset(rig, 0, sizeof *rig);
	if (dir) {
		snprintf(rig->dir, sizeof rig->dir, "%s", dir);
	} else {
		rig_make_directory(rig->dir);
	}
	if (rig_is_system()) {
		snprintf(rig->uri, sizeof rig->uri, "qemu:///system");
	} else {
		snprintf(rig->uri, sizeof rig->uri, "qemu:///embed?root=%s/lv", rig->dir);
	}
	struct hv_libvirt_config config = {.uri = rig->uri,
		.instance = RIG_INSTANCE,
		.accel = HV_ACCEL_AUTO,
		.workers = RIG_WORKERS,
		.tb_cache_mib = 32,
		.deadlines = HV_LIBVIRT_DEADLINES};
	const char *accel = getenv("PADDOCK_ACCEL");

	ASSERT(!accel || accel_parse(accel, &config.accel, &err) == 0);
	config.deadlines.call_ms = RIG_CALL_MS;
	rig->loop = loop_new(&err);
	ASSERT(rig->loop != NULL);
	rig->hv = hv_libvirt_new(rig->loop, &config, &err);
	ASSERT(rig->hv != NULL);
	rig->hv->ops->open(rig->hv, &hooks);
	ASSERT(rig_wait(rig, &rig->is_ready, ANSWER_MS));
}

void rig_close(struct rig *rig, bool remove)
{
	struct err err;

	rig->hv->ops->close(rig->hv);
	hv_libvirt_free(rig->hv);
	loop_free(rig->loop);
	if (remove) {
		ASSERT(fs_remove_tree(rig->dir, &err) == 0);
	}
}

/* ---- sandboxes ---- */

static char *path_of(const struct rig *rig, const char *kind, const char *id, const char *file)
{
	return xasprintf("%s/%s/%s%s", rig->dir, kind, id, file);
}

/* Without the right one the guest panics and its domain ends within seconds. */
static void read_cmdline(char *out, size_t size)
{
	_cleanup_free_ char *path = xasprintf("%s/manifest.json", image_dir());
	_cleanup_free_ char *text = NULL;
	size_t len;
	struct err err;
	json_object *value;

	ASSERT(fs_read(path, 1 << 20, &text, &len, &err) == 0);
	_cleanup_json_ json_object *manifest = json_parse(text, len, &err);
	ASSERT(manifest && json_object_object_get_ex(manifest, "cmdline", &value));
	snprintf(out, size, "%s", json_object_get_string(value));
}

/* One that gets QEMU to the files which libvirtd makes for it; Debian shuts others out. */
static gid_t qemu_group(void)
{
	struct stat st;

	return rig_is_system() && stat("/var/lib/libvirt/qemu", &st) == 0 ? st.st_gid : RIG_GID;
}

void rig_box_init(const struct rig *rig, struct rig_box *box, unsigned n)
{
	snprintf(box->id, sizeof box->id, "sb_%020x", n);
	box->paths = (struct hv_paths){.disk_dir = path_of(rig, "disk", box->id, ""),
		.overlay = path_of(rig, "disk", box->id, "/disk.qcow2"),
		.run_dir = path_of(rig, "run", box->id, ""),
		.agent_socket = path_of(rig, "run", box->id, "/agent.sock"),
		.console_socket = path_of(rig, "run", box->id, "/console.sock")};
	snprintf(box->kernel, sizeof box->kernel, "%s/vmlinuz", image_dir());
	snprintf(box->initrd, sizeof box->initrd, "%s/initrd.img", image_dir());
	snprintf(box->base, sizeof box->base, "%s/root.qcow2", image_dir());
	read_cmdline(box->cmdline, sizeof box->cmdline);
	box->spec = (struct hv_spec){.id = box->id,
		.account = RIG_ACCOUNT,
		.expires_at_ms = 1700000000000,
		.uid = RIG_UID + n,
		.gid = qemu_group(),
		.vcpus = 1,
		.memory_mb = 256,
		.disk_bytes = 2ull << 30,
		.network = HV_NETWORK_NONE,
		.kernel = box->kernel,
		.initrd = box->initrd,
		.cmdline = box->cmdline,
		.base_image = box->base,
		.paths = &box->paths};
}

void rig_box_fini(struct rig_box *box)
{
	free(box->paths.disk_dir);
	free(box->paths.overlay);
	free(box->paths.run_dir);
	free(box->paths.agent_socket);
	free(box->paths.console_socket);
}

/* ---- calls that wait ---- */

static void take_err(struct answer *answer, const struct err *err)
{
	ASSERT(!answer->is_done);
	answer->is_done = true;
	if (err) {
		answer->err = *err;
		fprintf(stderr, "answer: %s: %s\n", err_kind_name(err->kind), err->msg);
	}
}

static void on_done(void *arg, const struct err *err)
{
	take_err(arg, err);
}

static void on_started(void *arg, const struct hv_facts *facts, const struct err *err)
{
	struct answer *answer = arg;

	take_err(answer, err);
	if (facts) {
		answer->facts = *facts;
	}
}

static void on_listed(void *arg, const struct hv_facts *facts, size_t count, const struct err *err)
{
	struct answer *answer = arg;

	take_err(answer, err);
	for (size_t i = 0; i < count; i++) {
		if (strcmp(facts[i].id, answer->id) == 0) {
			answer->facts = facts[i];
			answer->is_found = true;
		}
	}
}

static enum err_kind await(struct rig *rig, struct answer *answer)
{
	ASSERT(!answer->is_done);
	ASSERT(rig_wait(rig, &answer->is_done, ANSWER_MS));
	return answer->err.kind;
}

enum err_kind rig_disk_create(struct rig *rig, const struct rig_box *box)
{
	struct answer answer = {0};

	rig->hv->ops->disk_create(rig->hv, &box->spec, on_done, &answer);
	return await(rig, &answer);
}

enum err_kind rig_disk_remove(struct rig *rig, const struct rig_box *box)
{
	struct answer answer = {0};

	rig->hv->ops->disk_remove(rig->hv, box->id, &box->paths, on_done, &answer);
	return await(rig, &answer);
}

enum err_kind rig_start(struct rig *rig, const struct rig_box *box, struct hv_facts *ret)
{
	struct answer answer = {0};

	rig->hv->ops->start(rig->hv, &box->spec, on_started, &answer);
	enum err_kind kind = await(rig, &answer);

	*ret = answer.facts;
	return kind;
}

enum err_kind rig_destroy(struct rig *rig, const char *id)
{
	struct answer answer = {0};

	rig->hv->ops->destroy(rig->hv, id, on_done, &answer);
	return await(rig, &answer);
}

enum err_kind rig_resume(struct rig *rig, const char *id)
{
	struct answer answer = {0};

	rig->hv->ops->resume(rig->hv, id, on_done, &answer);
	return await(rig, &answer);
}

enum err_kind rig_set_link(struct rig *rig, const char *id, bool is_up)
{
	struct answer answer = {0};

	rig->hv->ops->set_link(rig->hv, id, is_up, on_done, &answer);
	return await(rig, &answer);
}

enum err_kind rig_set_expiry(struct rig *rig, const char *id, int64_t expires_at_ms)
{
	struct answer answer = {0};

	rig->hv->ops->set_expiry(rig->hv, id, expires_at_ms, on_done, &answer);
	return await(rig, &answer);
}

enum err_kind rig_find(struct rig *rig, const char *id, struct hv_facts *ret)
{
	struct answer answer = {.id = id};

	rig->hv->ops->list(rig->hv, on_listed, &answer);
	enum err_kind kind = await(rig, &answer);

	if (kind == ERR_NONE && !answer.is_found) {
		return ERR_NOT_FOUND;
	}
	*ret = answer.facts;
	return kind;
}

/* ---- short forms ---- */

void rig_box_start(struct rig *rig, struct rig_box *box, unsigned n, struct hv_facts *ret)
{
	rig_box_init(rig, box, n);
	ASSERT(rig_disk_create(rig, box) == ERR_NONE);
	ASSERT(rig_start(rig, box, ret) == ERR_NONE);
}

void rig_box_end(struct rig *rig, struct rig_box *box)
{
	ASSERT(rig_destroy(rig, box->id) == ERR_NONE);
	ASSERT(rig_disk_remove(rig, box) == ERR_NONE);
	rig_box_fini(box);
}

bool rig_is_alive(const struct hv_facts *facts)
{
	const struct process process = {.pid = facts->pid, .start = facts->pid_start};

	return process_is_alive(&process);
}

char *rig_proc_text(pid_t pid, const char *file)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/%s", (int)pid, file);
	char *text = NULL;
	struct err err;

	ASSERT(fs_read(path, 1 << 20, &text, NULL, &err) == 0);
	return text;
}
