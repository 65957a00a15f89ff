#include "hv/lv_conn.h"

#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "hv/lv_error.h"

/*
 * Theory of operation
 *
 * One attempt to open is one worker job. It does all that may take long: the first time libvirt
 * probes QEMU for its capabilities (seconds), and after a restart it re-attaches to the domains
 * that run. Only then is the connection shown to anybody.
 *
 * An attempt that misses its deadline isn't repeated before it came back: of the embedded driver
 * there can be only one at a root, so a second attempt would fail for the first one's sake.
 *
 * Letters carry the generation of the connection, since those of an old one may still lie in the
 * mailbox when the next is up. Those of one that is still being opened are kept until it is shown:
 * its loss would be told only once, and the list that it brings is older than they are.
 *
 * To a libvirt in another process, keep-alive messages are sent by libvirt's event thread: never
 * while a call is under way here, which would be two threads in one connection
 * (docs/hypervisor.md). So they begin once it is open and end before it is closed; calls have
 * connections of their own (lv_job.c).
 */

#define BACKOFF_FIRST_MS     1000
#define BACKOFF_MAX_MS       30000
#define KEEPALIVE_INTERVAL_S 5
#define KEEPALIVE_COUNT      3
#define SLOW_PROBE_MS        1000
#define CLOSE_GRACE_S        5
#define VERSION_NUMBERS(v)   (v) / 1000000, (v) / 1000 % 1000, (v) % 1000

enum conn_state { CONN_CLOSED, CONN_OPENING, CONN_READY, CONN_WAITING };

struct lv_conn {
	struct loop *loop;
	struct worker_pool *pool;
	struct lv_conn_config config;
	struct lv_conn_hooks hooks;
	struct lv_events *events;
	struct lv_mailbox *early; /* letters of the connection that is being opened */
	struct event *retry_timer;
	enum conn_state state;
	uint64_t backoff_ms;
	uint64_t generation;
	virConnectPtr virt;
	struct lv_subscription subscription;
};

/* One attempt. */
struct open_job {
	struct worker_job job;
	struct lv_conn *owner; /* the loop's; run() reads only config and events, which stay */
	uint64_t generation;
	virConnectPtr virt;
	struct lv_subscription subscription;
	struct lv_opened opened;
	struct lv_facts *facts;
};

/* The end of a connection, on a thread. */
struct close_job {
	struct worker_job job;
	virConnectPtr virt;
	struct lv_subscription subscription;
	bool is_subscribed;
};

/* ---- worker ---- */

static void close_blocking(virConnectPtr virt, const struct lv_subscription *subscription)
{
	(void)virConnectSetKeepAlive(virt, 0, 0);
	lv_events_unsubscribe_blocking(virt, subscription);
	virConnectClose(virt);
}

static int probe_capabilities(
	virConnectPtr virt, const struct lv_conn_config *config, uint64_t *ret_ms, struct err *err)
{
	uint64_t begin = clock_monotonic_ms();
	char *text = virConnectGetDomainCapabilities(virt, config->emulator, DOMAIN_ARCH,
		DOMAIN_MACHINE, config->is_kvm ? "kvm" : "qemu", 0);

	if (!text) {
		return lv_error_set(err, "ask libvirt what QEMU can do");
	}
	free(text);
	*ret_ms = clock_monotonic_ms() - begin;
	return 0;
}

/* Fills libvirt's cache; a second question must be answered from it. */
static int prime(struct open_job *job, struct err *err)
{
	const struct lv_conn_config *config = &job->owner->config;
	uint64_t first_ms, second_ms = 0;

	if (probe_capabilities(job->virt, config, &first_ms, err) != 0 ||
		probe_capabilities(job->virt, config, &second_ms, err) != 0) {
		return -1;
	}
	job->opened.is_probing_slow = second_ms >= SLOW_PROBE_MS;
	return 0;
}

/* Waits for domains that are being re-attached, then lists what is left. */
static int settle(struct open_job *job, struct err *err)
{
	const struct lv_conn_config *config = &job->owner->config;
	const struct lv_target target = {
		.conn = job->virt, .instance = config->instance, .pid_dir = config->place->pid_dir};
	uint64_t end = clock_monotonic_ms() + config->settle_ms;

	if (lv_domain_list_blocking(&target, &job->facts, &job->opened.count, err) != 0) {
		return -1;
	}
	for (size_t i = 0; i < job->opened.count && clock_monotonic_ms() < end; i++) {
		(void)lv_domain_settle_blocking(&target, job->facts[i].facts.id);
	}
	free(job->facts);
	job->facts = NULL;
	return lv_domain_list_blocking(&target, &job->facts, &job->opened.count, err);
}

