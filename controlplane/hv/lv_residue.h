#pragma once

/*
 * lv_residue - what outlived its domain
 *
 * Purpose: finds and removes what libvirt and QEMU leave behind when they, or we, are killed:
 *
 *   embedded   ROOT/log/qemu/NAME.log                    QEMU's own output; libvirt never removes
 * it ROOT/run/qemu/NAME.pid, NAME.xml          of a domain that libvirt couldn't read again
 *              ROOT/lib/qemu/domain-NUMBER-NAME/         key and monitor; NAME is cut to 20 bytes
 *              ROOT/lib/qemu/channel/target/domain-…/
 *              ROOT/lib/qemu/qmp-XXXXXX/                 of a capability probe
 *              processes of QEMU whose command line names ROOT
 *   system     /var/log/libvirt/qemu/NAME.log            all else there is libvirtd's affair
 *
 * Owns:    nothing.
 * Thread:  worker.
 * Errors:  as in hv.h.
 * Uses:    base, hv.h, lv_domain.h, lv_place.h, process.h.
 *
 * Only what carries our mark counts: the name of a domain of this instance, or the root itself,
 * which is this instance's alone. Candidates are gathered before libvirt is asked what it has, so
 * what a domain made that began in between isn't taken for a dead one's.
 */

#include <pthread.h>

#include "hv/lv_domain.h"
#include "hv/lv_place.h"

/* The caller frees *ret. */
int lv_residue_gather_blocking(const struct lv_target *target, const struct lv_place *place,
	struct lv_census *ret_census, struct hv_residue **ret, size_t *ret_count, struct err *err);

/*
 * @starts is held for reading while a domain starts: libvirt counts domains anew after a restart,
 * so a start may take over a directory of that number.
 */
int lv_residue_remove_blocking(const struct lv_target *target, const struct lv_place *place,
	const struct hv_residue *item, pthread_rwlock_t *starts, struct err *err);

/* What the name of an entry in one of the directories above means. For tests, too. */
struct lv_residue_entry {
	enum hv_residue_kind kind;
	char id[ID_BYTES];              /* "": not in the name */
	char domain[DOMAIN_NAME_BYTES]; /* "": not in the name */
	int number;                     /* of a domain-NUMBER-… directory, else -1 */
};
/* False: it isn't ours, or nothing that outlives a domain. @place_dir: "log/qemu", … */
bool lv_residue_parse(const char *place_dir, const char *entry, const char *instance,
	struct lv_residue_entry *ret);
