/*
 * Theory of operation
 *
 * The port is watched edge-triggered. is_readable and is_writable are set by events and cleared by
 * EAGAIN, so nothing polls, and a port whose host is away (POLLHUP for as long as that lasts, which
 * made other agents spin) costs one event when the host goes and one when it comes back. In case
 * a driver forgets to wake us, a back-off timer looks too.
 *
 *   CLOSED ──open──► UP ──HUP, EOF──► AWAY ──event or timer without HUP──► UP
 *      ▲                               │
 *      └──────── socket: reconnect ◄───┘        inherited descriptor: the agent ends
 *
 * STARTED and CLOSE wait up to TX_LAZY_MS for something to go with them: a short command is then
 * answered in one write. Each write wakes the hypervisor, which costs more than all else that a
 * command of a millisecond needs from us.
 *
 * A virtio port takes 32 KiB in one write and gives 4 KiB in one read; both are called until
 * EAGAIN.
 */

#include "src/port.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#include "src/log.h"
#include "src/loop.h"
#include "src/options.h"

#define RX_BYTES       (2u * (PROTO_HEADER_BYTES + PROTO_PAYLOAD_MAX_BYTES))
#define TX_BYTES       (256u * 1024u)
#define TX_LAZY_MS     20u
#define RETRY_FIRST_MS 20u
#define RETRY_MAX_MS   1000u

enum port_state { PORT_CLOSED, PORT_UP, PORT_AWAY };

static struct {
	enum port_state state;
	int fd;
	bool is_socket;
	bool is_readable;
	bool is_writable;
	bool is_muted;     /* no session: whatever is put is dropped */
	bool is_starved;   /* somebody wanted room for data and got none */
	bool has_overflow; /* a control frame was lost */
	bool has_gone;     /* the host went and nobody has been told yet */
	bool is_urgent;    /* there is more to send than what may wait */
	uint64_t lazy_until_ms;
	uint64_t retry_at_ms;
	uint64_t retry_ms;
	uint64_t last_byte_ms;
	size_t rx_len;
	size_t tx_head;
	size_t tx_tail;
} port = {.fd = -1};

static uint8_t rx[RX_BYTES];
static uint8_t tx[TX_BYTES];

/* ---- opening -------------------------------------------------------------------------------- */

static bool find_virtio_port(char *out, size_t size)
{
	DIR *dir = opendir("/sys/class/virtio-ports");
	bool found = false;

	if (dir == NULL) {
		return false;
	}
	for (struct dirent *entry; !found && (entry = readdir(dir)) != NULL;) {
		char path[384];
		char name[128];

		snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", entry->d_name);
		if (entry->d_name[0] == '.' || util_read_text(path, name, sizeof name) <= 0) {
			continue;
		}
		name[strcspn(name, "\n")] = '\0';
		if (strcmp(name, PROTO_PORT_NAME) == 0) {
			snprintf(out, size, "/dev/%s", entry->d_name);
			found = true;
		}
	}
	closedir(dir);
	return found;
}

static int connect_socket(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof addr.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(addr.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof addr) != 0) {
		util_close(&fd);
	}
	return fd;
}

static int open_path(const char *path)
{
	struct stat st;

	port.is_socket = stat(path, &st) == 0 && S_ISSOCK(st.st_mode);
	if (port.is_socket) {
		return connect_socket(path);
	}
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd >= 0 && isatty(fd)) {
		struct termios raw;

		if (tcgetattr(fd, &raw) == 0) {
			cfmakeraw(&raw);
			tcsetattr(fd, TCSANOW, &raw);
		}
	}
	return fd;
}

static int open_port(void)
{
	char path[300];

	if (options.port_fd >= 0) {
		fcntl(options.port_fd, F_SETFD, FD_CLOEXEC);
		return options.port_fd;
	}
	if (options.port_path != NULL) {
		return open_path(options.port_path);
	}
	if (!find_virtio_port(path, sizeof path)) {
		errno = ENOENT;
		return -1;
	}
	return open_path(path);
}

