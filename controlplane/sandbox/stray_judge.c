#include "sandbox/stray_judge.h"

#include <string.h>

#include "base/clock.h"
#include "base/xalloc.h"

struct judge {
	struct sandboxes *all;
	const struct hv_survey *survey;
	const struct paths_list *files;
	const struct stray_scope *scope;
	struct stray_list list;
	int64_t now;
};

const char *stray_kind_name(enum stray_kind kind)
{
	static const char *const names[] = {
#define X(id, name, doc) name,
		STRAY_KINDS(X)
#undef X
	};

	ASSERT(kind < ARRAY_SIZE(names));
	return names[kind];
}

/* ---- looking ---- */

static const struct hv_facts *find_domain(const struct hv_survey *survey, const char *id)
{
	for (size_t i = 0; i < survey->domain_count; i++) {
		if (strcmp(survey->domains[i].id, id) == 0) {
			return &survey->domains[i];
		}
	}
	return NULL;
}

static bool has_other_domain(const struct hv_survey *survey, const char *id)
{
	for (size_t i = 0; i < survey->other_count; i++) {
		if (strcmp(survey->others[i].facts.id, id) == 0) {
			return true;
		}
	}
	return false;
}

static bool has_process(const struct hv_survey *survey, const char *id)
{
	for (size_t i = 0; i < survey->residue_count; i++) {
		if (survey->residue[i].kind == HV_RESIDUE_PROCESS &&
			strcmp(survey->residue[i].id, id) == 0) {
			return true;
		}
	}
	return false;
}

/* Whether something runs, or may run, on the files of @id: they go with it, not before. */
static bool is_in_use(const struct hv_survey *survey, const char *id)
{
	return find_domain(survey, id) || has_other_domain(survey, id) || has_process(survey, id);
}

static bool has_files(const struct paths_list *files, const char *id)
{
	for (size_t i = 0; i < files->count; i++) {
		if (strcmp(files->ids[i], id) == 0) {
			return true;
		}
	}
	return false;
}

bool stray_is_present(
	const struct hv_survey *survey, const struct paths_list *files, const char *id)
{
	return is_in_use(survey, id) || has_files(files, id);
}

/* ---- telling ---- */

/* Adds @stray unless it is too young. */
static void tell(struct judge *judge, const struct stray *stray)
{
	struct stray_list *list = &judge->list;
	int64_t left = (int64_t)judge->all->config.stray_grace_ms - (judge->now - stray->since_ms);

	if (left > 0) {
		list->young++;
		list->next_ms = MIN(list->next_ms, left);
		return;
	}
	list->items = xrealloc(list->items, list->count + 1, sizeof *list->items);
	list->items[list->count++] = *stray;
}

/*
 * For what has no live record: the owner from the record, if there is one, and no age beyond its
 * end. *ret_has_row says whether there is.
 */
static int consult_row(struct judge *judge, struct stray *stray, bool *ret_has_row, struct err *err)
{
	_cleanup_store_sandbox_ struct store_sandbox *row = NULL;

	*ret_has_row = false;
	if (!stray->id[0]) {
		return 0;
	}
	row = store_sandbox_get(judge->all->store, stray->id, err);
	if (!row) {
		return err->kind == ERR_NOT_FOUND ? 0 : -1;
	}
	*ret_has_row = true;
	snprintf(stray->account, sizeof stray->account, "%s", row->account);
	stray->since_ms = MAX(stray->since_ms, row->ended_at_ms);
	return 0;
}

static struct stray stray_of(enum stray_kind kind, const char *id, int64_t since_ms)
{
	struct stray stray = {.kind = kind, .since_ms = since_ms};

	snprintf(stray.id, sizeof stray.id, "%s", id);
	snprintf(stray.what, sizeof stray.what, "%s", id);
	return stray;
}

/* ---- with a live record ---- */

static bool is_settled(const struct judge *judge, const struct sandbox *sb)
{
	return !sandbox_is_busy(sb) && sb->changed_seq <= judge->scope->seq;
}

/* NULL: it is as it should be, or is put right by a daemon alone. */
static const char *reason_of(enum reconcile_action action)
{
	switch (action) {
	case RECONCILE_ENDED:
		return "its virtual machine is gone";
	case RECONCILE_LOST:
		return "its disk is gone";
	case RECONCILE_UNDO:
		return "its creation was interrupted";
	case RECONCILE_FINISH:
		return "its removal was interrupted";
	case RECONCILE_END:
		return "its sandbox is stopped";
	case RECONCILE_REDO:
	case RECONCILE_DISKLESS:
	case RECONCILE_KEEP:
	case RECONCILE_WAIT:
	case RECONCILE_ATTACH:
	default:
		return NULL;
	}
}

static void judge_row(struct judge *judge, const struct sandbox *sb)
{
	const struct store_sandbox *row = sb->row;
	const struct hv_facts *own = find_domain(judge->survey, row->id);
	struct stray stray = stray_of(
		STRAY_RECORD, row->id, row->ready_at_ms ? row->ready_at_ms : row->created_at_ms);

	if (!is_settled(judge, sb)) {
		return;
	}
	enum reconcile_action action = reconcile_judge(sb, own);

	if (sandbox_is_due(sb, judge->now)) {
		stray.kind = own ? STRAY_DOMAIN : STRAY_RECORD;
		stray.since_ms = row->expires_at_ms;
		stray.reason = "it has expired";
	} else {
		stray.kind = action == RECONCILE_END ? STRAY_DOMAIN : STRAY_RECORD;
		stray.is_lost = action == RECONCILE_LOST;
		stray.reason = reason_of(action);
	}
	if (stray.reason) {
		snprintf(stray.account, sizeof stray.account, "%s", row->account);
		tell(judge, &stray);
	}
}

