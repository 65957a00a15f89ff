/*
 * init - the whole initial ramdisk of a guest: load the disk's drivers, mount the root, become PID
 * 1's image
 *
 * Theory of operation: the image builder resolves which kernel modules a guest needs and writes
 * them to /modules, dependencies first, one per line; a line that starts with '?' names a module
 * whose absence of hardware is no error (crc32c-intel on a processor without the instruction).
 * Inserting them in that order needs no dependency data here. Devices may appear after
 * finit_module(2) returned, so the root device is awaited on the kernel's uevent socket, which is
 * bound before the first module goes in: no event can be missed, and nothing polls. Then the usual
 * switch of roots: free the ramdisk's files (they are memory), move the new root over "/", and
 * execute init=.
 *
 * Errors: there is nobody to repair anything here. One line on the console, then power off: the
 * host sees a domain that ended and the reason on its serial console.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NEWROOT "/newroot"

enum { DEVICE_DEADLINE_MS = 10000 };

/* What the kernel command line asks for; the defaults are those of the images. */
struct boot_plan {
	const char *root;
	const char *fstype;
	const char *rootflags;
	const char *init;
	bool read_only;
};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...)
{
	int saved_errno = errno;
	va_list ap;
	va_start(ap, fmt);
	fputs("initrd: ", stderr);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, ": %s\n", strerror(saved_errno));
	sync();
	reboot(RB_POWER_OFF);
	/* Returning from PID 1 panics the kernel, which is what is left when power cannot be cut.
	 */
	_exit(1);
}

static void mount_or_die(const char *what, const char *where, const char *type, unsigned long flags,
	const char *data)
{
	if (mount(what, where, type, flags, data) < 0) {
		die("cannot mount %s on %s", what, where);
	}
}

/* ---- command line
 * -------------------------------------------------------------------------------- */

static void plan_read(struct boot_plan *plan, char *cmdline, size_t size)
{
	int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		die("cannot open /proc/cmdline");
	}
	ssize_t n = read(fd, cmdline, size - 1);
	if (n < 0) {
		die("cannot read /proc/cmdline");
	}
	close(fd);
	cmdline[n] = '\0';

	char *save = NULL;
	for (char *word = strtok_r(cmdline, " \n", &save); word;
		word = strtok_r(NULL, " \n", &save)) {
		if (strncmp(word, "root=", 5) == 0) {
			plan->root = word + 5;
		} else if (strncmp(word, "rootfstype=", 11) == 0) {
			plan->fstype = word + 11;
		} else if (strncmp(word, "rootflags=", 10) == 0) {
			plan->rootflags = word + 10;
		} else if (strncmp(word, "init=", 5) == 0) {
			plan->init = word + 5;
		} else if (strcmp(word, "ro") == 0) {
			plan->read_only = true;
		} else if (strcmp(word, "rw") == 0) {
			plan->read_only = false;
		}
	}
}

/* ---- modules and devices
 * ------------------------------------------------------------------------- */

static void module_insert(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		die("cannot open module %s", path);
	}
	if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST) {
		die("cannot insert module %s", path);
	}
	close(fd);
}

static void modules_insert(const char *list)
{
	FILE *f = fopen(list, "re");
	if (!f) {
		die("cannot open %s", list);
	}
	char line[256];
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] != '\0') {
			module_insert(line);
		}
	}
	fclose(f);
}

static int uevent_open(void)
{
	int fd = socket(
		AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
	struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_groups = 1};
	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		die("cannot listen for device events");
	}
	return fd;
}

static long now_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Only the fact that something happened counts; a lost event (ENOBUFS) is one more reason to look.
 */
static void uevent_drain(int fd)
{
	char event[4096];
	while (recv(fd, event, sizeof(event), 0) >= 0 || errno == ENOBUFS || errno == EINTR) {
	}
}

static void device_await(int uevents, const char *path)
{
	long deadline = now_ms() + DEVICE_DEADLINE_MS;
	struct stat st;
	while (stat(path, &st) < 0) {
		long left = deadline - now_ms();
		if (left <= 0) {
			errno = ETIMEDOUT;
			die("root device %s did not appear", path);
		}
		struct pollfd pfd = {.fd = uevents, .events = POLLIN};
		if (poll(&pfd, 1, (int)left) > 0) {
			uevent_drain(uevents);
		}
	}
}

/* ---- switch of roots
 * ----------------------------------------------------------------------------- */

/* Removes everything below @dirfd that lies on the ramdisk itself. Takes @dirfd. */
static void ramdisk_free(int dirfd, dev_t ramdisk)
{
	DIR *dir = fdopendir(dirfd);
	if (!dir) {
		return;
	}
	struct dirent *entry;
	while ((entry = readdir(dir))) {
		struct stat st;
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
			fstatat(dirfd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
			st.st_dev != ramdisk) {
			continue;
		}
		if (!S_ISDIR(st.st_mode)) {
			unlinkat(dirfd, entry->d_name, 0);
			continue;
		}
		int fd = openat(
			dirfd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0) {
			ramdisk_free(fd, ramdisk);
			unlinkat(dirfd, entry->d_name, AT_REMOVEDIR);
		}
	}
	closedir(dir);
}

static void root_switch(void)
{
	struct stat st;
	if (stat("/", &st) < 0) {
		die("cannot stat the ramdisk");
	}
	mount_or_die("/dev", NEWROOT "/dev", NULL, MS_MOVE, NULL);
	umount2("/proc", MNT_DETACH);
	if (chdir(NEWROOT) < 0) {
		die("cannot enter the root file system");
	}
	int top = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (top >= 0) {
		ramdisk_free(top, st.st_dev);
	}
	mount_or_die(".", "/", NULL, MS_MOVE, NULL);
	if (chroot(".") < 0 || chdir("/") < 0) {
		die("cannot switch to the root file system");
	}
}

int main(int argc, char **argv, char **envp)
{
	(void)argc;
	static char cmdline[4096];
	struct boot_plan plan = {
		.root = "/dev/vda",
		.fstype = "ext4",
		.rootflags = NULL,
		.init = "/sbin/init",
	};

	mount_or_die("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=0755");
	mount_or_die("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	plan_read(&plan, cmdline, sizeof(cmdline));

	int uevents = uevent_open();
	modules_insert("/modules");
	device_await(uevents, plan.root);
	close(uevents);

	/* Nothing in a sandbox reads access times, and each would be a write into the overlay. */
	unsigned long flags = MS_NOATIME | (plan.read_only ? MS_RDONLY : 0);
	mount_or_die(plan.root, NEWROOT, plan.fstype, flags, plan.rootflags);
	root_switch();
	argv[0] = (char *)plan.init;
	execve(plan.init, argv, envp);
	die("cannot execute %s", plan.init);
}
