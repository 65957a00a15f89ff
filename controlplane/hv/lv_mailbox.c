#include "hv/lv_mailbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/xalloc.h"

struct lv_mailbox {
	pthread_mutex_t mutex; /* guards what follows */
	struct lv_letters letters;
	unsigned references;
	int fd; /* never changes */
};

struct lv_mailbox *lv_mailbox_new(void)
{
	struct lv_mailbox *box = xnew(struct lv_mailbox);

	pthread_mutex_init(&box->mutex, NULL);
	STAILQ_INIT(&box->letters);
	box->references = 1;
	box->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ASSERT(box->fd >= 0);
	return box;
}

void lv_letters_free(struct lv_letters *letters)
{
	struct lv_letter *letter;

	while ((letter = STAILQ_FIRST(letters))) {
		STAILQ_REMOVE_HEAD(letters, link);
		free(letter);
	}
}

void lv_mailbox_unref(struct lv_mailbox *box)
{
	pthread_mutex_lock(&box->mutex);
	unsigned left = --box->references;
	pthread_mutex_unlock(&box->mutex);
	if (left == 0) {
		lv_letters_free(&box->letters);
		pthread_mutex_destroy(&box->mutex);
		close(box->fd);
		free(box);
	}
}

struct lv_mailbox *lv_mailbox_ref(struct lv_mailbox *box)
{
	pthread_mutex_lock(&box->mutex);
	box->references++;
	pthread_mutex_unlock(&box->mutex);
	return box;
}

int lv_mailbox_fd(const struct lv_mailbox *box)
{
	return box->fd;
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
		       (new->event == old->event ||
			       (is_pause_state(new->event) && is_pause_state(old->event))));
}

void lv_mailbox_post(struct lv_mailbox *box, const struct lv_mail *mail)
{
	struct lv_letter *letter = xnew(struct lv_letter);
	struct lv_letter *old;

	letter->mail = *mail;
	pthread_mutex_lock(&box->mutex);
	STAILQ_FOREACH (old, &box->letters, link) {
		if (replaces(mail, &old->mail)) {
			STAILQ_REMOVE(&box->letters, old, lv_letter, link);
			free(old);
			break;
		}
	}
	STAILQ_INSERT_TAIL(&box->letters, letter, link);
	pthread_mutex_unlock(&box->mutex);
	/* Fails only when the counter is at its end, and then the loop has been told anyway. */
	(void)!eventfd_write(box->fd, 1);
}

void lv_mailbox_take(struct lv_mailbox *box, struct lv_letters *to)
{
	eventfd_t count;

	/* First: what is posted from here on rings again. */
	(void)!eventfd_read(box->fd, &count);
	pthread_mutex_lock(&box->mutex);
	STAILQ_CONCAT(to, &box->letters);
	pthread_mutex_unlock(&box->mutex);
}
