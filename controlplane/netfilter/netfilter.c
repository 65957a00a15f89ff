#include "netfilter/netfilter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/rand.h"
#include "base/xalloc.h"
#include "loop/worker.h"
#include "netfilter/monitor.h"
#include "netfilter/nft.h"
#include "netfilter/resolvers.h"
#include "netfilter/ruleset.h"

/*
 * Theory of operation
 *
 * Two kinds of job, one at a time: *install* replaces the table and lists it, and what the kernel
 * then shows is the reference; *verify* lists it and compares. What is wanted next is in two flags,
 * and advance() submits it.
 *
 * The reference can be trusted only if nobody came between our transaction and the listing: from
 * before the one until after the other exactly one transaction may have touched the table. If not,
 * we install once more.
 *
 * Three things make us look, each enough by itself:
 *   - a message that something of our table was removed: at once broken, without looking, unless an
 *     install is under way, whose own messages look the same
 *   - a message of any other change of our table, or that messages were lost: verify
 *   - the tick: the generation number isn't the one that was verified: verify
 * A verify that gets no answer within its deadline counts as broken.
 *
 * The tick also looks whether resolv.conf changed; new resolvers mean a new install. The table is
 * replaced in one transaction, so the state stays ACTIVE meanwhile.
 */

#define TICK_MS             500
#define VERIFY_DEADLINE_MS  2000
#define INSTALL_DEADLINE_MS 10000 /* the kernel may load modules */
#define REPLACE_DEADLINE_MS 900
#define RETRY_FIRST_MS      20
#define RETRY_BROKEN_MS     1000 /* at most between two attempts to repair */
#define RETRY_STARTING_MS   5000 /* the same while it never worked */
#define DISTURBED_MAX       10   /* installs that are repeated at once */
#define FREE_GRACE_MS       3000
#define RESOLV_CONF         "/etc/resolv.conf"
#define RESOLV_CONF_MAX     65536

enum job_kind { JOB_INSTALL, JOB_VERIFY };

struct filter_job {
	struct worker_job job;
	struct netfilter *nf; /* not touched by run() and late() */
	enum job_kind kind;
	uint32_t generation; /* before it was submitted */
	char *table;
	char *text;           /* of an install */
	const char *obstacle; /* tests: a file that makes installs fail while it exists */
	char *listing;
};

struct netfilter {
	struct loop *loop;
	struct netfilter_hooks hooks;
	char table[RULESET_TABLE_BYTES];
	uid_t uid_first;
	unsigned uid_count;
	struct exceptions exceptions;
	char *resolv_conf;
	struct stat resolv_seen;
	struct resolvers resolvers;

	enum filter_state state;
	char reason[320];
	unsigned breaches;
	enum err_kind failure; /* of the last install, ERR_NONE: it worked */

	struct monitor *monitor; /* NULL until it could be opened */
	struct worker_pool *pool;
	struct filter_job *running;
	bool is_install_wanted;
	bool is_verify_wanted;
	char *reference;
	uint32_t verified_generation;
	struct monitor_news install_news; /* since the running install was submitted */
	unsigned failures;                /* installs in a row */

	struct event *tick;
	struct event *retry;
	const char *obstacle;
	bool is_pretending; /* tests: no filter at all */
	bool is_closing;
};

static void advance(struct netfilter *nf);

const char *filter_state_name(enum filter_state state)
{
	static const char *const names[] = {
#define X(id, name) [FILTER_##id] = name,
		FILTER_STATES(X)
#undef X
	};

	ASSERT(state < ARRAY_SIZE(names));
	return names[state];
}

/* The only place where the state changes. */
static void set_state(struct netfilter *nf, enum filter_state state, const char *reason)
{
	static const bool allowed[4][4] = {
		[FILTER_STARTING] = {[FILTER_ACTIVE] = true, [FILTER_UNAVAILABLE] = true},
		[FILTER_ACTIVE] = {[FILTER_BROKEN] = true},
		[FILTER_BROKEN] = {[FILTER_ACTIVE] = true},
		[FILTER_UNAVAILABLE] = {[FILTER_ACTIVE] = true},
	};

	snprintf(nf->reason, sizeof nf->reason, "%s", reason);
	if (nf->state == state) {
		return;
	}
	ASSERT(allowed[nf->state][state]);
	nf->state = state;
	if (state == FILTER_BROKEN) {
		nf->breaches++;
	}
	nf->hooks.on_state(nf->hooks.arg, state, nf->reason);
}