static void read_versions(struct open_job *job)
{
	unsigned long version = 0;

	(void)virConnectGetLibVersion(job->virt, &version);
	snprintf(job->opened.libvirt_version, sizeof job->opened.libvirt_version, "%lu.%lu.%lu",
		VERSION_NUMBERS(version));
	version = 0;
	(void)virConnectGetVersion(job->virt, &version);
	snprintf(job->opened.qemu_version, sizeof job->opened.qemu_version, "%lu.%lu.%lu",
		VERSION_NUMBERS(version));
}

static int open_blocking(struct open_job *job, struct err *err)
{
	const struct lv_conn_config *config = &job->owner->config;

	if (lv_place_prepare_blocking(config->place, err) != 0) {
		return -1;
	}
	job->virt = virConnectOpen(config->place->uri);
	if (!job->virt) {
		return lv_error_set(err, "open the connection to libvirt");
	}
	if (lv_events_subscribe_blocking(job->owner->events, job->virt, job->generation,
		    !config->place->root, &job->subscription, err) != 0) {
		virConnectClose(job->virt);
		job->virt = NULL;
		return -1;
	}
	if (prime(job, err) != 0 || settle(job, err) != 0) {
		close_blocking(job->virt, &job->subscription);
		job->virt = NULL;
		return -1;
	}
	read_versions(job);
	if (!config->place->root) {
		(void)virConnectSetKeepAlive(job->virt, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT);
	}
	return 0;
}

static void run_open(struct worker_job *job)
{
	struct err err;

	if (open_blocking(container_of(job, struct open_job, job), &err) != 0) {
		job->err = err;
	}
}

static void run_close(struct worker_job *job)
{
	const struct close_job *close_job = container_of(job, struct close_job, job);

	if (close_job->is_subscribed) {
		close_blocking(close_job->virt, &close_job->subscription);
	} else {
		virConnectClose(close_job->virt);
	}
}

/* ---- loop ---- */

static void on_closed(struct worker_job *job, const struct err *err)
{
	(void)err;
	free(container_of(job, struct close_job, job));
}

/* Lets go of a connection without waiting for it. */
static void discard(
	struct lv_conn *conn, virConnectPtr virt, const struct lv_subscription *subscription)
{
	/* Where the pool is full or ends it stays open: better than to block the loop. */
	struct close_job *job = xnew(struct close_job);
	struct err err;

	job->job.run = run_close;
	job->job.done = on_closed;
	job->virt = virt;
	if (subscription) {
		job->subscription = *subscription;
		job->is_subscribed = true;
	}
	if (worker_submit(conn->pool, &job->job, &err) != 0) {
		free(job);
	}
}

static void free_open_job(struct open_job *job)
{
	free(job->facts);
	free(job);
}

static void on_mail(void *arg, const struct lv_mail *mail);

/* Tells them if the connection is up, else drops them. */
static void read_early_mail(struct lv_conn *conn)
{
	struct lv_letters letters = STAILQ_HEAD_INITIALIZER(letters);
	struct lv_letter *letter;

	lv_mailbox_take(conn->early, &letters);
	STAILQ_FOREACH (letter, &letters, link) {
		on_mail(conn, &letter->mail);
	}
	lv_letters_free(&letters);
}

static void retry_later(struct lv_conn *conn)
{
	conn->state = CONN_WAITING;
	read_early_mail(conn);
	loop_timer_set(conn->retry_timer, conn->backoff_ms);
	conn->backoff_ms = MIN(conn->backoff_ms * 2, (uint64_t)BACKOFF_MAX_MS);
}

static void on_opened(struct worker_job *job, const struct err *err)
{
	struct open_job *open_job = container_of(job, struct open_job, job);
	struct lv_conn *conn = open_job->owner;

	if (job->is_abandoned) {
		/* on_opened_late() goes on. */
		conn->hooks.on_down(conn->hooks.arg, err);
		return;
	}
	if (err && err->kind == ERR_CANCELLED) {
		free_open_job(open_job);
		return;
	}
	if (err) {
		retry_later(conn);
		conn->hooks.on_down(conn->hooks.arg, err);
		free_open_job(open_job);
		return;
	}
	conn->state = CONN_READY;
	conn->backoff_ms = BACKOFF_FIRST_MS;
	conn->virt = open_job->virt;
	conn->subscription = open_job->subscription;
	open_job->opened.facts = open_job->facts;
	conn->hooks.on_up(conn->hooks.arg, &open_job->opened);
	free_open_job(open_job);
	read_early_mail(conn);
}