/* ---- without one ---- */

static int judge_domain(struct judge *judge, const struct hv_facts *facts, struct err *err)
{
	/* One whose process can't be seen has no age yet. */
	struct stray stray = stray_of(
		STRAY_DOMAIN, facts->id, facts->started_at_ms ? facts->started_at_ms : judge->now);
	bool has_row;

	if (sandbox_find_id(judge->all, facts->id) || facts->state == HV_DOMAIN_UNSETTLED) {
		return 0;
	}
	snprintf(stray.account, sizeof stray.account, "%s", facts->account);
	if (consult_row(judge, &stray, &has_row, err) != 0) {
		return -1;
	}
	stray.reason = has_row ? "its sandbox has ended" : "no record names it";
	tell(judge, &stray);
	return 0;
}

static int judge_files(struct judge *judge, const char *id, struct err *err)
{
	const struct sandboxes_config *config = &judge->all->config;
	struct stray stray = stray_of(STRAY_DISK, id, 0);
	bool has_home;
	bool has_row;

	if (sandbox_find_id(judge->all, id) || is_in_use(judge->survey, id)) {
		return 0;
	}
	stray.since_ms = paths_changed_ms(config->state_dir, config->run_dir, id, &has_home);
	stray.kind = has_home ? STRAY_DISK : STRAY_SOCKETS;
	snprintf(stray.what, sizeof stray.what, "%s/%s", has_home ? "sandboxes" : "run",
		has_home ? id : id + strlen(ID_SANDBOX));
	if (consult_row(judge, &stray, &has_row, err) != 0) {
		return -1;
	}
	stray.reason = has_row ? "its sandbox has ended" : "no record names it";
	tell(judge, &stray);
	return 0;
}

static enum stray_kind kind_of(enum hv_residue_kind kind)
{
	switch (kind) {
	case HV_RESIDUE_PROCESS:
		return STRAY_PROCESS;
	case HV_RESIDUE_LOG:
		return STRAY_LOG;
	case HV_RESIDUE_FILE:
	case HV_RESIDUE_DIRECTORY:
	default:
		return STRAY_LEFTOVER;
	}
}

static int judge_residue(struct judge *judge, const struct hv_residue *item, struct err *err)
{
	struct stray stray = stray_of(kind_of(item->kind), item->id, item->since_ms);
	const struct sandbox *sb = item->id[0] ? sandbox_find_id(judge->all, item->id) : NULL;
	bool has_row;

	/* The rest of a stopped one's belongs to it; but it has no process. */
	if (sb && !(item->kind == HV_RESIDUE_PROCESS && sb->state == SANDBOX_STOPPED &&
			  is_settled(judge, sb))) {
		return 0;
	}
	stray.residue = *item;
	snprintf(stray.what, sizeof stray.what, "%s", item->name);
	stray.reason = item->kind == HV_RESIDUE_PROCESS ? "the hypervisor doesn't know it"
							: "its virtual machine is gone";
	if (consult_row(judge, &stray, &has_row, err) != 0) {
		return -1;
	}
	tell(judge, &stray);
	return 0;
}

/* Young or old: they are told, and that is all. */
static void tell_other(struct judge *judge, const struct hv_other *other)
{
	struct stray stray = stray_of(STRAY_DOMAIN, other->facts.id, other->facts.started_at_ms);
	struct stray_list *list = &judge->list;
	int64_t expiry = other->facts.expires_at_ms;

	snprintf(stray.account, sizeof stray.account, "%s", other->facts.account);
	snprintf(stray.instance, sizeof stray.instance, "%s", other->instance);
	stray.reason = expiry > 0 && expiry <= judge->now ? "of another instance, and expired"
							  : "of another instance";
	list->items = xrealloc(list->items, list->count + 1, sizeof *list->items);
	list->items[list->count++] = stray;
}

/* ---- all ---- */

static int judge_all(struct judge *judge, struct err *err)
{
	const struct hv_survey *survey = judge->survey;
	const struct sandbox *sb;

	if (judge->scope->has_rows) {
		TAILQ_FOREACH (sb, &judge->all->live, link) {
			judge_row(judge, sb);
		}
	}
	for (size_t i = 0; i < survey->domain_count; i++) {
		if (judge_domain(judge, &survey->domains[i], err) != 0) {
			return -1;
		}
	}
	for (size_t i = 0; i < survey->residue_count; i++) {
		if (judge_residue(judge, &survey->residue[i], err) != 0) {
			return -1;
		}
	}
	for (size_t i = 0; i < judge->files->count; i++) {
		if (judge_files(judge, judge->files->ids[i], err) != 0) {
			return -1;
		}
	}
	for (size_t i = 0; judge->scope->has_others && i < survey->other_count; i++) {
		tell_other(judge, &survey->others[i]);
	}
	return 0;
}

int stray_judge(struct sandboxes *all, const struct hv_survey *survey,
	const struct paths_list *files, const struct stray_scope *scope, struct stray_list *ret,
	struct err *err)
{
	struct judge judge = {.all = all,
		.survey = survey,
		.files = files,
		.scope = scope,
		.list.next_ms = INT64_MAX,
		.now = clock_wall_ms()};

	if (judge_all(&judge, err) != 0) {
		stray_list_fini(&judge.list);
		return -1;
	}
	*ret = judge.list;
	return 0;
}

void stray_list_fini(struct stray_list *list)
{
	free(list->items);
	*list = (struct stray_list){0};
}