/* ---- jobs ---- */

static void job_free(struct filter_job *job)
{
	free(job->table);
	free(job->text);
	free(job->listing);
	free(job);
}

static void job_run(struct worker_job *base)
{
	struct filter_job *job = container_of(base, struct filter_job, job);

	if (job->kind == JOB_INSTALL) {
		if (job->obstacle && access(job->obstacle, F_OK) == 0) {
			err_set(&base->err, ERR_UNAVAILABLE, "a test is in the way");
			return;
		}
		if (nft_apply_blocking(job->text, &base->err) < 0) {
			return;
		}
	}
	job->listing = nft_list_blocking(job->table, &base->err);
}

static void job_late(struct worker_job *base)
{
	job_free(container_of(base, struct filter_job, job));
}

/* The table isn't what it should be: say so, put it back. */
static void break_down(struct netfilter *nf, const char *reason)
{
	if (nf->state == FILTER_ACTIVE) {
		nf->failures = 0;
		set_state(nf, FILTER_BROKEN, reason);
	}
	nf->is_install_wanted = true;
}

static void install_failed(struct netfilter *nf, const struct err *err)
{
	bool has_worked = nf->state == FILTER_ACTIVE || nf->state == FILTER_BROKEN;
	uint64_t most = has_worked ? RETRY_BROKEN_MS : RETRY_STARTING_MS;
	uint64_t wait = has_worked ? (uint64_t)RETRY_FIRST_MS << MIN(nf->failures, 10u) : most;

	nf->failures++;
	nf->failure = err->kind;
	set_state(nf, has_worked ? FILTER_BROKEN : FILTER_UNAVAILABLE, err->msg);
	loop_timer_set(nf->retry, MIN(wait, most));
}

/* Somebody's transaction came between: what was listed isn't known to be ours alone. */
static void install_disturbed(struct netfilter *nf)
{
	struct err err;

	if (nf->failures < DISTURBED_MAX) {
		nf->failures++;
		nf->is_install_wanted = true;
		return;
	}
	err_set(&err, ERR_UNAVAILABLE, "somebody changes the table all the time");
	install_failed(nf, &err);
}

static void add_news(struct monitor_news *sum, const struct monitor_news *news)
{
	sum->transactions += news->transactions;
	sum->is_touched |= news->is_touched;
	sum->is_removed |= news->is_removed;
	sum->is_lost |= news->is_lost;
}

static void install_done(struct netfilter *nf, struct filter_job *job)
{
	struct monitor_news news = monitor_drain(nf->monitor);

	add_news(&nf->install_news, &news);
	if (nf->install_news.is_lost || nf->install_news.transactions != 1) {
		install_disturbed(nf);
		return;
	}
	free(nf->reference);
	nf->reference = steal_ptr(&job->listing);
	/* Not the generation of the listing, so the tick verifies once more. */
	nf->verified_generation = job->generation;
	nf->failures = 0;
	nf->failure = ERR_NONE;
	event_del(nf->retry);
	set_state(nf, FILTER_ACTIVE, "");
}

static void verify_done(struct netfilter *nf, const struct filter_job *job)
{
	if (!nf->reference || strcmp(job->listing, nf->reference) != 0) {
		break_down(nf, "somebody changed the table");
		return;
	}
	nf->verified_generation = job->generation;
}

static void handle_done(struct netfilter *nf, struct filter_job *job, const struct err *err)
{
	struct err copy = err ? *err : ERR_INIT;

	if (copy.kind == ERR_TIMEOUT) {
		/* The pool's words are about its usual work. */
		err_set(&copy, ERR_UNAVAILABLE, "nftables doesn't answer");
	}
	if (job->kind == JOB_VERIFY && err) {
		break_down(
			nf, err->kind == ERR_NOT_FOUND ? "somebody removed the table" : copy.msg);
	} else if (job->kind == JOB_VERIFY) {
		verify_done(nf, job);
	} else if (err) {
		install_failed(nf, &copy);
	} else {
		install_done(nf, job);
	}
}

static void job_done(struct worker_job *base, const struct err *err)
{
	struct filter_job *job = container_of(base, struct filter_job, job);
	struct netfilter *nf = job->nf;

	nf->running = NULL;
	if (!nf->is_closing) {
		handle_done(nf, job, err);
	}
	/* One that is abandoned is still in its thread's hands: late() frees it. */
	if (!base->is_abandoned) {
		job_free(job);
	}
	if (!nf->is_closing) {
		advance(nf);
	}
}

