#include "hv/lv_events.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "hv/lv_error.h"

/*
 * Theory of operation
 *
 * libvirt calls back from the thread that runs its event loop. A callback copies what it was told
 * into a letter, posts that to the mailbox and rings the eventfd; the loop takes all letters at
 * once. The mailbox is counted: the loop has a reference, and so has every subscription, since
 * libvirt drops those when it likes (it calls drop_subscription() then).
 *
 * What is posted is bounded: for each domain there is at most one letter that says it stopped and
 * one with its last pause state, as a newer one replaces those that nobody has read yet.
 */

STAILQ_HEAD(letters, letter);

struct letter {
	STAILQ_ENTRY(letter) link; /* mailbox.letters */
	struct lv_mail mail;
};

struct mailbox {
	pthread_mutex_t mutex; /* guards what follows */
	struct letters letters;
	unsigned references;
	int fd;
};

struct subscription_arg {
	struct mailbox *box;
	uint64_t generation;
};

struct lv_events {
	struct mailbox *box;
	struct event *event;
	lv_mail_fn on_mail;
	void *arg;
	pthread_t thread;
	_Atomic bool stop;
	int wake_timer;
};

/* ---- mailbox: any thread ---- */

static struct mailbox *mailbox_new(void)
{
	struct mailbox *box = xnew(struct mailbox);

	pthread_mutex_init(&box->mutex, NULL);
	STAILQ_INIT(&box->letters);
	box->references = 1;
	box->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ASSERT(box->fd >= 0);
	return box;
}

static void free_letters(struct letters *letters)
{
	struct letter *letter;

	while ((letter = STAILQ_FIRST(letters))) {
		STAILQ_REMOVE_HEAD(letters, link);
		free(letter);
	}
}

static void mailbox_unref(struct mailbox *box)
{
	pthread_mutex_lock(&box->mutex);
	unsigned left = --box->references;
	pthread_mutex_unlock(&box->mutex);
	if (left == 0) {
		free_letters(&box->letters);
		pthread_mutex_destroy(&box->mutex);
		close(box->fd);
		free(box);
	}
}

static struct mailbox *mailbox_ref(struct mailbox *box)
{
	pthread_mutex_lock(&box->mutex);
	box->references++;
	pthread_mutex_unlock(&box->mutex);
	return box;
}

static bool is_pause_state(enum hv_event event)
{
	return event == HV_EVENT_PAUSED || event == HV_EVENT_RESUMED;
}

/* @new makes the unread letter @old pointless. */
static bool replaces(const struct lv_mail *new, const struct lv_mail *old)
{
	if (new->kind != old->kind || new->generation != old->generation) {
		return false;
	}
	return new->kind == LV_MAIL_CLOSED ||
	       (memcmp(new->uuid, old->uuid, sizeof new->uuid) == 0 &&
		       is_pause_state(new->event) == is_pause_state(old->event));
}

static void mailbox_post(struct mailbox *box, const struct lv_mail *mail)
{
	struct letter *letter = xnew(struct letter);
	struct letter *old;

	letter->mail = *mail;
	pthread_mutex_lock(&box->mutex);
	STAILQ_FOREACH (old, &box->letters, link) {
		if (replaces(mail, &old->mail)) {
			STAILQ_REMOVE(&box->letters, old, letter, link);
			free(old);
			break;
		}
	}
	STAILQ_INSERT_TAIL(&box->letters, letter, link);
	pthread_mutex_unlock(&box->mutex);
	/* Fails only when the counter is at its end, and then the loop has been told anyway. */
	(void)!eventfd_write(box->fd, 1);
}

/* ---- callbacks: libvirt's event thread ---- */

static void drop_subscription(void *opaque)
{
	struct subscription_arg *arg = opaque;

	mailbox_unref(arg->box);
	free(arg);
}

static int on_lifecycle(
	virConnectPtr conn, virDomainPtr domain, int event, int detail, void *opaque)
{
	const struct subscription_arg *arg = opaque;
	struct lv_mail mail = {.kind = LV_MAIL_DOMAIN, .generation = arg->generation};

	(void)conn;
	(void)detail;
	switch (event) {
	case VIR_DOMAIN_EVENT_STOPPED:
	case VIR_DOMAIN_EVENT_CRASHED:
		mail.event = HV_EVENT_STOPPED;
		break;
	case VIR_DOMAIN_EVENT_SUSPENDED:
		mail.event = HV_EVENT_PAUSED;
		break;
	case VIR_DOMAIN_EVENT_RESUMED:
		mail.event = HV_EVENT_RESUMED;
		break;
	default:
		return 0;
	}
	if (virDomainGetUUID(domain, mail.uuid) == 0) {
		mailbox_post(arg->box, &mail);
	}
	return 0;
}

