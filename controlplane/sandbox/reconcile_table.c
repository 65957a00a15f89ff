#include "sandbox/reconcile_table.h"

#include "base/macros.h"

enum reconcile_domain reconcile_domain_of(const struct hv_facts *facts)
{
	static const enum reconcile_domain domains[] = {
		[HV_DOMAIN_RUNNING] = RECONCILE_ACTIVE,
		[HV_DOMAIN_PAUSED] = RECONCILE_PAUSED,
		[HV_DOMAIN_SHUTOFF] = RECONCILE_SHUTOFF,
		[HV_DOMAIN_UNSETTLED] = RECONCILE_UNSETTLED,
	};

	if (!facts) {
		return RECONCILE_ABSENT;
	}
	ASSERT(facts->state < ARRAY_SIZE(domains));
	return domains[facts->state];
}

#define K RECONCILE_KEEP
#define W RECONCILE_WAIT

/* clang-format off */
static const enum reconcile_action
table[RECONCILE_ROW_MAX][RECONCILE_DISK_MAX][RECONCILE_DOMAIN_MAX] = {
	/* absent              active              paused              shut off            unsettled */
	[RECONCILE_CREATING] = {
		[RECONCILE_NO_DISK] =
		{RECONCILE_UNDO,   RECONCILE_UNDO,     RECONCILE_UNDO,     RECONCILE_UNDO,     W},
		[RECONCILE_DISK] =
		{RECONCILE_UNDO,   RECONCILE_UNDO,     RECONCILE_UNDO,     RECONCILE_UNDO,     W}},
	[RECONCILE_RESTARTING] = {
		/* While it runs, what the user had is still in there. */
		[RECONCILE_NO_DISK] =
		{RECONCILE_LOST,   RECONCILE_DISKLESS, RECONCILE_DISKLESS, RECONCILE_LOST,     W},
		[RECONCILE_DISK] =
		{RECONCILE_REDO,   RECONCILE_REDO,     RECONCILE_REDO,     RECONCILE_REDO,     W}},
	[RECONCILE_RESETTING] = {
		[RECONCILE_NO_DISK] =
		{RECONCILE_REDO,   RECONCILE_REDO,     RECONCILE_REDO,     RECONCILE_REDO,     W},
		[RECONCILE_DISK] =
		{RECONCILE_REDO,   RECONCILE_REDO,     RECONCILE_REDO,     RECONCILE_REDO,     W}},
	[RECONCILE_RUNNING] = {
		[RECONCILE_NO_DISK] =
		{RECONCILE_LOST,   RECONCILE_DISKLESS, RECONCILE_DISKLESS, RECONCILE_LOST,     W},
		[RECONCILE_DISK] =
		{RECONCILE_ENDED,  RECONCILE_ATTACH,   RECONCILE_ATTACH,   RECONCILE_ENDED,    W}},
	[RECONCILE_STOPPED] = {
		[RECONCILE_NO_DISK] =
		{RECONCILE_LOST,   RECONCILE_END,      RECONCILE_END,      RECONCILE_LOST,     W},
		[RECONCILE_DISK] =
		{K,                RECONCILE_END,      RECONCILE_END,      K,                  W}},
	[RECONCILE_DELETING] = {
		[RECONCILE_NO_DISK] =
		{RECONCILE_FINISH, RECONCILE_FINISH,   RECONCILE_FINISH,   RECONCILE_FINISH,   W},
		[RECONCILE_DISK] =
		{RECONCILE_FINISH, RECONCILE_FINISH,   RECONCILE_FINISH,   RECONCILE_FINISH,   W}},
};
/* clang-format on */

#undef K
#undef W

enum reconcile_action reconcile_decide(
	enum reconcile_row row, enum reconcile_domain domain, enum reconcile_disk disk)
{
	ASSERT(row < RECONCILE_ROW_MAX && domain < RECONCILE_DOMAIN_MAX &&
		disk < RECONCILE_DISK_MAX);
	ASSERT(table[row][disk][domain] != 0);
	return table[row][disk][domain];
}