static char *compose(const struct netfilter *nf)
{
	const struct ruleset ruleset = {.table = nf->table,
		.uid_first = nf->uid_first,
		.uid_count = nf->uid_count,
		.resolvers = &nf->resolvers,
		.exceptions = &nf->exceptions};

	return ruleset_text(&ruleset);
}

static uint64_t deadline_of(const struct netfilter *nf, enum job_kind kind)
{
	if (kind == JOB_VERIFY) {
		return VERIFY_DEADLINE_MS;
	}
	/* The links are up, and a removal could be taken for a part of the install. */
	return nf->state == FILTER_ACTIVE ? REPLACE_DEADLINE_MS : INSTALL_DEADLINE_MS;
}

static void submit(struct netfilter *nf, enum job_kind kind, uint32_t generation)
{
	struct filter_job *job = xnew(struct filter_job);
	struct err err;

	job->job.run = job_run;
	job->job.done = job_done;
	job->job.late = job_late;
	job->job.deadline_ms = deadline_of(nf, kind);
	job->nf = nf;
	job->kind = kind;
	job->generation = generation;
	job->table = xstrdup(nf->table);
	job->obstacle = nf->obstacle;
	if (kind == JOB_INSTALL) {
		job->text = compose(nf);
	}
	/* One job at a time: there is always room, save when threads hang. */
	if (worker_submit(nf->pool, &job->job, &err) < 0) {
		job_free(job);
		install_failed(nf, &err);
		return;
	}
	nf->running = job;
}

static void on_news(void *arg, const struct monitor_news *news)
{
	struct netfilter *nf = arg;

	if (nf->running && nf->running->kind == JOB_INSTALL) {
		add_news(&nf->install_news, news);
		if (nf->install_news.transactions > 1 && nf->install_news.is_removed) {
			/* One of them isn't ours, and it may have been the last. */
			break_down(nf, "somebody removed a part of the table");
		}
	} else if (news->is_removed) {
		break_down(nf, "somebody removed a part of the table");
	} else {
		nf->is_verify_wanted = true;
	}
	advance(nf);
}

/* Starts what is wanted, if nothing runs. */
static void advance(struct netfilter *nf)
{
	uint32_t generation = 0;
	struct err err;

	if (nf->running || (!nf->is_install_wanted && !nf->is_verify_wanted)) {
		return;
	}
	if (!nf->monitor) {
		nf->monitor = monitor_new(nf->loop, nf->table, on_news, nf, &err);
	}
	if (!nf->monitor || monitor_generation(nf->monitor, &generation, &err) < 0) {
		nf->is_install_wanted = false;
		nf->is_verify_wanted = false;
		install_failed(nf, &err);
		return;
	}
	if (nf->is_install_wanted) {
		nf->is_install_wanted = false;
		nf->is_verify_wanted = false;
		monitor_drain(nf->monitor);
		nf->install_news = (struct monitor_news){0};
		submit(nf, JOB_INSTALL, generation);
	} else {
		nf->is_verify_wanted = false;
		if (nf->state == FILTER_ACTIVE) {
			submit(nf, JOB_VERIFY, generation);
		}
	}
}

/* ---- timers ---- */

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* True when there are other resolvers than before. A file that can't be read names none. */
static bool read_resolvers(struct netfilter *nf)
{
	_cleanup_free_ char *text = NULL;
	struct resolvers resolvers = {0};
	struct stat seen = {0};
	struct err err;

	(void)!stat(nf->resolv_conf, &seen);
	if (is_same_file(&seen, &nf->resolv_seen)) {
		return false;
	}
	nf->resolv_seen = seen;
	if (fs_read(nf->resolv_conf, RESOLV_CONF_MAX, &text, NULL, &err) == 0) {
		resolvers_parse(text, &resolvers);
	}
	if (resolvers_equal(&resolvers, &nf->resolvers)) {
		return false;
	}
	nf->resolvers = resolvers;
	return true;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct netfilter *nf = arg;
	uint32_t generation = 0;
	struct err err;

	(void)fd;
	(void)what;
	loop_timer_set(nf->tick, TICK_MS);
	if (read_resolvers(nf)) {
		nf->is_install_wanted = true;
	}
	if (nf->state == FILTER_ACTIVE && !nf->running) {
		nf->is_verify_wanted |= monitor_generation(nf->monitor, &generation, &err) < 0 ||
					generation != nf->verified_generation;
	}
	advance(nf);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	struct netfilter *nf = arg;

	(void)fd;
	(void)what;
	nf->is_install_wanted = true;
	advance(nf);
}

