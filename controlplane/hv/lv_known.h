#pragma once

/*
 * lv_known - the domains that we know to be ours
 *
 * Purpose: tells whose an event is, by the domain's uuid (a name could be anybody's), and keeps the
 *          process of each, so that one can be ended when libvirt doesn't answer.
 * Owns:    one small entry for each sandbox that has a domain.
 * Thread:  loop.
 * Uses:    base, lv_domain.h (for the facts).
 */

#include "base/cleanup.h"
#include "hv/lv_domain.h"

struct lv_known;

struct lv_known *lv_known_new(void);
void lv_known_free(struct lv_known *known);
DEFINE_CLEANUP(struct lv_known *, lv_known_free)

/* A start is under way: events of @uuid are this sandbox's from now on. */
void lv_known_expect(
	struct lv_known *known, const char *id, const unsigned char uuid[DOMAIN_UUID_BYTES]);
/* It failed. What was known of @id before stays. */
void lv_known_drop_expected(struct lv_known *known, const char *id);
/* As seen in libvirt. */
void lv_known_learn(struct lv_known *known, const struct lv_facts *facts);
void lv_known_forget(struct lv_known *known, const char *id);

/* The sandbox, or NULL; valid until the entry changes. */
const char *lv_known_find(
	const struct lv_known *known, const unsigned char uuid[DOMAIN_UUID_BYTES]);
/* pid 0 where it isn't known. */
struct process lv_known_process(const struct lv_known *known, const char *id);
