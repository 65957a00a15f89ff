#include "hv/lv_known.h"

#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

#include "base/xalloc.h"

struct entry {
	LIST_ENTRY(entry) link; /* lv_known.all */
	char id[ID_BYTES];
	bool is_present;
	unsigned char uuid[DOMAIN_UUID_BYTES]; /* when present */
	struct process process;
	bool is_expected;
	unsigned char expected[DOMAIN_UUID_BYTES]; /* when expected */
};

struct lv_known {
	LIST_HEAD(, entry) all;
};

struct lv_known *lv_known_new(void)
{
	struct lv_known *known = xnew(struct lv_known);

	LIST_INIT(&known->all);
	return known;
}

static void drop(struct entry *entry)
{
	LIST_REMOVE(entry, link);
	free(entry);
}

void lv_known_free(struct lv_known *known)
{
	if (!known) {
		return;
	}
	while (!LIST_EMPTY(&known->all)) {
		drop(LIST_FIRST(&known->all));
	}
	free(known);
}

static struct entry *find(const struct lv_known *known, const char *id)
{
	struct entry *entry;

	LIST_FOREACH (entry, &known->all, link) {
		if (strcmp(entry->id, id) == 0) {
			return entry;
		}
	}
	return NULL;
}

static struct entry *obtain(struct lv_known *known, const char *id)
{
	struct entry *entry = find(known, id);

	if (!entry) {
		entry = xnew(struct entry);
		snprintf(entry->id, sizeof entry->id, "%s", id);
		LIST_INSERT_HEAD(&known->all, entry, link);
	}
	return entry;
}

void lv_known_expect(
	struct lv_known *known, const char *id, const unsigned char uuid[DOMAIN_UUID_BYTES])
{
	struct entry *entry = obtain(known, id);

	entry->is_expected = true;
	memcpy(entry->expected, uuid, DOMAIN_UUID_BYTES);
}

void lv_known_drop_expected(struct lv_known *known, const char *id)
{
	struct entry *entry = find(known, id);

	if (!entry) {
		return;
	}
	entry->is_expected = false;
	if (!entry->is_present) {
		drop(entry);
	}
}

void lv_known_learn(struct lv_known *known, const struct lv_facts *facts)
{
	struct entry *entry = obtain(known, facts->facts.id);
	bool is_same = entry->is_present &&
		       memcmp(entry->uuid, facts->uuid, DOMAIN_UUID_BYTES) == 0;

	entry->is_present = true;
	memcpy(entry->uuid, facts->uuid, DOMAIN_UUID_BYTES);
	/* A process that can't be seen at the moment isn't forgotten. */
	if (facts->facts.pid != 0 || !is_same) {
		entry->process = (struct process){
			.pid = facts->facts.pid, .start = facts->facts.pid_start};
	}
	if (entry->is_expected && memcmp(entry->expected, facts->uuid, DOMAIN_UUID_BYTES) == 0) {
		entry->is_expected = false;
	}
}

void lv_known_forget(struct lv_known *known, const char *id)
{
	struct entry *entry = find(known, id);

	if (entry) {
		drop(entry);
	}
}

const char *lv_known_find(const struct lv_known *known, const unsigned char uuid[DOMAIN_UUID_BYTES])
{
	struct entry *entry;

	LIST_FOREACH (entry, &known->all, link) {
		if ((entry->is_present && memcmp(entry->uuid, uuid, DOMAIN_UUID_BYTES) == 0) ||
			(entry->is_expected &&
				memcmp(entry->expected, uuid, DOMAIN_UUID_BYTES) == 0)) {
			return entry->id;
		}
	}
	return NULL;
}

struct process lv_known_process(const struct lv_known *known, const char *id)
{
	struct entry *entry = find(known, id);

	return entry ? entry->process : (struct process){0};
}
