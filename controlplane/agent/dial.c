#include "agent/dial.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/xalloc.h"

/* Connected descriptor, or -1 with errno. */
static int connect_once(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	if (strlen(path) > DIAL_PATH_MAX_BYTES) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(addr.sun_path, path);
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		return -1;
	}
	/* A unix socket connects at once or not at all (EAGAIN: the backlog is full). */
	if (connect(fd, (const struct sockaddr *)&addr, sizeof addr) < 0) {
		return -1;
	}
	return steal_fd(&fd);
}

static bool is_normal(int error)
{
	return error == ENOENT || error == ECONNREFUSED || error == EAGAIN || error == EINTR;
}

static void on_timer(evutil_socket_t unused_fd, short what, void *arg)
{
	struct dial *dial = arg;
	int fd = connect_once(dial->path);
	int error = errno;

	(void)unused_fd;
	(void)what;
	if (fd >= 0) {
		dial->hooks.on_connected(dial->hooks.arg, fd);
		return;
	}
	bool is_late = clock_monotonic_ms() - dial->since_ms >= DIAL_START_SPAN_MS;

	dial->pause_ms = is_late ? DIAL_LATER_MS : MIN(dial->pause_ms * 2, DIAL_STARTING_MS);
	loop_timer_set(dial->timer, dial->pause_ms);
	if (!is_normal(error) && !dial->told) {
		struct err err;

		dial->told = true;
		err_sys(&err, error, "connect to a guest's socket");
		dial->hooks.on_trouble(dial->hooks.arg, &err);
	}
}

void dial_init(
	struct dial *dial, struct loop *loop, const char *path, const struct dial_hooks *hooks)
{
	*dial = (struct dial){.path = xstrdup(path), .hooks = *hooks};
	dial->timer = loop_timer_new(loop, on_timer, dial);
}

void dial_fini(struct dial *dial)
{
	if (dial->timer) {
		event_free(dial->timer);
		dial->timer = NULL;
	}
	free(steal_ptr(&dial->path));
}

void dial_start(struct dial *dial, uint64_t delay_ms)
{
	dial->since_ms = clock_monotonic_ms();
	dial->pause_ms = DIAL_FIRST_MS;
	dial->told = false;
	loop_timer_set(dial->timer, delay_ms);
}