static void begin(void *arg)
{
	struct netfilter *nf = arg;

	if (nf->is_pretending) {
		set_state(nf, FILTER_ACTIVE, "");
		return;
	}
	read_resolvers(nf);
	nf->is_install_wanted = true;
	loop_timer_set(nf->tick, TICK_MS);
	advance(nf);
}

/* ---- outside ---- */

static void take_test_switches(struct netfilter *nf)
{
#ifdef PADDOCK_TEST_HOOKS
	const char *pretend = getenv("PADDOCK_TEST_NO_FILTER");

	nf->is_pretending = pretend && strcmp(pretend, "1") == 0;
	nf->obstacle = getenv("PADDOCK_TEST_FILTER_FAIL_FILE");
#else
	(void)nf;
#endif
}

struct netfilter *netfilter_new(struct loop *loop, const struct netfilter_settings *settings,
	const struct netfilter_hooks *hooks, struct err *err)
{
	static const struct worker_limits limits = {.threads = 1, .spares = 2, .queue_max = 4};
	_cleanup_(netfilter_free_p) struct netfilter *nf = xnew(struct netfilter);

	loop_assert();
	ASSERT(hooks->on_state);
	nf->loop = loop;
	nf->hooks = *hooks;
	nf->uid_first = settings->uid_first;
	nf->uid_count = settings->uid_count;
	nf->exceptions = settings->exceptions;
	nf->resolv_conf = xstrdup(settings->resolv_conf ? settings->resolv_conf : RESOLV_CONF);
	ruleset_table_name(settings->instance, nf->table);
	take_test_switches(nf);
	nf->tick = loop_timer_new(loop, on_tick, nf);
	nf->retry = loop_timer_new(loop, on_retry, nf);
	nf->pool = worker_pool_new(loop, "host filter", &limits, err);
	if (!nf->pool) {
		return NULL;
	}
	loop_defer(loop, begin, nf);
	return steal_ptr(&nf);
}

void netfilter_free(struct netfilter *nf)
{
	if (!nf) {
		return;
	}
	loop_cancel_deferred(nf->loop, begin, nf);
	event_free(nf->tick);
	event_free(nf->retry);
	nf->is_closing = true;
	worker_pool_free(nf->pool, FREE_GRACE_MS);
	monitor_free(nf->monitor);
	free(nf->resolv_conf);
	free(nf->reference);
	free(nf);
}

void netfilter_status(const struct netfilter *nf, struct netfilter_status *ret)
{
	*ret = (struct netfilter_status){.state = nf->state,
		.table = nf->table,
		.reason = nf->reason,
		.fix = "",
		.breaches = nf->breaches};
	if (nf->failure != ERR_NONE) {
		ret->fix = netfilter_fix(nf->failure);
	} else if (nf->state == FILTER_BROKEN) {
		ret->fix = "`nft monitor` shows who changes it; it is being put back";
	}
}

const char *netfilter_fix(enum err_kind kind)
{
	if (kind == ERR_FORBIDDEN) {
		return "run paddockd as root or give it CAP_NET_ADMIN";
	}
	if (kind == ERR_UNAVAILABLE) {
		return "load the kernel modules nf_tables, nft_fib_inet and nft_reject_inet; "
		       "paddockd tries again by itself";
	}
	return "see paddockd's log";
}

int netfilter_remove_blocking(const char *instance, struct err *err)
{
	char table[RULESET_TABLE_BYTES];

	return nft_remove_blocking(ruleset_table_name(instance, table), err);
}

int netfilter_probe_blocking(struct err *err)
{
	static const struct resolvers no_resolvers;
	static const struct exceptions no_exceptions;
	char instance[17];
	char table[RULESET_TABLE_BYTES];

	rand_hex(instance, 16);
	const struct ruleset ruleset = {.table = ruleset_table_name(instance, table),
		.uid_first = 1,
		.uid_count = 1,
		.resolvers = &no_resolvers,
		.exceptions = &no_exceptions};
	_cleanup_free_ char *text = ruleset_text(&ruleset);
	/* One transaction: the kernel checks every rule, and nothing ever is in force. */
	_cleanup_free_ char *both = xasprintf("%sdelete table inet %s\n", text, table);

	return nft_apply_blocking(both, err);
}
