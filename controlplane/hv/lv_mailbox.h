#pragma once

/*
 * lv_mailbox - letters from libvirt's threads to the loop
 *
 * Purpose: the only object that libvirt's event thread and the loop share.
 * Owns:    the letters that nobody has read yet; the eventfd that rings the loop.
 * Thread:  any.
 * Errors:  none.
 * Uses:    base, hv.h.
 *
 * Bounded by the number of domains: of each there is at most one letter that says it stopped, one
 * that says it was lost, and one with its last pause state, as a newer letter replaces an unread
 * one. It is counted: the loop has a reference, and so has every subscription, since libvirt drops
 * those when it likes.
 */

#include <sys/queue.h>

#include "hv/domain_facts.h"

struct lv_mail {
	enum { LV_MAIL_DOMAIN, LV_MAIL_CLOSED } kind;
	uint64_t generation; /* of the connection that it came from */
	enum hv_event event;
	unsigned char uuid[DOMAIN_UUID_BYTES];
};

struct lv_letter {
	STAILQ_ENTRY(lv_letter) link; /* of whoever took it */
	struct lv_mail mail;
};
STAILQ_HEAD(lv_letters, lv_letter);

struct lv_mailbox;

/* With one reference. */
struct lv_mailbox *lv_mailbox_new(void);
struct lv_mailbox *lv_mailbox_ref(struct lv_mailbox *box);
void lv_mailbox_unref(struct lv_mailbox *box);

/* Readable when there are letters. */
int lv_mailbox_fd(const struct lv_mailbox *box);
void lv_mailbox_post(struct lv_mailbox *box, const struct lv_mail *mail);
/* Moves all letters to @to, oldest first, and stops the ringing. */
void lv_mailbox_take(struct lv_mailbox *box, struct lv_letters *to);
void lv_letters_free(struct lv_letters *letters);
