#include "src/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/options.h"

#define CTL_FD 3
/* Enough for the names of many directories; a tree made to hurt meets it. */
#define HELPER_DATA_BYTES (64u << 20)

/* ---- in the child --------------------------------------------------------------------------- */

void helper_send(int ctl, const struct helper_message *message, int fd)
{
	struct iovec part = {.iov_base = (void *)message, .iov_len = sizeof *message};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd >= 0) {
		header.msg_control = control.bytes;
		header.msg_controllen = sizeof control.bytes;
		struct cmsghdr *c = CMSG_FIRSTHDR(&header);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	if (sendmsg(ctl, &header, MSG_NOSIGNAL) < 0) {
		_exit(1);
	}
}

void helper_fail(int ctl, int sys)
{
	struct helper_message message = {.kind = HELPER_DONE, .sys = sys};

	helper_send(ctl, &message, -1);
	_exit(0);
}

void helper_refuse(int ctl, uint32_t status)
{
	struct helper_message message = {.kind = HELPER_DONE, .status = status};

	helper_send(ctl, &message, -1);
	_exit(0);
}

static bool become_user(void)
{
	if (!options.can_setuid) {
		return true;
	}
	return setgroups(0, NULL) == 0 && setresgid(options.gid, options.gid, options.gid) == 0 &&
	       setresuid(options.uid, options.uid, options.uid) == 0;
}

_noreturn_ static void child_main(int ctl, const struct helper_job *job)
{
	struct rlimit data = {HELPER_DATA_BYTES, HELPER_DATA_BYTES};
	sigset_t none;

	if (ctl != CTL_FD && dup2(ctl, CTL_FD) < 0) {
		_exit(1);
	}
	syscall(SYS_close_range, CTL_FD + 1u, ~0u, 0u);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!UTIL_IS_SANITIZED) {
		setrlimit(RLIMIT_DATA, &data);
	}
	umask(022);
	if (!become_user()) {
		helper_fail(CTL_FD, errno);
	}
	/* Changing the user has cleared it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	util_become_ordinary();
	if (job->kind == HELPER_PUT) {
		helper_run_put(CTL_FD, job);
	} else if (job->kind == HELPER_GET) {
		helper_run_get(CTL_FD, job);
	} else {
		helper_run_list(CTL_FD, job);
	}
}

/* ---- in the agent --------------------------------------------------------------------------- */

int helper_start(const struct helper_job *job, pid_t *ret_pid)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
		return -1;
	}
	pid_t pid = fork();

	if (pid == 0) {
		child_main(ends[1], job);
	}
	int saved = errno;

	close(ends[1]);
	if (pid < 0) {
		util_close(&ends[0]);
		errno = saved;
		return -1;
	}
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	*ret_pid = pid;
	return ends[0];
}

int helper_receive(int ctl, struct helper_message *ret, int *ret_fd)
{
	struct iovec part = {.iov_base = ret, .iov_len = sizeof *ret};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr header = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof control.bytes,
	};
	ssize_t n = recvmsg(ctl, &header, MSG_CMSG_CLOEXEC);

	*ret_fd = -1;
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		errno = EAGAIN;
		return -1;
	}
	if (n != (ssize_t)sizeof *ret) {
		return 0;
	}
	struct cmsghdr *c = CMSG_FIRSTHDR(&header);

	if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
	}
	return 1;
}
