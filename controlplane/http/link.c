#include "http/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"

/*
 * Theory of operation. One event, edge-triggered and for everything, from beginning to end: it
 * costs one system call in the connection's life. An edge only sets a flag; reads and writes happen
 * when their time has come and clear it once the kernel has no more. So a connection whose input
 * nobody wants at present is still told when its peer leaves, whatever lies in between, which a
 * level-triggered event that isn't wanted would not tell, and one that is would tell for ever.
 * (An orderly end behind more than the kernel takes is still with the peer, and not to be seen.)
 *
 * An orderly end shows as EV_CLOSED. A reset shows as EPOLLERR, which libevent delivers as EV_READ
 * and EV_WRITE alone: where those come together poll() says what is so.
 */

/* A client that is silent for so long is asked whether it is there, so often, so many times. */
#define PROBE_IDLE_S 30
#define PROBE_EACH_S 10
#define PROBE_COUNT  3

static void look_for_end(struct http_link *link)
{
	struct pollfd state = {.fd = link->fd, .events = POLLRDHUP};

	if (poll(&state, 1, 0) > 0) {
		link->has_left |= (state.revents & (POLLRDHUP | POLLHUP)) != 0;
		link->is_broken |= (state.revents & POLLERR) != 0;
	}
}

static void on_edge(evutil_socket_t fd, short what, void *arg)
{
	struct http_link *link = arg;

	(void)fd;
	link->is_readable |= (what & (EV_READ | EV_CLOSED)) != 0;
	link->is_writable |= (what & EV_WRITE) != 0;
	link->has_left |= (what & EV_CLOSED) != 0;
	if ((what & EV_READ) && (what & EV_WRITE)) {
		look_for_end(link);
	}
	link->fn(link->arg);
}

void http_link_init(
	struct http_link *link, struct loop *loop, int fd, void (*fn)(void *arg), void *arg)
{
	int rc;

	*link = (struct http_link){.fd = fd, .is_writable = true, .fn = fn, .arg = arg};
	link->in = evbuffer_new();
	link->out = evbuffer_new();
	link->event = event_new(loop_base(loop), fd,
		EV_READ | EV_WRITE | EV_CLOSED | EV_ET | EV_PERSIST, on_edge, link);
	ASSERT(link->in && link->out && link->event);
	rc = event_add(link->event, NULL);
	ASSERT(rc == 0);
}

void http_link_set_tcp(const struct http_link *link)
{
	static const struct {
		int level;
		int name;
		int value;
	} options[] = {
		/* What is written in pieces mustn't wait for the client's word on the piece before.
		 */
		{IPPROTO_TCP, TCP_NODELAY, 1},
		{SOL_SOCKET, SO_KEEPALIVE, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, PROBE_IDLE_S},
		{IPPROTO_TCP, TCP_KEEPINTVL, PROBE_EACH_S},
		{IPPROTO_TCP, TCP_KEEPCNT, PROBE_COUNT},
	};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		setsockopt(link->fd, options[i].level, options[i].name, &options[i].value,
			sizeof options[i].value);
	}
}

void http_link_close(struct http_link *link)
{
	if (link->fd >= 0) {
		event_free(link->event);
		evbuffer_free(link->in);
		evbuffer_free(link->out);
		close(link->fd);
		link->fd = -1;
	}
}

void http_link_reset(struct http_link *link)
{
	const struct linger now = {.l_onoff = 1};

	if (link->fd >= 0) {
		setsockopt(link->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
		http_link_close(link);
	}
}

void http_link_shut(struct http_link *link)
{
	shutdown(link->fd, SHUT_WR);
}

static bool is_for_later(int error)
{
	return error == EAGAIN || error == EINTR;
}

/* Through a buffer of ours: one that is reserved in .in would be held for as long as any of it is.
 */
size_t http_link_read(struct http_link *link, size_t max)
{
	static char bytes[HTTP_LINK_READ_MAX_BYTES];

	if (!link->is_readable || link->is_end || link->is_broken || max == 0) {
		return 0;
	}
	size_t asked = MIN(max, sizeof bytes);
	ssize_t n = recv(link->fd, bytes, asked, 0);

	if (n < 0) {
		link->is_readable = errno == EINTR;
		link->is_broken |= !is_for_later(errno);
		return 0;
	}
	if (n == 0) {
		link->is_end = true;
		link->has_left = true;
		return 0;
	}
	/* Less than was asked for is all there is: what comes after makes another edge. The end
	 * behind it has made its own. */
	link->is_readable = (size_t)n == asked || link->has_left;
	evbuffer_add(link->in, bytes, (size_t)n);
	link->read_bytes += (size_t)n;
	return (size_t)n;
}

size_t http_link_write(struct http_link *link)
{
	size_t sent = 0;

	while (link->is_writable && !link->is_broken && evbuffer_get_length(link->out) > 0) {
		int n = evbuffer_write(link->out, link->fd);

		if (n <= 0) {
			link->is_writable = n < 0 && errno == EINTR;
			link->is_broken |= n < 0 && !is_for_later(errno);
		} else {
			sent += (size_t)n;
		}
	}
	return sent;
}
