#include "hv/accel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>

#include "base/cleanup.h"

/*
 * Theory of operation. That /dev/kvm opens isn't enough on x86: there are virtual machines in which
 * it opens and even makes guests, which then hang. Their processors don't show vmx or svm, and that
 * is what tells (virt-host-validate looks at the same). Other processors have no such flag; there
 * the device itself is asked.
 */

#define CPUINFO_LINE_BYTES 8192

static bool is_x86(const char *machine)
{
	return strcmp(machine, "x86_64") == 0 || strcmp(machine, "i686") == 0;
}

static bool line_has_flag(char *line)
{
	char *save;

	for (char *word = strtok_r(line, " \t\n:", &save); word;
		word = strtok_r(NULL, " \t\n:", &save)) {
		if (strcmp(word, "vmx") == 0 || strcmp(word, "svm") == 0) {
			return true;
		}
	}
	return false;
}

/* The first processor speaks for all. */
static bool has_virtualisation_flag(const char *cpuinfo)
{
	_cleanup_fclose_ FILE *file = fopen(cpuinfo, "re");
	char line[CPUINFO_LINE_BYTES];

	while (file && fgets(line, sizeof line, file)) {
		if (strncmp(line, "flags", strlen("flags")) == 0) {
			return line_has_flag(line);
		}
	}
	return false;
}

static bool is_kvm_device(int fd)
{
	return ioctl(fd, KVM_GET_API_VERSION, 0) == KVM_API_VERSION;
}

/* True if KVM works; the reason for either in @why. */
static bool probe(const struct accel_host *host, char why[ACCEL_WHY_BYTES])
{
	bool has_flags = is_x86(host->machine);

	if (has_flags && !has_virtualisation_flag(host->cpuinfo)) {
		snprintf(why, ACCEL_WHY_BYTES,
			"the processor shows neither vmx nor svm, so guests are emulated");
		return false;
	}
	_cleanup_close_ int fd = open(host->kvm, O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		snprintf(why, ACCEL_WHY_BYTES, "%s can't be opened (%s), so guests are emulated",
			host->kvm, strerrordesc_np(errno));
		return false;
	}
	if (!has_flags && !is_kvm_device(fd)) {
		snprintf(why, ACCEL_WHY_BYTES, "%s doesn't answer like KVM, so guests are emulated",
			host->kvm);
		return false;
	}
	snprintf(why, ACCEL_WHY_BYTES, "%s%s opens",
		has_flags ? "the processor has hardware virtualisation and " : "", host->kvm);
	return true;
}

int accel_parse(const char *text, enum hv_accel *ret, struct err *err)
{
	static const char *const names[] = {
		[HV_ACCEL_AUTO] = "auto", [HV_ACCEL_KVM] = "kvm", [HV_ACCEL_TCG] = "tcg"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(text, names[i]) == 0) {
			*ret = (enum hv_accel)i;
			return 0;
		}
	}
	return err_set(err, ERR_INVALID, "acceleration is one of auto, kvm and tcg");
}

static int check_forced_kvm(const struct accel_host *host, struct err *err)
{
	_cleanup_close_ int fd = open(host->kvm, O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		return err_set(err, ERR_UNAVAILABLE, "acceleration is set to kvm, but %s: %s",
			host->kvm, strerrordesc_np(errno));
	}
	return 0;
}

int accel_choose(enum hv_accel wanted, const struct accel_host *host, struct accel_choice *ret,
	struct err *err)
{
	struct utsname names;
	struct accel_host this_host = {.cpuinfo = "/proc/cpuinfo", .kvm = "/dev/kvm"};

	if (!host) {
		this_host.machine = uname(&names) == 0 ? names.machine : "";
		host = &this_host;
	}
	if (wanted == HV_ACCEL_AUTO) {
		ret->is_kvm = probe(host, ret->why);
		return 0;
	}
	if (wanted == HV_ACCEL_KVM && check_forced_kvm(host, err) != 0) {
		return -1;
	}
	ret->is_kvm = wanted == HV_ACCEL_KVM;
	snprintf(ret->why, sizeof ret->why, "the configuration says %s",
		ret->is_kvm ? "kvm" : "tcg");
	return 0;
}
