#include "auth/quota.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/queue.h>

#include "base/id.h"
#include "base/macros.h"
#include "base/xalloc.h"

/*
 * Theory of operation
 *
 * An account is known here while it has something: its record is made with the first charge and
 * goes with the last refund. There are at most as many as sandboxes on the host, so a list does.
 *
 * Limits may be lowered below what is in use (by a restart with other settings, or through
 * quota_restore()): what exists stays, and nothing new fits until it is below again.
 */

struct quota_account {
	LIST_ENTRY(quota_account) link; /* quotas.accounts */
	char id[ID_BYTES];
	struct quota_amounts used;
	unsigned charges;
};

struct quotas {
	LIST_HEAD(, quota_account) accounts;
	struct quota_amounts limits;
	struct quota_host host;
	struct quota_amounts used; /* all accounts */
};

struct quotas *quotas_new(const struct quota_amounts *limits, const struct quota_host *host)
{
	struct quotas *quotas = xnew(struct quotas);

	LIST_INIT(&quotas->accounts);
	quotas->limits = *limits;
	quotas->host = *host;
	return quotas;
}

void quotas_free(struct quotas *quotas)
{
	if (!quotas) {
		return;
	}
	ASSERT(LIST_EMPTY(&quotas->accounts));
	free(quotas);
}

void quotas_set_host(struct quotas *quotas, const struct quota_host *host)
{
	quotas->host = *host;
}

const struct quota_amounts *quotas_limits(const struct quotas *quotas)
{
	return &quotas->limits;
}

/* ---- accounts ---- */

static struct quota_account *find_account(const struct quotas *quotas, const char *id)
{
	struct quota_account *account;

	LIST_FOREACH (account, &quotas->accounts, link) {
		if (strcmp(account->id, id) == 0) {
			return account;
		}
	}
	return NULL;
}

static struct quota_account *make_account(struct quotas *quotas, const char *id)
{
	struct quota_account *account = xnew(struct quota_account);

	ASSERT(strlen(id) < sizeof(account->id));
	memcpy(account->id, id, strlen(id) + 1);
	LIST_INSERT_HEAD(&quotas->accounts, account, link);
	return account;
}

void quotas_used(const struct quotas *quotas, const char *id, struct quota_amounts *ret)
{
	const struct quota_account *account = find_account(quotas, id);

	*ret = account ? account->used : (struct quota_amounts){0};
}

/* ---- checks ---- */

static bool fits(uint64_t limit, uint64_t used, uint64_t want)
{
	return want <= limit && used <= limit - want;
}

static int check_one(uint64_t limit, uint64_t used, uint64_t want, const char *what,
	const char *limit_name, struct err *err)
{
	if (fits(limit, used, want)) {
		return 0;
	}
	if (want > limit) {
		return err_set(err, ERR_QUOTA,
			"the account may have at most %" PRIu64 " %s at a time (limit %s); ask for "
			"less",
			limit, what, limit_name);
	}
	return err_set(err, ERR_QUOTA,
		"the account may have at most %" PRIu64 " %s at a time (limit %s); destroy a "
		"sandbox or wait until one expires",
		limit, what, limit_name);
}

static int check_account(const struct quota_amounts *limits, const struct quota_amounts *used,
	const struct quota_amounts *want, struct err *err)
{
	if (check_one(limits->sandboxes, used->sandboxes, want->sandboxes, "sandboxes", "sandboxes",
		    err) < 0 ||
		check_one(limits->vcpus, used->vcpus, want->vcpus, "vCPUs", "vcpus", err) < 0 ||
		check_one(limits->memory_mb, used->memory_mb, want->memory_mb, "MiB of memory",
			"memory_mb", err) < 0 ||
		check_one(limits->disk_gb, used->disk_gb, want->disk_gb, "GB of disk", "disk_gb",
			err) < 0) {
		return -1;
	}
	return 0;
}

static uint64_t host_cost(const struct quota_host *host, const struct quota_amounts *amounts)
{
	return amounts->memory_mb + amounts->sandboxes * host->overhead_mb;
}

/* How much the machine has is not the tenants' business: the message has no figures. */
static int check_host(
	const struct quotas *quotas, const struct quota_amounts *want, struct err *err)
{
	const struct quota_host *host = &quotas->host;

	if (host->memory_mb == 0 ||
		fits(host->memory_mb * host->overcommit_pct / 100, host_cost(host, &quotas->used),
			host_cost(host, want))) {
		return 0;
	}
	return err_set(err, ERR_UNAVAILABLE,
		"the host has no memory left for a sandbox of this size (limit host memory); try a "
		"smaller one, or again when others have ended");
}

/* ---- charges ---- */

static void add(struct quota_amounts *to, const struct quota_amounts *amounts)
{
	to->sandboxes += amounts->sandboxes;
	to->vcpus += amounts->vcpus;
	to->memory_mb += amounts->memory_mb;
	to->disk_gb += amounts->disk_gb;
}

static void subtract(struct quota_amounts *from, const struct quota_amounts *amounts)
{
	ASSERT(from->sandboxes >= amounts->sandboxes && from->vcpus >= amounts->vcpus);
	ASSERT(from->memory_mb >= amounts->memory_mb && from->disk_gb >= amounts->disk_gb);
	from->sandboxes -= amounts->sandboxes;
	from->vcpus -= amounts->vcpus;
	from->memory_mb -= amounts->memory_mb;
	from->disk_gb -= amounts->disk_gb;
}

int quota_charge(struct quotas *quotas, const char *account, const struct quota_amounts *want,
	struct quota_charge *charge, struct err *err)
{
	struct quota_amounts used;

	quotas_used(quotas, account, &used);
	if (check_account(&quotas->limits, &used, want, err) < 0 ||
		check_host(quotas, want, err) < 0) {
		return -1;
	}
	quota_restore(quotas, account, want, charge);
	return 0;
}

void quota_restore(struct quotas *quotas, const char *account, const struct quota_amounts *want,
	struct quota_charge *charge)
{
	struct quota_account *owner = find_account(quotas, account);

	ASSERT(!charge->quotas);
	if (!owner) {
		owner = make_account(quotas, account);
	}
	add(&owner->used, want);
	add(&quotas->used, want);
	owner->charges++;
	*charge = (struct quota_charge){.quotas = quotas, .account = owner, .amounts = *want};
}

void quota_refund(struct quota_charge *charge)
{
	struct quota_account *owner = charge->account;

	if (!charge->quotas) {
		return;
	}
	subtract(&owner->used, &charge->amounts);
	subtract(&charge->quotas->used, &charge->amounts);
	owner->charges--;
	if (owner->charges == 0) {
		LIST_REMOVE(owner, link);
		free(owner);
	}
	*charge = (struct quota_charge){0};
}
