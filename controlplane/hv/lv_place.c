#include "hv/lv_place.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/fs.h"
#include "base/macros.h"
#include "base/xalloc.h"
#include "loop/loop.h"

#define SYSTEM_URI   "qemu:///system"
#define EMBED_PREFIX "qemu:///embed?root="

/*
 * The longest path that the embedded driver makes below its root, for a socket: a domain number of
 * up to seven digits and the first 20 bytes of its name.
 */
#define MONITOR_SUFFIX "/lib/qemu/domain-1234567-12345678901234567890/monitor.sock"
#define ROOT_BYTES_MAX (sizeof((struct sockaddr_un){0}.sun_path) - sizeof MONITOR_SUFFIX)

static const char driver_config[] =
	"# Written by paddockd at each start; changes here don't last.\n"
	"\n"
	"# No virtlogd here. The log holds QEMU's few own words, never the guest's console.\n"
	"stdio_handler = \"file\"\n"
	"\n"
	"# Owners and modes of disks, kernels and sockets are paddockd's affair: each sandbox has "
	"a\n"
	"# uid of its own, and what sandboxes share is root's and read-only.\n"
	"dynamic_ownership = 0\n"
	"remember_owner = 0\n"
	"\n"
	"# This leaves the uid labels in place and turns off AppArmor, whose profile generator "
	"knows\n"
	"# libvirt's system-wide directories alone and would keep QEMU from files below this "
	"root.\n"
	"security_driver = \"none\"\n"
	"security_default_confined = 0\n"
	"\n"
	"# QEMU's own system call filter, also where the distribution leaves it off.\n"
	"seccomp_sandbox = 1\n";

/* The URI takes no escapes from us: a root with others would be read differently by libvirt. */
static bool is_plain_path(const char *path)
{
	if (path[0] != '/') {
		return false;
	}
	for (const char *p = path; *p; p++) {
		if (!isalnum((unsigned char)*p) && !strchr("/._-+,@=~", *p)) {
			return false;
		}
	}
	return true;
}

static int check_root(const char *root, struct err *err)
{
	if (!is_plain_path(root)) {
		return err_set(err, ERR_INVALID,
			"the root of the embedded libvirt must be an absolute path of letters, "
			"digits and /._-+,@=~");
	}
	if (strlen(root) > ROOT_BYTES_MAX) {
		return err_set(err, ERR_INVALID,
			"the root of the embedded libvirt is %zu bytes long; its sockets allow "
			"%zu: "
			"choose a shorter state directory",
			strlen(root), ROOT_BYTES_MAX);
	}
	return 0;
}

struct lv_place *lv_place_new(const char *uri, struct err *err)
{
	_cleanup_(lv_place_free_p) struct lv_place *place = xnew(struct lv_place);

	place->uri = xstrdup(uri);
	if (strcmp(uri, SYSTEM_URI) == 0) {
		place->pid_dir = xstrdup("/run/libvirt/qemu");
		place->old_log_dir = xstrdup("/var/log/libvirt/qemu");
		return steal_ptr(&place);
	}
	if (strncmp(uri, EMBED_PREFIX, strlen(EMBED_PREFIX)) != 0) {
		err_set(err, ERR_INVALID,
			"the libvirt URI must be " SYSTEM_URI " or " EMBED_PREFIX "/DIR");
		return NULL;
	}
	place->root = xstrdup(uri + strlen(EMBED_PREFIX));
	if (check_root(place->root, err) != 0) {
		return NULL;
	}
	place->pid_dir = xasprintf("%s/run/qemu", place->root);
	place->log_dir = xasprintf("%s/log/qemu", place->root);
	place->old_log_dir = xstrdup(place->log_dir);
	return steal_ptr(&place);
}

void lv_place_free(struct lv_place *place)
{
	if (!place) {
		return;
	}
	free(place->uri);
	free(place->root);
	free(place->pid_dir);
	free(place->log_dir);
	free(place->old_log_dir);
	free(place);
}

const char *lv_place_label(const struct lv_place *place)
{
	return place->root ? "libvirt (qemu:///embed)" : "libvirt (" SYSTEM_URI ")";
}

int lv_place_prepare_blocking(const struct lv_place *place, struct err *err)
{
	ASSERT(!loop_is_current());
	if (!place->root) {
		return 0;
	}
	_cleanup_free_ char *etc = xasprintf("%s/etc", place->root);
	_cleanup_free_ char *config = xasprintf("%s/qemu.conf", etc);

	/* QEMU's users must get through to the directories that libvirt makes for them. */
	if (fs_mkdir_parents(place->root, 0711, err) != 0 || fs_mkdir(etc, 0700, err) != 0) {
		return -1;
	}
	return fs_write_atomic(config, driver_config, strlen(driver_config), 0600, err);
}
