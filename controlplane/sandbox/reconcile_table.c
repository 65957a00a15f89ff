#include "sandbox/reconcile_table.h"

#include "base/macros.h"

enum reconcile_domain reconcile_domain_of(const struct hv_facts *facts)
{
	static const enum reconcile_domain domains[] = {
		[HV_DOMAIN_RUNNING] = RECONCILE_RUNNING,
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

enum reconcile_action reconcile_decide(enum sandbox_state row, enum reconcile_domain domain)
{
#define K RECONCILE_KEEP
#define W RECONCILE_WAIT
#define R RECONCILE_REAP
	static const enum reconcile_action table[SANDBOX_STATE_MAX][RECONCILE_DOMAIN_MAX] = {
		/* clang-format off */
		/* row                   absent             running            paused             shut off           unsettled */
		[SANDBOX_PROVISIONING] = {RECONCILE_UNDO,   RECONCILE_UNDO,    RECONCILE_UNDO,    RECONCILE_UNDO,    W},
		[SANDBOX_RUNNING]      = {RECONCILE_ENDED,  RECONCILE_ATTACH,  RECONCILE_RESUME,  RECONCILE_ENDED,   W},
		[SANDBOX_STOPPED]      = {RECONCILE_ENDED,  R,                 R,                 R,                 W},
		[SANDBOX_DELETING]     = {RECONCILE_FINISH, RECONCILE_FINISH,  RECONCILE_FINISH,  RECONCILE_FINISH,  W},
		[SANDBOX_DELETED]      = {K,                R,                 R,                 R,                 W},
		[SANDBOX_FAILED]       = {K,                R,                 R,                 R,                 W},
		/* clang-format on */
	};
#undef K
#undef W
#undef R

	ASSERT(row < SANDBOX_STATE_MAX && domain < RECONCILE_DOMAIN_MAX);
	ASSERT(table[row][domain] != 0);
	return table[row][domain];
}
