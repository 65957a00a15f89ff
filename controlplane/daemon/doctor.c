#include "daemon/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/id.h"
#include "base/xalloc.h"
#include "daemon/config.h"
#include "daemon/state_dir.h"
#include "hv/accel.h"
#include "image/image.h"
#include "netfilter/netfilter.h"

#define GIB                (UINT64_C(1024) * 1024 * 1024)
#define DISK_ERROR_BYTES   (1 * GIB)
#define DISK_WARNING_BYTES (10 * GIB)
#define SOCKET_PATH_MAX    107
/* What is appended to run_dir (20 digits and a name), and to an embedded root by libvirt. */
#define RUN_SUFFIX_BYTES 30
#define EMBED_SUFFIX_BYTES                                                                         \
	(sizeof "/libvirt/lib/qemu/domain-99999-paddock-01234567-sb_/monitor.sock" - 1)

struct doctor {
	const struct config *config;
	const struct doctor_live *live;
	json_object *findings;
};

static void find(struct doctor *d, const char *check, const char *level, const char *fix,
	const char *text, ...) _printf_(5, 6);

static void find(struct doctor *d, const char *check, const char *level, const char *fix,
	const char *text, ...)
{
	json_object *finding = json_object_new_object();
	char line[512];
	va_list ap;

	va_start(ap, text);
	vsnprintf(line, sizeof line, text, ap);
	va_end(ap);
	json_object_object_add(finding, "check", json_object_new_string(check));
	json_object_object_add(finding, "level", json_object_new_string(level));
	json_object_object_add(finding, "text", json_object_new_string(line));
	json_object_object_add(finding, "fix", fix ? json_object_new_string(fix) : NULL);
	json_object_array_add(d->findings, finding);
}

static void check_libvirt(struct doctor *d)
{
	const struct doctor_live *live = d->live;

	if (!live) {
		find(d, "libvirt", "warning", "start paddockd and ask again",
			"paddockd isn't running, so its connection to libvirt can't be checked");
	} else if (live->is_hv_ready) {
		find(d, "libvirt", "ok", NULL, "%s, %s", live->hv_driver, live->hv_version);
	} else {
		find(d, "libvirt", "error",
			strcmp(d->config->uri, "embed") == 0
				? "install libvirt-daemon, libvirt-daemon-driver-qemu and "
				  "qemu-system-x86, then "
				  "restart paddockd"
				: "start libvirtd (systemctl start libvirtd); paddockd connects by "
				  "itself",
			"%s: %s", live->hv_driver[0] ? live->hv_driver : "libvirt",
			live->hv_problem[0] ? live->hv_problem : "not connected yet");
	}
}

static void check_acceleration(struct doctor *d)
{
	struct accel_choice choice;
	struct err err;

	if (d->live && d->live->acceleration[0]) {
		bool is_kvm = strcmp(d->live->acceleration, "kvm") == 0;

		find(d, "acceleration", is_kvm ? "ok" : "warning",
			is_kvm ? NULL
			       : "a machine with hardware virtualisation runs guests many times "
				 "faster",
			"%s: %s", d->live->acceleration, d->live->acceleration_why);
		return;
	}
	if (accel_choose((enum hv_accel)d->config->acceleration, NULL, &choice, &err) != 0) {
		find(d, "acceleration", "error", "set hypervisor.acceleration = auto", "%s",
			err.msg);
		return;
	}
	find(d, "acceleration", choice.is_kvm ? "ok" : "warning",
		choice.is_kvm
			? NULL
			: "a machine with hardware virtualisation runs guests many times faster",
		"%s: %s", choice.is_kvm ? "kvm" : "tcg", choice.why);
}

/* QEMU reads its secret from there; Debian lets only libvirt's own group pass. */
#define SYSTEM_QEMU_DIR "/var/lib/libvirt/qemu"