static void retry_later(void)
{
	port.retry_ms = port.retry_ms == 0 ? RETRY_FIRST_MS : MIN(port.retry_ms * 2, RETRY_MAX_MS);
	port.retry_at_ms = now_ms() + port.retry_ms;
}

static void came_up(void)
{
	port.state = PORT_UP;
	port.retry_ms = 0;
	port.retry_at_ms = 0;
	port.is_readable = true;
	port.is_writable = true;
}

void port_start(void)
{
	port.fd = open_port();
	if (port.fd < 0) {
		retry_later();
		return;
	}
	fcntl(port.fd, F_SETFL, fcntl(port.fd, F_GETFL) | O_NONBLOCK);
	if (loop_watch(port.fd, EPOLLIN | EPOLLOUT, (struct loop_ref){.kind = LOOP_PORT}) != 0) {
		log_err("can't watch the port: %s", strerror(errno));
		if (options.port_fd >= 0) {
			exit(1);
		}
		util_close(&port.fd);
		retry_later();
		return;
	}
	came_up();
	loop_kick();
}

/* ---- coming and going ----------------------------------------------------------------------- */

static void went_away(void)
{
	if (options.port_fd >= 0) {
		log_info("the host closed the channel");
		exit(0);
	}
	port.state = PORT_AWAY;
	port.has_gone = true;
	port.is_readable = false;
	port.is_writable = false;
	port.rx_len = 0;
	port.tx_head = port.tx_tail = 0;
	if (port.is_socket) {
		util_close(&port.fd);
	}
	retry_later();
}

