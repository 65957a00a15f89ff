#include "hv/lv_events.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "hv/lv_error.h"

/*
 * Theory of operation
 *
 * libvirt calls back from the thread that runs its event loop. A callback copies what it was told
 * into a letter and posts that to the mailbox, which rings the loop. Each subscription holds the
 * mailbox; libvirt calls drop_subscription() when it is done with one.
 */

struct subscription_arg {
	struct lv_mailbox *box;
	uint64_t generation;
};

struct lv_events {
	struct lv_mailbox *box;
	struct event *event;
	lv_mail_fn on_mail;
	void *arg;
	pthread_t thread;
	_Atomic bool stop;
	int wake_timer;
};

/* ---- callbacks: libvirt's event thread ---- */

static void drop_subscription(void *opaque)
{
	struct subscription_arg *arg = opaque;

	lv_mailbox_unref(arg->box);
	free(arg);
}

/* False for what nobody needs to know. */
static bool translate(int event, int detail, enum hv_event *ret)
{
	switch (event) {
	case VIR_DOMAIN_EVENT_SHUTDOWN:
		/* QEMU got a signal. That it stopped then looks as if the guest had done it. */
		*ret = HV_EVENT_LOST;
		return detail == VIR_DOMAIN_EVENT_SHUTDOWN_HOST;
	case VIR_DOMAIN_EVENT_STOPPED:
		*ret = detail == VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN ? HV_EVENT_STOPPED
								   : HV_EVENT_LOST;
		return true;
	case VIR_DOMAIN_EVENT_CRASHED:
		*ret = HV_EVENT_LOST;
		return true;
	case VIR_DOMAIN_EVENT_SUSPENDED:
		*ret = HV_EVENT_PAUSED;
		return true;
	case VIR_DOMAIN_EVENT_RESUMED:
		*ret = HV_EVENT_RESUMED;
		return true;
	default:
		return false;
	}
}

static int on_lifecycle(
	virConnectPtr conn, virDomainPtr domain, int event, int detail, void *opaque)
{
	const struct subscription_arg *arg = opaque;
	struct lv_mail mail = {.kind = LV_MAIL_DOMAIN, .generation = arg->generation};

	(void)conn;
	if (translate(event, detail, &mail.event) && virDomainGetUUID(domain, mail.uuid) == 0) {
		lv_mailbox_post(arg->box, &mail);
	}
	return 0;
}

static void on_close(virConnectPtr conn, int reason, void *opaque)
{
	const struct subscription_arg *arg = opaque;
	struct lv_mail mail = {.kind = LV_MAIL_CLOSED, .generation = arg->generation};

	(void)conn;
	(void)reason;
	lv_mailbox_post(arg->box, &mail);
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
	struct lv_letters letters = STAILQ_HEAD_INITIALIZER(letters);
	struct lv_letter *letter;

	(void)fd;
	(void)what;
	lv_mailbox_take(events->box, &letters);
	STAILQ_FOREACH (letter, &letters, link) {
		events->on_mail(events->arg, &letter->mail);
	}
	lv_letters_free(&letters);
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

	events->box = lv_mailbox_new();
	events->on_mail = on_mail;
	events->arg = arg;
	events->event = event_new(
		loop_base(loop), lv_mailbox_fd(events->box), EV_READ | EV_PERSIST, on_ring, events);
	ASSERT(events->event != NULL && event_add(events->event, NULL) == 0);
	events->wake_timer = virEventAddTimeout(-1, on_wake, NULL, NULL);
	ASSERT(events->wake_timer >= 0);
	int rc = pthread_create(&events->thread, NULL, event_main, events);
	if (rc != 0) {
		err_sys(err, rc, "start the thread for libvirt's events");
		virEventRemoveTimeout(events->wake_timer);
		event_free(events->event);
		lv_mailbox_unref(events->box);
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
	lv_mailbox_unref(events->box);
	free(events);
}

/* ---- subscriptions: worker ---- */

static struct subscription_arg *subscription_arg_new(struct lv_mailbox *box, uint64_t generation)
{
	struct subscription_arg *arg = xnew(struct subscription_arg);

	arg->box = lv_mailbox_ref(box);
	arg->generation = generation;
	return arg;
}

int lv_events_subscribe_blocking(struct lv_events *events, virConnectPtr conn, uint64_t generation,
	bool is_remote, struct lv_subscription *ret, struct err *err)
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
	/* A driver within this process takes such a callback, too, but never lets go of it. */
	ret->has_close = false;
	if (is_remote) {
		arg = subscription_arg_new(events->box, generation);
		ret->has_close = virConnectRegisterCloseCallback(
					 conn, on_close, arg, drop_subscription) == 0;
		if (!ret->has_close) {
			drop_subscription(arg);
		}
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
