#include "src/machine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <net/if.h>
#include <net/route.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/log.h"
#include "src/options.h"

/* QEMU's user-mode network gives the same addresses to every guest. */
#define NET_ADDRESS "10.0.2.15"
#define NET_MASK    "255.255.255.0"
#define NET_GATEWAY "10.0.2.2"
#define NET_DNS     "10.0.2.3"

#define EXT4_MAGIC         0xef53
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)

#define TERM_GRACE_MS 1500
#define KILL_GRACE_MS 500

/* ---- mounts --------------------------------------------------------------------------------- */

static void mount_all(void)
{
	static const struct {
		const char *type;
		const char *path;
		unsigned long flags;
		const char *data;
	} mounts[] = {
		{"proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
		{"sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
		{"devtmpfs", "/dev", MS_NOSUID, "mode=755"},
		{"devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "mode=620,gid=5,ptmxmode=666"},
		{"tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777"},
		{"tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=755,size=20%"},
		{"tmpfs", "/run/lock", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=1777,size=5m"},
		{"cgroup2", "/sys/fs/cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(mounts); i++) {
		mkdir(mounts[i].path, 0755);
		/* EBUSY: the initrd has mounted it already. */
		if (mount(mounts[i].type, mounts[i].path, mounts[i].type, mounts[i].flags,
			    mounts[i].data) != 0 &&
			errno != EBUSY) {
			log_warn("can't mount %s: %s", mounts[i].path, strerror(errno));
		}
	}
}

/* devtmpfs doesn't bring them. */
static void link_devices(void)
{
	static const char *const links[][2] = {
		{"/proc/self/fd", "/dev/fd"},
		{"/proc/self/fd/0", "/dev/stdin"},
		{"/proc/self/fd/1", "/dev/stdout"},
		{"/proc/self/fd/2", "/dev/stderr"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		if (symlink(links[i][0], links[i][1]) != 0 && errno != EEXIST) {
			log_warn("can't link %s: %s", links[i][1], strerror(errno));
		}
	}
}

/* What systemd sets where it is init: links and files in /tmp that aren't theirs trick nobody. */
static void protect_links(void)
{
	static const char *const names[] = {"hardlinks", "symlinks", "fifos", "regular"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char path[64];

		snprintf(path, sizeof path, "/proc/sys/fs/protected_%s", names[i]);
		util_write_text(path, "1");
	}
}

static void make_user_dirs(void)
{
	const char *const dirs[] = {options.home, options.workspace};

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		if (mkdir(dirs[i], 0755) == 0 && chown(dirs[i], options.uid, options.gid) != 0) {
			log_warn("can't chown %s: %s", dirs[i], strerror(errno));
		}
	}
}

/* ---- network -------------------------------------------------------------------------------- */

static void set_address(struct sockaddr *out, const char *text)
{
	struct sockaddr_in in = {.sin_family = AF_INET};

	inet_pton(AF_INET, text, &in.sin_addr);
	memcpy(out, &in, sizeof in);
}

static bool set_up(int fd, const char *name)
{
	struct ifreq request = {0};

	snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
	if (ioctl(fd, SIOCGIFFLAGS, &request) != 0) {
		return false;
	}
	request.ifr_flags |= IFF_UP | IFF_RUNNING;
	return ioctl(fd, SIOCSIFFLAGS, &request) == 0;
}

static bool set_interface_address(int fd, unsigned long what, const char *text)
{
	struct ifreq request = {.ifr_name = "eth0"};

	set_address(&request.ifr_addr, text);
	return ioctl(fd, what, &request) == 0;
}

static bool set_up_eth0(int fd)
{
	struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};

	if (!set_interface_address(fd, SIOCSIFADDR, NET_ADDRESS) ||
		!set_interface_address(fd, SIOCSIFNETMASK, NET_MASK) || !set_up(fd, "eth0")) {
		return false;
	}
	set_address(&route.rt_dst, "0.0.0.0");
	set_address(&route.rt_genmask, "0.0.0.0");
	set_address(&route.rt_gateway, NET_GATEWAY);
	return ioctl(fd, SIOCADDRT, &route) == 0;
}

static void set_up_network(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		log_warn("no network: %s", strerror(errno));
		return;
	}
	set_up(fd, "lo");
	if (access("/sys/class/net/eth0", F_OK) == 0) {
		if (!set_up_eth0(fd)) {
			log_warn("can't set up eth0: %s", strerror(errno));
		}
		static const char resolver[] = "nameserver " NET_DNS "\n";

		util_save("/etc/resolv.conf", resolver, sizeof resolver - 1);
	}
	close(fd);
}

/* ---- host name ------------------------------------------------------------------------------ */

/* Replaces the line of 127.0.1.1, which is where Debian puts the host's own name. */
static int save_hosts(const char *name)
{
	static char old[32768];
	static char text[sizeof old + 256];
	size_t len = 0;

	if (util_read_text("/etc/hosts", old, sizeof old) == (ssize_t)sizeof old - 1) {
		errno = EFBIG; /* there may be more of it */
		return -1;
	}
	for (char *line = old; *line != '\0';) {
		size_t n = strcspn(line, "\n");

		n += line[n] == '\n';
		if (strncmp(line, "127.0.1.1", 9) != 0) {
			memcpy(text + len, line, n);
			len += n;
		}
		line += n;
	}
	if (len > 0 && text[len - 1] != '\n') {
		text[len++] = '\n';
	}
	len += (size_t)snprintf(text + len, sizeof text - len, "127.0.1.1\t%s\n", name);
	return util_save("/etc/hosts", text, len);
}

int machine_set_hostname(const char *name)
{
	char line[128];
	int len = snprintf(line, sizeof line, "%s\n", name);

	if (sethostname(name, strlen(name)) != 0) {
		return -1;
	}
	if (util_save("/etc/hostname", line, (size_t)len) != 0 || save_hosts(name) != 0) {
		log_warn("host name is set but not saved: %s", strerror(errno));
	}
	return 0;
}

static void load_hostname(void)
{
	char name[128];

	if (util_read_text("/etc/hostname", name, sizeof name) > 0) {
		name[strcspn(name, "\n")] = '\0';
		if (sethostname(name, strlen(name)) != 0) {
			log_warn("can't set the host name: %s", strerror(errno));
		}
	}
}

/* ---- disk ----------------------------------------------------------------------------------- */

bool machine_grow_root(void)
{
	struct stat st;
	struct statfs fs;
	char path[64];

	if (stat("/", &st) != 0 || statfs("/", &fs) != 0 || fs.f_type != EXT4_MAGIC) {
		return false;
	}
	snprintf(
		path, sizeof path, "/sys/dev/block/%u:%u/size", major(st.st_dev), minor(st.st_dev));

	uint64_t blocks = util_read_number(path) * 512u / (uint64_t)fs.f_bsize;
	int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool is_grown = fd >= 0 && blocks > 0 && ioctl(fd, EXT4_IOC_RESIZE_FS, &blocks) == 0;

	if (!is_grown) {
		log_warn("can't grow the root file system: %s", strerror(errno));
	}
	util_close(&fd);
	return is_grown;
}

void machine_set_up(void)
{
	umask(022);
	mount_all();
	log_to_kernel();
	link_devices();
	protect_links();
	make_user_dirs();
	load_hostname();
	set_up_network();
	reboot(RB_DISABLE_CAD);
}

/* ---- power off ------------------------------------------------------------------------------ */

/* Reaps until no process is left or @limit_ms is over. */
static void reap_all(uint64_t limit_ms)
{
	uint64_t until = now_ms() + limit_ms;
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	for (uint64_t now; (now = now_ms()) < until;) {
		pid_t pid = waitpid(-1, NULL, WNOHANG);

		if (pid < 0 && errno == ECHILD) {
			return;
		}
		if (pid == 0) {
			struct timespec wait = {.tv_nsec = 20 * 1000 * 1000};

			sigtimedwait(&child, NULL, &wait);
		}
	}
}

void machine_power_off(void)
{
	if (!options.owns_machine) {
		exit(0);
	}
	log_info("powering off");
	if (!options.is_init) {
		kill(1, SIGRTMIN + 4); /* systemd: start poweroff.target */
		exit(0);
	}
	kill(-1, SIGTERM);
	kill(-1, SIGCONT);
	reap_all(TERM_GRACE_MS);
	kill(-1, SIGKILL);
	reap_all(KILL_GRACE_MS);
	sync();
	if (mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0) {
		log_warn("root stays writable: %s", strerror(errno));
		sync();
	}
	reboot(RB_POWER_OFF);
	for (;;) {
		pause();
	}
}