/* Too late to be of use: its domains have been declared unreachable. The next attempt is quick. */
static void on_opened_late(struct worker_job *job)
{
	struct open_job *open_job = container_of(job, struct open_job, job);
	struct lv_conn *conn = open_job->owner;

	if (open_job->virt) {
		discard(conn, open_job->virt, &open_job->subscription);
	}
	retry_later(conn);
	free_open_job(open_job);
}

static void start_opening(struct lv_conn *conn)
{
	struct open_job *job = xnew(struct open_job);
	struct err err;

	job->owner = conn;
	job->generation = ++conn->generation;
	job->job.run = run_open;
	job->job.done = on_opened;
	job->job.late = on_opened_late;
	job->job.deadline_ms = conn->config.open_ms;
	if (worker_submit(conn->pool, &job->job, &err) != 0) {
		free_open_job(job);
		retry_later(conn);
		return;
	}
	conn->state = CONN_OPENING;
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	start_opening(arg);
}

static void on_mail(void *arg, const struct lv_mail *mail)
{
	struct lv_conn *conn = arg;

	if (mail->generation != conn->generation) {
		return;
	}
	if (conn->state == CONN_OPENING) {
		lv_mailbox_post(conn->early, mail);
		return;
	}
	if (conn->state != CONN_READY) {
		return;
	}
	if (mail->kind == LV_MAIL_DOMAIN) {
		conn->hooks.on_domain(conn->hooks.arg, mail->uuid, mail->event);
		return;
	}
	struct err err;

	err_set(&err, ERR_UNAVAILABLE, "the connection to the hypervisor was lost");
	discard(conn, steal_ptr(&conn->virt), &conn->subscription);
	retry_later(conn);
	conn->hooks.on_down(conn->hooks.arg, &err);
}

struct lv_conn *lv_conn_new(struct loop *loop, struct worker_pool *pool,
	const struct lv_conn_config *config, const struct lv_conn_hooks *hooks, struct err *err)
{
	struct lv_conn *conn = xnew(struct lv_conn);

	loop_assert();
	conn->loop = loop;
	conn->pool = pool;
	conn->config = *config;
	conn->hooks = *hooks;
	conn->backoff_ms = BACKOFF_FIRST_MS;
	conn->events = lv_events_new(loop, on_mail, conn, err);
	if (!conn->events) {
		free(conn);
		return NULL;
	}
	conn->early = lv_mailbox_new();
	conn->retry_timer = loop_timer_new(loop, on_retry, conn);
	return conn;
}

void lv_conn_open(struct lv_conn *conn)
{
	loop_assert();
	ASSERT(conn->state == CONN_CLOSED);
	start_opening(conn);
}

virConnectPtr lv_conn_get(struct lv_conn *conn)
{
	if (conn->state != CONN_READY) {
		return NULL;
	}
	ASSERT(virConnectRef(conn->virt) == 0);
	return conn->virt;
}

void lv_conn_put(struct lv_conn *conn, virConnectPtr virt)
{
	if (virt == conn->virt) {
		/* Not the last reference, so this closes nothing. */
		virConnectClose(virt);
	} else {
		discard(conn, virt, NULL);
	}
}

static void *close_main(void *arg)
{
	struct close_job *job = arg;

	close_blocking(job->virt, &job->subscription);
	free(job);
	return NULL;
}

/* Closes on a thread, so that a libvirtd that doesn't answer can't hold up the end. */
static bool close_within_grace(struct lv_conn *conn)
{
	struct close_job *job = xnew(struct close_job);
	struct timespec until;
	pthread_t thread;

	job->virt = conn->virt;
	job->subscription = conn->subscription;
	if (pthread_create(&thread, NULL, close_main, job) != 0) {
		free(job);
		return false;
	}
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += CLOSE_GRACE_S;
	if (pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) != 0) {
		pthread_detach(thread);
		return false;
	}
	return true;
}

void lv_conn_free(struct lv_conn *conn, bool is_pool_ended)
{
	loop_assert();
	event_free(conn->retry_timer);
	lv_events_mute(conn->events);
	if (!is_pool_ended || (conn->virt && !close_within_grace(conn))) {
		log_warn("left the connection to libvirt open", "waited_s=%d", CLOSE_GRACE_S);
		return;
	}
	lv_events_free(conn->events);
	lv_mailbox_unref(conn->early);
	free(conn);
}
