#include "netfilter/monitor.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/xalloc.h"

/*
 * Theory of operation
 *
 * The kernel sends one message for each object that a transaction added or removed, to every
 * subscriber, before the transaction's own call returns. In all of them (tables, chains, rules,
 * sets, elements, objects, flow tables) attribute 1 names the table.
 *
 * After the last one comes the new generation number, so it can be told how many transactions
 * touched the table, however many others there were in between.
 *
 * A subscriber that is too slow loses messages and gets ENOBUFS: counted as a change. Should the
 * subscription fail altogether, the generation number still tells that something changed; the
 * caller asks for it at intervals. That request is answered within sendto(), so the answer can be
 * read without waiting.
 */

#define TABLE_NAME_ATTRIBUTE 1
#define QUEUE_BYTES          (1024 * 1024)
#define ROUNDS_MAX           2048 /* messages in one turn of the loop */

struct monitor {
	struct mnl_socket *events;
	struct mnl_socket *requests;
	struct event *readable;
	void (*on_news)(void *arg, const struct monitor_news *news);
	void *arg;
	uint32_t sequence;
	bool is_touching; /* the transaction whose messages are coming in touches the table */
	char table[64];
};

struct look {
	struct monitor *monitor;
	struct monitor_news news;
};

_Static_assert((int)NFTA_TABLE_NAME == TABLE_NAME_ATTRIBUTE &&
		       (int)NFTA_CHAIN_TABLE == TABLE_NAME_ATTRIBUTE &&
		       (int)NFTA_RULE_TABLE == TABLE_NAME_ATTRIBUTE &&
		       (int)NFTA_SET_TABLE == TABLE_NAME_ATTRIBUTE &&
		       (int)NFTA_SET_ELEM_LIST_TABLE == TABLE_NAME_ATTRIBUTE,
	"one attribute names the table in every message");

static int take_table_name(const struct nlattr *attribute, void *data)
{
	const char **name = data;

	if (mnl_attr_get_type(attribute) == TABLE_NAME_ATTRIBUTE &&
		mnl_attr_validate(attribute, MNL_TYPE_NUL_STRING) == 0) {
		*name = mnl_attr_get_str(attribute);
	}
	return MNL_CB_OK;
}

static int look_at(const struct nlmsghdr *message, void *data)
{
	struct look *look = data;
	int type = NFNL_MSG_TYPE(message->nlmsg_type);
	const char *name = NULL;

	if (NFNL_SUBSYS_ID(message->nlmsg_type) != NFNL_SUBSYS_NFTABLES ||
		mnl_nlmsg_get_payload_len(message) < sizeof(struct nfgenmsg)) {
		return MNL_CB_OK;
	}
	if (type == NFT_MSG_NEWGEN) {
		look->news.transactions += look->monitor->is_touching;
		look->monitor->is_touching = false;
		return MNL_CB_OK;
	}
	const struct nfgenmsg *head = mnl_nlmsg_get_payload(message);

	mnl_attr_parse(message, sizeof *head, take_table_name, &name);
	if (head->nfgen_family != NFPROTO_INET || !name ||
		strcmp(name, look->monitor->table) != 0) {
		return MNL_CB_OK;
	}
	look->monitor->is_touching = true;
	look->news.is_touched = true;
	look->news.is_removed |= type == NFT_MSG_DELTABLE || type == NFT_MSG_DELCHAIN ||
				 type == NFT_MSG_DELRULE || type == NFT_MSG_DELSET ||
				 type == NFT_MSG_DELSETELEM;
	return MNL_CB_OK;
}

struct monitor_news monitor_drain(struct monitor *monitor)
{
	struct look look = {.monitor = monitor};
	char buffer[32768] __attribute__((aligned(8)));

	for (int i = 0; i < ROUNDS_MAX; i++) {
		ssize_t n = mnl_socket_recvfrom(monitor->events, buffer, sizeof buffer);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0 && errno == EAGAIN) {
			break;
		}
		if (n <= 0 || mnl_cb_run(buffer, (size_t)n, 0, 0, look_at, &look) < 0) {
			look.news.is_lost = true;
		}
	}
	return look.news;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct monitor *monitor = arg;
	struct monitor_news news = monitor_drain(monitor);

	(void)fd;
	(void)what;
	if (news.is_touched || news.transactions > 0 || news.is_lost) {
		monitor->on_news(monitor->arg, &news);
	}
}