static void check_system_driver(struct doctor *d)
{
	const struct group *group = getgrnam(d->config->group);
	struct stat st;

	if (strcmp(d->config->uri, "qemu:///system") != 0 || !group ||
		stat(SYSTEM_QEMU_DIR, &st) != 0) {
		return;
	}
	if (st.st_mode & S_IXOTH || (st.st_gid == group->gr_gid && st.st_mode & S_IXGRP)) {
		find(d, "qemu:///system", "ok", NULL, "group %s can pass " SYSTEM_QEMU_DIR,
			d->config->group);
		return;
	}
	find(d, "qemu:///system", "error",
		"dpkg-statoverride --update --add libvirt-qemu libvirt-qemu 0751 " SYSTEM_QEMU_DIR
		", or without KVM hypervisor.group = libvirt-qemu",
		"group %s can't pass " SYSTEM_QEMU_DIR " (mode %04o), so no domain will start",
		d->config->group, (unsigned)st.st_mode & 07777);
}

/* Root can open the device and QEMU's group can't: libvirt then probes QEMU anew on every call. */
static void check_kvm_device(struct doctor *d)
{
	const struct group *group = getgrnam(d->config->group);
	struct stat st;

	if (!group) {
		find(d, "group", "error", "groupadd --system kvm, or set hypervisor.group",
			"there is no group %s", d->config->group);
		return;
	}
	if (stat("/dev/kvm", &st) != 0) {
		find(d, "/dev/kvm", "ok", NULL, "not there; nothing to watch for");
		return;
	}
	bool opens = (st.st_mode & S_IROTH && st.st_mode & S_IWOTH) ||
		     (st.st_gid == group->gr_gid && st.st_mode & S_IRGRP && st.st_mode & S_IWGRP);
	if (opens) {
		find(d, "/dev/kvm", "ok", NULL, "group %s may open it", d->config->group);
		return;
	}
	find(d, "/dev/kvm", "error", "chgrp kvm /dev/kvm; chmod 660 /dev/kvm",
		"group %s can't open it (mode %04o), though root can: libvirt then probes QEMU on "
		"each "
		"call, 4 s each, and KVM doesn't work",
		d->config->group, (unsigned)st.st_mode & 07777);
}

static void check_image(struct doctor *d, const char *name)
{
	const struct images_config config = {.dir = d->config->images_dir};
	struct err err = ERR_INIT;
	_cleanup_image_ struct image *image = image_load_blocking(&config, name, NULL, &err);

	if (image) {
		find(d, "image", "ok", NULL, "%s is sound (version %s, kernel %s, agent %s)", name,
			image->version, image->kernel_version, image->agent_version);
	} else {
		_cleanup_free_ char *fix = xasprintf("images/build --force %s", name);

		find(d, "image", "error", fix, "%s", err.msg);
	}
}

static void check_images(struct doctor *d)
{
	DIR *dir = opendir(d->config->images_dir);
	bool has_default = false;
	int count = 0;

	for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
		if (!name_is_valid(entry->d_name)) {
			continue;
		}
		count++;
		has_default = has_default || strcmp(entry->d_name, d->config->default_image) == 0;
		check_image(d, entry->d_name);
	}
	if (dir) {
		closedir(dir);
	}
	if (count == 0) {
		find(d, "image", "error", "images/build minimal", "there is no image in %s",
			d->config->images_dir);
	} else if (!has_default) {
		_cleanup_free_ char *fix = xasprintf(
			"images/build %s, or set image.default", d->config->default_image);

		find(d, "image", "error", fix, "the default image %s isn't there",
			d->config->default_image);
	}
}

static void check_disk(struct doctor *d)
{
	struct statvfs fs;

	if (statvfs(d->config->state_dir, &fs) != 0) {
		find(d, "disk", "error", "make state.dir, or start paddockd once", "%s: %s",
			d->config->state_dir, strerror(errno));
		return;
	}
	uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	const char *level = free_bytes < DISK_ERROR_BYTES     ? "error"
			    : free_bytes < DISK_WARNING_BYTES ? "warning"
							      : "ok";
	find(d, "disk", level, strcmp(level, "ok") == 0 ? NULL : "free some space in state.dir",
		"%.1f GB free for disks and the database", (double)free_bytes / 1e9);
}

