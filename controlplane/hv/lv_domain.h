#pragma once

/*
 * lv_domain - domains in libvirt
 *
 * Purpose: the calls that act on one domain or list them. A domain is found by its name and is
 *          ours only if its metadata says so: instance and sandbox id.
 * Owns:    nothing; connections are borrowed.
 * Thread:  worker.
 * Errors:  as in hv.h.
 * Uses:    base, hv.h, domain_xml.h, domain_facts.h, process.h, lv_error.h, libvirt.
 */

#include <libvirt/libvirt.h>

#include "hv/domain_xml.h"
#include "hv/process.h"

/* Where to look. */
struct lv_target {
	virConnectPtr conn;
	const char *instance;
	const char *pid_dir; /* libvirt's NAME.pid files */
	const char *root;    /* of the embedded driver; NULL: none */
};

/* What is known of a domain, with what only this folder needs. */
struct lv_facts {
	struct hv_facts facts;
	unsigned char uuid[DOMAIN_UUID_BYTES];
};

/* What a connection has, whosever it is. */
struct lv_name {
	char *name;
	int number; /* of an active domain; -1: it isn't */
};

struct lv_census {
	struct lv_facts *own;
	size_t own_count;
	struct hv_other *others; /* Paddock's, of another instance */
	size_t other_count;
	struct lv_name *names; /* of all domains, foreign ones too */
	size_t name_count;
};

int lv_domain_start_blocking(const struct lv_target *target, const struct hv_spec *spec,
	const struct domain_xml_host *host, const unsigned char uuid[DOMAIN_UUID_BYTES],
	struct lv_facts *ret, struct err *err);
/*
 * Ends when libvirt doesn't know it any more and the process is gone. @known: the process as last
 * seen, for a domain that libvirt has forgotten before its process ended.
 */
int lv_domain_destroy_blocking(const struct lv_target *target, const char *id,
	const struct process *known, struct err *err);
int lv_domain_resume_blocking(const struct lv_target *target, const char *id, struct err *err);
/* Lets a process go on that was stopped since its link couldn't be pulled. */
int lv_domain_set_link_blocking(
	const struct lv_target *target, const char *id, bool is_up, struct err *err);
int lv_domain_set_expiry_blocking(
	const struct lv_target *target, const char *id, int64_t expires_at_ms, struct err *err);
/* The caller frees *ret. */
int lv_domain_list_blocking(
	const struct lv_target *target, struct lv_facts **ret, size_t *ret_count, struct err *err);
/* All domains, with one look. lv_census_fini() is right only after a success. */
int lv_domain_census_blocking(
	const struct lv_target *target, struct lv_census *ret, struct err *err);
void lv_census_fini(struct lv_census *census);
/* Whether there is a domain of that name, or an active one of that number; whosever it is. */
int lv_domain_has_name_blocking(
	const struct lv_target *target, const char *name, bool *ret, struct err *err);
int lv_domain_has_number_blocking(
	const struct lv_target *target, int number, bool *ret, struct err *err);
/*
 * Waits until libvirt has re-attached to the domain or given it up: at most 30 s, which is
 * libvirt's own limit. False when it is still at it.
 */
bool lv_domain_settle_blocking(const struct lv_target *target, const char *id);