static int fail(struct err *err, const char *what)
{
	int sys = errno;
	enum err_kind kind = sys == EPERM ? ERR_FORBIDDEN : ERR_UNAVAILABLE;

	return err_set_at(err, kind, sys, __FILE__, __LINE__, "can't %s: %s", what, strerror(sys));
}

static struct mnl_socket *open_socket(unsigned groups, struct err *err)
{
	struct mnl_socket *socket = mnl_socket_open2(
		NETLINK_NETFILTER, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (socket && mnl_socket_bind(socket, groups, MNL_SOCKET_AUTOPID) == 0) {
		return socket;
	}
	fail(err, "watch nftables");
	if (socket) {
		mnl_socket_close(socket);
	}
	return NULL;
}

struct monitor *monitor_new(struct loop *loop, const char *table,
	void (*on_news)(void *arg, const struct monitor_news *news), void *arg, struct err *err)
{
	_cleanup_(monitor_free_p) struct monitor *monitor = xnew(struct monitor);
	int size = QUEUE_BYTES;

	loop_assert();
	ASSERT(strlen(table) < sizeof monitor->table);
	strcpy(monitor->table, table);
	monitor->on_news = on_news;
	monitor->arg = arg;
	monitor->events = open_socket(1u << (NFNLGRP_NFTABLES - 1), err);
	if (!monitor->events) {
		return NULL;
	}
	monitor->requests = open_socket(0, err);
	if (!monitor->requests) {
		return NULL;
	}
	int fd = mnl_socket_get_fd(monitor->events);

	/* A smaller queue only means that more is looked at for nothing. */
	(void)!setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
	monitor->readable = event_new(
		loop_base(loop), fd, EV_READ | EV_PERSIST, on_readable, monitor);
	ASSERT(monitor->readable != NULL && event_add(monitor->readable, NULL) == 0);
	return steal_ptr(&monitor);
}

void monitor_free(struct monitor *monitor)
{
	if (!monitor) {
		return;
	}
	if (monitor->readable) {
		event_free(monitor->readable);
	}
	if (monitor->events) {
		mnl_socket_close(monitor->events);
	}
	if (monitor->requests) {
		mnl_socket_close(monitor->requests);
	}
	free(monitor);
}

static int take_id(const struct nlattr *attribute, void *data)
{
	if (mnl_attr_get_type(attribute) == NFTA_GEN_ID &&
		mnl_attr_validate(attribute, MNL_TYPE_U32) == 0) {
		*(uint32_t *)data = ntohl(mnl_attr_get_u32(attribute));
	}
	return MNL_CB_OK;
}

static int take_generation(const struct nlmsghdr *message, void *data)
{
	if (NFNL_MSG_TYPE(message->nlmsg_type) == NFT_MSG_NEWGEN) {
		mnl_attr_parse(message, sizeof(struct nfgenmsg), take_id, data);
	}
	return MNL_CB_OK;
}

int monitor_generation(struct monitor *monitor, uint32_t *ret, struct err *err)
{
	char buffer[1024] __attribute__((aligned(8)));
	char stale[1024] __attribute__((aligned(8)));
	struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
	struct nfgenmsg *head;

	request->nlmsg_type = (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETGEN;
	request->nlmsg_flags = NLM_F_REQUEST;
	request->nlmsg_seq = ++monitor->sequence;
	head = mnl_nlmsg_put_extra_header(request, sizeof *head);
	head->nfgen_family = AF_UNSPEC;
	head->version = NFNETLINK_V0;
	/* An answer that came too late for its question isn't the answer to this one. */
	while (mnl_socket_recvfrom(monitor->requests, stale, sizeof stale) >= 0) {
	}
	if (mnl_socket_sendto(monitor->requests, request, request->nlmsg_len) < 0) {
		return fail(err, "ask for the generation of nftables");
	}
	ssize_t n = mnl_socket_recvfrom(monitor->requests, buffer, sizeof buffer);

	*ret = 0;
	if (n < 0 || mnl_cb_run(buffer, (size_t)n, monitor->sequence,
			     mnl_socket_get_portid(monitor->requests), take_generation, ret) < 0) {
		return fail(err, "learn the generation of nftables");
	}
	return *ret != 0 ? 0 : err_set(err, ERR_INTERNAL, "nftables tells no generation");
}