static uint64_t available_memory_mb(void)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long kb = 0;
	char line[128];

	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "MemAvailable: %llu", &kb) == 1) {
			break;
		}
	}
	return kb / 1024;
}

static void check_memory(struct doctor *d)
{
	uint64_t available = available_memory_mb();
	unsigned least = UINT32_MAX;

	for (unsigned i = 0; i < d->config->size_count; i++) {
		least = MIN(least, d->config->sizes[i].memory_mb);
	}
	if (available < least) {
		find(d, "memory", "error", "stop something, or define a smaller size",
			"%llu MiB available, less than the smallest size takes (%u MiB)",
			(unsigned long long)available, least);
	} else {
		find(d, "memory", "ok", NULL, "%llu MiB available", (unsigned long long)available);
	}
}

static void check_paths(struct doctor *d)
{
	size_t run = strlen(d->config->run_dir) + RUN_SUFFIX_BYTES;
	size_t root = strlen(d->config->state_dir) + EMBED_SUFFIX_BYTES;
	struct err err;

	if (run > SOCKET_PATH_MAX) {
		find(d, "paths", "error", "set state.run_dir to a short path, such as /run/paddock",
			"sockets below %s would have paths of %zu bytes; %d is the limit",
			d->config->run_dir, run, SOCKET_PATH_MAX);
	} else if (strcmp(d->config->uri, "embed") == 0 && root > SOCKET_PATH_MAX) {
		find(d, "paths", "error", "choose a shorter state.dir",
			"libvirt's sockets below %s would have paths of about %zu bytes; %d is the "
			"limit",
			d->config->state_dir, root, SOCKET_PATH_MAX);
	} else if (state_dir_check_traversal(d->config->state_dir, &err) != 0) {
		find(d, "paths", "error", "chmod o+x it, or choose another state.dir", "%s",
			err.msg);
	} else {
		find(d, "paths", "ok", NULL,
			"QEMU's users can pass to state.dir, and sockets there are short enough");
	}
}

static void check_filter(struct doctor *d)
{
	struct err err = ERR_INIT;

	if (d->live) {
		const char *level = d->live->is_filter_active ? "ok" : "error";

		find(d, "filter", d->live->filter_breaches ? "warning" : level,
			d->live->filter_fix[0] ? d->live->filter_fix : NULL,
			"%s%s (repaired %u times)",
			d->live->is_filter_active
				? "in place: guests with egress reach public addresses only"
				: "not in place: only network none is offered: ",
			d->live->filter_reason, d->live->filter_breaches);
		return;
	}
	if (netfilter_probe_blocking(&err) == 0) {
		find(d, "filter", "ok", NULL, "this kernel takes the host filter's rules");
	} else {
		find(d, "filter", "error", netfilter_fix(err.kind),
			"not possible here, so only network none is offered: %s", err.msg);
	}
}

json_object *doctor_run_blocking(const struct config *config, const struct doctor_live *live)
{
	struct doctor d = {.config = config, .live = live, .findings = json_object_new_array()};

	check_libvirt(&d);
	check_acceleration(&d);
	check_kvm_device(&d);
	check_system_driver(&d);
	check_images(&d);
	check_disk(&d);
	check_memory(&d);
	check_paths(&d);
	check_filter(&d);
	return d.findings;
}

bool doctor_print(json_object *findings)
{
	bool is_fine = true;

	for (size_t i = 0; i < json_object_array_length(findings); i++) {
		json_object *finding = json_object_array_get_idx(findings, i);
		json_object *fix = json_object_object_get(finding, "fix");
		const char *level = json_object_get_string(
			json_object_object_get(finding, "level"));

		is_fine = is_fine && strcmp(level, "error") != 0;
		printf("%-8s %-14s %s\n", level,
			json_object_get_string(json_object_object_get(finding, "check")),
			json_object_get_string(json_object_object_get(finding, "text")));
		if (fix) {
			printf("%24s fix: %s\n", "", json_object_get_string(fix));
		}
	}
	return is_fine;
}