static void on_close(virConnectPtr conn, int reason, void *opaque)
{
	const struct subscription_arg *arg = opaque;
	struct lv_mail mail = {.kind = LV_MAIL_CLOSED, .generation = arg->generation};

	(void)conn;
	(void)reason;
	mailbox_post(arg->box, &mail);
}

static void on_wake(int timer, void *opaque)
{
	(void)opaque;
	virEventUpdateTimeout(timer, -1);
}

static void *event_main(void *opaque)
{
	struct lv_events *events = opaque;

	pthread_setname_np(pthread_self(), "libvirt-events");
	while (!events->stop) {
		/* It fails where poll() does, which isn't expected to go away by trying again. */
		ASSERT(virEventRunDefaultImpl() == 0);
	}
	return NULL;
}

/* ---- loop ---- */

static void on_ring(evutil_socket_t fd, short what, void *arg)
{
	struct lv_events *events = arg;
	struct letters letters = STAILQ_HEAD_INITIALIZER(letters);
	struct letter *letter;
	eventfd_t count;

	(void)what;
	(void)!eventfd_read(fd, &count);
	pthread_mutex_lock(&events->box->mutex);
	STAILQ_CONCAT(&letters, &events->box->letters);
	pthread_mutex_unlock(&events->box->mutex);
	STAILQ_FOREACH (letter, &letters, link) {
		events->on_mail(events->arg, &letter->mail);
	}
	free_letters(&letters);
}

/* libvirt takes one event loop a process, for good. */
static int register_event_loop(struct err *err)
{
	static bool is_registered;

	if (!is_registered && virEventRegisterDefaultImpl() != 0) {
		return lv_error_set(err, "register libvirt's event loop");
	}
	is_registered = true;
	return 0;
}

struct lv_events *lv_events_new(struct loop *loop, lv_mail_fn on_mail, void *arg, struct err *err)
{
	loop_assert();
	if (register_event_loop(err) != 0) {
		return NULL;
	}
	struct lv_events *events = xnew(struct lv_events);

	events->box = mailbox_new();
	events->on_mail = on_mail;
	events->arg = arg;
	events->event = event_new(
		loop_base(loop), events->box->fd, EV_READ | EV_PERSIST, on_ring, events);
	ASSERT(events->event != NULL && event_add(events->event, NULL) == 0);
	events->wake_timer = virEventAddTimeout(-1, on_wake, NULL, NULL);
	ASSERT(events->wake_timer >= 0);
	int rc = pthread_create(&events->thread, NULL, event_main, events);
	if (rc != 0) {
		err_sys(err, rc, "start the thread for libvirt's events");
		virEventRemoveTimeout(events->wake_timer);
		event_free(events->event);
		mailbox_unref(events->box);
		free(events);
		return NULL;
	}
	return events;
}

void lv_events_mute(struct lv_events *events)
{
	loop_assert();
	if (events->event) {
		event_free(events->event);
		events->event = NULL;
	}
}

void lv_events_free(struct lv_events *events)
{
	if (!events) {
		return;
	}
	loop_assert();
	events->stop = true;
	virEventUpdateTimeout(events->wake_timer, 0);
	pthread_join(events->thread, NULL);
	virEventRemoveTimeout(events->wake_timer);
	lv_events_mute(events);
	mailbox_unref(events->box);
	free(events);
}

/* ---- subscriptions: worker ---- */

static struct subscription_arg *subscription_arg_new(struct mailbox *box, uint64_t generation)
{
	struct subscription_arg *arg = xnew(struct subscription_arg);

	arg->box = mailbox_ref(box);
	arg->generation = generation;
	return arg;
}

int lv_events_subscribe_blocking(struct lv_events *events, virConnectPtr conn, uint64_t generation,
	struct lv_subscription *ret, struct err *err)
{
	struct subscription_arg *arg = subscription_arg_new(events->box, generation);

	ASSERT(!loop_is_current());
	ret->lifecycle_id = virConnectDomainEventRegisterAny(conn, NULL,
		VIR_DOMAIN_EVENT_ID_LIFECYCLE, VIR_DOMAIN_EVENT_CALLBACK(on_lifecycle), arg,
		drop_subscription);
	if (ret->lifecycle_id < 0) {
		drop_subscription(arg);
		return lv_error_set(err, "subscribe to domain events");
	}
	arg = subscription_arg_new(events->box, generation);
	/* Drivers within this process can't lose their connection and say so. */
	ret->has_close = virConnectRegisterCloseCallback(conn, on_close, arg, drop_subscription) ==
			 0;
	if (!ret->has_close) {
		drop_subscription(arg);
	}
	return 0;
}

void lv_events_unsubscribe_blocking(virConnectPtr conn, const struct lv_subscription *subscription)
{
	if (subscription->has_close) {
		virConnectUnregisterCloseCallback(conn, on_close);
	}
	virConnectDomainEventDeregisterAny(conn, subscription->lifecycle_id);
}