void port_on_event(uint32_t events)
{
	if (port.state == PORT_AWAY && (events & EPOLLHUP) == 0) {
		came_up();
	}
	if (port.state != PORT_UP) {
		return;
	}
	/* Bytes may still wait behind a hang-up: the read that follows finds the end. */
	port.is_readable = port.is_readable || (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
	port.is_writable = port.is_writable || (events & EPOLLOUT) != 0;
}

static bool is_hung_up(void)
{
	struct pollfd p = {.fd = port.fd, .events = POLLIN};

	return poll(&p, 1, 0) < 0 || (p.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

bool port_tick(void)
{
	bool has_gone = port.has_gone;

	port.has_gone = false;
	if (port.state != PORT_UP && now_ms() >= port.retry_at_ms) {
		if (port.fd < 0) {
			port_start();
		} else if (is_hung_up()) {
			retry_later();
		} else {
			came_up();
		}
	}
	if (port.state != PORT_UP) {
		loop_note_deadline(port.retry_at_ms);
	}
	return has_gone;
}

/* ---- receiving ------------------------------------------------------------------------------ */

bool port_fill(void)
{
	bool has_new = false;

	while (port.is_readable && port.rx_len < sizeof rx) {
		ssize_t n = read(port.fd, rx + port.rx_len, sizeof rx - port.rx_len);

		if (n > 0) {
			port.rx_len += (size_t)n;
			has_new = true;
		} else if (n < 0 && errno == EAGAIN) {
			port.is_readable = false;
		} else if (n == 0 || errno != EINTR) {
			went_away();
		}
	}
	if (has_new) {
		port.last_byte_ms = now_ms();
	}
	return has_new;
}

const uint8_t *port_received(size_t *ret_len)
{
	*ret_len = port.rx_len;
	return rx;
}

void port_consume(size_t len)
{
	port.rx_len -= len;
	if (port.rx_len > 0) {
		memmove(rx, rx + len, port.rx_len);
	}
	if (port.is_readable) {
		loop_kick();
	}
}

uint64_t port_last_byte_ms(void)
{
	return port.last_byte_ms;
}

/* ---- sending -------------------------------------------------------------------------------- */

static size_t room(void)
{
	return sizeof tx - (port.tx_tail - port.tx_head);
}

static void compact(void)
{
	if (port.tx_head > 0) {
		memmove(tx, tx + port.tx_head, port.tx_tail - port.tx_head);
		port.tx_tail -= port.tx_head;
		port.tx_head = 0;
	}
}

bool port_has_reserve(void)
{
	bool has = room() >= PORT_TX_RESERVE_BYTES;

	port.is_starved = port.is_starved || !has;
	return has;
}

uint8_t *port_room_for_data(size_t *ret_size)
{
	size_t keep = PORT_TX_RESERVE_BYTES + PROTO_HEADER_BYTES;

	*ret_size = 0;
	if (port.state != PORT_UP || port.is_muted || room() <= keep) {
		port.is_starved = port.state == PORT_UP && !port.is_muted;
		return NULL;
	}
	if (sizeof tx - port.tx_tail < PROTO_HEADER_BYTES + PROTO_PAYLOAD_MAX_BYTES) {
		compact();
	}
	*ret_size = MIN(MIN(room() - keep, sizeof tx - port.tx_tail - PROTO_HEADER_BYTES),
		PROTO_PAYLOAD_MAX_BYTES);
	return tx + port.tx_tail + PROTO_HEADER_BYTES;
}

void port_commit_data(uint32_t stream, enum frame_channel channel, size_t len)
{
	port.is_urgent = true;
	frame_header(tx + port.tx_tail, FRAME_DATA, (uint16_t)channel, stream, (uint32_t)len);
	port.tx_tail += PROTO_HEADER_BYTES + len;
}

void port_put(uint16_t type, uint16_t flags, uint32_t stream, const void *payload, size_t len)
{
	if (port.state != PORT_UP || port.is_muted) {
		return;
	}
	if (room() < PROTO_HEADER_BYTES + len) {
		port.has_overflow = true;
		return;
	}
	if (sizeof tx - port.tx_tail < PROTO_HEADER_BYTES + len) {
		compact();
	}
	if (type != FRAME_STARTED && type != FRAME_CLOSE) {
		port.is_urgent = true;
	} else if (port.tx_head == port.tx_tail) {
		port.lazy_until_ms = now_ms() + TX_LAZY_MS;
	}
	frame_header(tx + port.tx_tail, type, flags, stream, (uint32_t)len);
	if (len > 0) {
		memcpy(tx + port.tx_tail + PROTO_HEADER_BYTES, payload, len);
	}
	port.tx_tail += PROTO_HEADER_BYTES + len;
}

void port_set_muted(bool is_muted)
{
	port.is_muted = is_muted;
}

void port_drop_unsent(void)
{
	port.tx_head = port.tx_tail = 0;
	port.has_overflow = false;
}

/* True when all that is to be sent may still wait. */
static bool can_wait(void)
{
	if (port.is_urgent || port.tx_head == port.tx_tail || now_ms() >= port.lazy_until_ms) {
		return false;
	}
	loop_note_deadline(port.lazy_until_ms);
	return true;
}

void port_flush(void)
{
	if (can_wait()) {
		return;
	}
	while (port.is_writable && port.tx_head < port.tx_tail) {
		ssize_t n = write(port.fd, tx + port.tx_head, port.tx_tail - port.tx_head);

		if (n > 0) {
			port.tx_head += (size_t)n;
		} else if (n < 0 && errno == EAGAIN) {
			port.is_writable = false;
		} else if (n == 0 || errno != EINTR) {
			went_away();
		}
	}
	if (port.tx_head == port.tx_tail) {
		port.tx_head = port.tx_tail = 0;
		port.is_urgent = false;
	}
	if (port.is_starved && room() > PORT_TX_RESERVE_BYTES + PROTO_PAYLOAD_MAX_BYTES / 2) {
		port.is_starved = false;
		loop_kick();
	}
}

void port_flush_blocking(uint64_t limit_ms)
{
	uint64_t until = now_ms() + limit_ms;

	port.is_urgent = true;
	for (uint64_t now; port_flush(), port.tx_head < port.tx_tail && (now = now_ms()) < until;) {
		struct pollfd p = {.fd = port.fd, .events = POLLOUT};

		poll(&p, 1, (int)(until - now));
		port.is_writable = true;
	}
}

bool port_take_overflow(void)
{
	bool has_overflow = port.has_overflow;

	port.has_overflow = false;
	return has_overflow;
}
