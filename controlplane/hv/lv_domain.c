#include "hv/lv_domain.h"

#include <libvirt/virterror.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "hv/lv_error.h"
#include "hv/overlay.h"
#include "loop/loop.h"

/*
 * Theory of operation
 *
 * Nothing is kept between calls: each looks the domain up anew, so a domain that went away
 * meanwhile is seen.
 *
 * Ending a domain: its process is pinned by a pidfd *before* libvirt is told, since libvirt removes
 * the pid file on the way. libvirt sends TERM and after a while KILL, and returns when the process
 * is gone from its point of view. The pidfd then says whether that is so; if not, we kill. So we do
 * with the process of a domain that libvirt has lost, as it does when its status file is damaged.
 */

#define EXIT_GRACE_MS 2000 /* after libvirt said it is over */
#define KILL_GRACE_MS 5000

static void domain_free(virDomainPtr domain)
{
	virDomainFree(domain);
}
DEFINE_CLEANUP(virDomainPtr, domain_free)
#define _cleanup_domain_ _cleanup_(domain_free_p)

/* ---- finding and reading ---- */

static int read_metadata(virDomainPtr domain, struct domain_metadata *ret, struct err *err)
{
	_cleanup_free_ char *xml = virDomainGetMetadata(
		domain, VIR_DOMAIN_METADATA_ELEMENT, DOMAIN_METADATA_URI, 0);

	if (!xml) {
		return lv_error_set(err, "read a domain's metadata");
	}
	return domain_metadata_parse(xml, ret, err);
}

/* The error of a look at a domain that isn't ours, or that went away while we looked. */
static bool is_none_of_ours(const struct err *err)
{
	return err->kind == ERR_INVALID || err->kind == ERR_NOT_FOUND ||
	       err->sys == VIR_ERR_NO_DOMAIN_METADATA;
}

/* ERR_NOT_FOUND too where a domain has the name but isn't ours. */
static int find(const struct lv_target *target, const char *id, virDomainPtr *ret,
	struct domain_metadata *ret_metadata, struct err *err)
{
	char name[DOMAIN_NAME_BYTES];

	ASSERT(!loop_is_current());
	domain_name(name, target->instance, id);
	_cleanup_domain_ virDomainPtr domain = virDomainLookupByName(target->conn, name);

	if (!domain) {
		return lv_error_set(err, "find the domain");
	}
	if (read_metadata(domain, ret_metadata, err) != 0) {
		bool is_foreign = err->kind == ERR_INVALID ||
				  err->sys == VIR_ERR_NO_DOMAIN_METADATA;

		return is_foreign ? err_set(err, ERR_NOT_FOUND, "the domain isn't ours") : -1;
	}
	if (strcmp(ret_metadata->instance, target->instance) != 0 ||
		strcmp(ret_metadata->id, id) != 0) {
		return err_set(err, ERR_NOT_FOUND, "the domain isn't ours");
	}
	*ret = steal_ptr(&domain);
	return 0;
}

/* All zero where there is none. Fails only when that can't be told. */
static int find_process(const struct lv_target *target, const char *instance, const char *id,
	struct process *ret, struct err *err)
{
	char name[DOMAIN_NAME_BYTES];

	*ret = (struct process){0};
	domain_name(name, instance, id);
	_cleanup_free_ char *pid_file = xasprintf("%s/%s.pid", target->pid_dir, name);

	return process_find(pid_file, name, ret, err) == 0 || err->kind != ERR_UNAVAILABLE ? 0 : -1;
}

static void copy_metadata(struct hv_facts *facts, const struct domain_metadata *metadata)
{
	snprintf(facts->id, sizeof facts->id, "%s", metadata->id);
	snprintf(facts->account, sizeof facts->account, "%s", metadata->account);
	facts->expires_at_ms = metadata->expires_at_ms;
}

static int read_facts(const struct lv_target *target, virDomainPtr domain,
	const struct domain_metadata *metadata, struct lv_facts *ret, struct err *err)
{
	int state;

	if (virDomainGetState(domain, &state, NULL, 0) != 0 ||
		virDomainGetUUID(domain, ret->uuid) != 0) {
		return lv_error_set(err, "read a domain's state");
	}
	struct process process;

	if (find_process(target, metadata->instance, metadata->id, &process, err) != 0) {
		return -1;
	}
	ret->facts = (struct hv_facts){.state = domain_state(state, process.pid != 0),
		.pid = process.pid,
		.pid_start = process.start,
		.started_at_ms = process_started_at_ms(&process)};
	copy_metadata(&ret->facts, metadata);
	return 0;
}

/* ---- start and end ---- */

int lv_domain_start_blocking(const struct lv_target *target, const struct hv_spec *spec,
	const struct domain_xml_host *host, const unsigned char uuid[DOMAIN_UUID_BYTES],
	struct lv_facts *ret, struct err *err)
{
	char name[DOMAIN_NAME_BYTES];
	char uuid_text[VIR_UUID_STRING_BUFLEN];
	struct domain_metadata metadata;
	const unsigned char *u = uuid;

	ASSERT(!loop_is_current());
	snprintf(uuid_text, sizeof uuid_text,
		"%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
		u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
		u[15]);
	_cleanup_free_ char *xml = domain_xml_build(spec, host, uuid_text, err);

	if (!xml) {
		return -1;
	}
	domain_name(name, target->instance, spec->id);
	_cleanup_domain_ virDomainPtr old = virDomainLookupByName(target->conn, name);

	if (old) {
		return err_set(err, ERR_CONFLICT, "the virtual machine exists already");
	}
	/* The run directory may be emptied only where none is known to use it. */
	(void)lv_error_set(err, "look for an old domain");
	if (err->kind != ERR_NOT_FOUND) {
		return -1;
	}
	if (overlay_prepare_run_blocking(spec->paths, err) != 0) {
		return -1;
	}
	_cleanup_domain_ virDomainPtr domain = virDomainCreateXML(target->conn, xml, 0);

	if (!domain) {
		return lv_error_set(err, "start the domain");
	}
	if (read_metadata(domain, &metadata, err) != 0 ||
		read_facts(target, domain, &metadata, ret, err) != 0) {
		return err->kind == ERR_NOT_FOUND
			       ? err_set(err, ERR_INTERNAL,
					 "the domain ended right after its start")
			       : -1;
	}
	return 0;
}

/* Waits for the process of @pidfd, and helps if need be. */
static int await_exit(int pidfd, struct err *err)
{
	if (pidfd < 0 || process_wait_blocking(pidfd, EXIT_GRACE_MS)) {
		return 0;
	}
	process_kill(pidfd);
	if (process_wait_blocking(pidfd, KILL_GRACE_MS)) {
		return 0;
	}
	return err_set(err, ERR_TIMEOUT, "the virtual machine's process doesn't end");
}

/* The process of a domain that libvirt doesn't know, by its command line. */
static int find_lost_process(
	const struct lv_target *target, const char *id, struct process *ret, struct err *err)
{
	char name[DOMAIN_NAME_BYTES];
	struct process_found *found;
	size_t count;

	*ret = (struct process){0};
	if (!target->root) {
		return 0;
	}
	if (process_scan(target->root, &found, &count, err) != 0) {
		return -1;
	}
	domain_name(name, target->instance, id);
	for (size_t i = 0; i < count; i++) {
		if (strcmp(found[i].domain, name) == 0) {
			*ret = found[i].process;
		}
	}
	process_scan_fini(found, count);
	return 0;
}

/* *ret_fd is a pidfd of @process, or -1 where it isn't there any more. */
static int pin(const struct lv_target *target, const char *id, const struct process *process,
	int *ret_fd, struct err *err)
{
	char name[DOMAIN_NAME_BYTES];

	*ret_fd = -1;
	domain_name(name, target->instance, id);
	return process_open(process, name, ret_fd, err) == 0 || err->kind == ERR_NOT_FOUND ? 0 : -1;
}

int lv_domain_destroy_blocking(const struct lv_target *target, const char *id,
	const struct process *known, struct err *err)
{
	struct domain_metadata metadata;
	_cleanup_domain_ virDomainPtr domain = NULL;
	bool is_there = find(target, id, &domain, &metadata, err) == 0;
	bool is_lost = false;
	struct process process = *known;

	if (!is_there && err->kind != ERR_NOT_FOUND) {
		return -1;
	}
	/* A foreign one of that name has such a file, and such a process, too. */
	if (is_there) {
		struct process current;

		if (find_process(target, target->instance, id, &current, err) != 0) {
			return -1;
		}
		process = current.pid ? current : process;
	} else if (process.pid == 0 && err->sys == VIR_ERR_NO_DOMAIN) {
		if (find_lost_process(target, id, &process, err) != 0) {
			return -1;
		}
		is_lost = true;
	}
	_cleanup_close_ int pidfd = -1;

	if (pin(target, id, &process, &pidfd, err) != 0) {
		return -1;
	}
	if (is_lost && pidfd >= 0) {
		/* Nobody has told it to end. */
		process_kill(pidfd);
	}
	if (is_there && virDomainDestroy(domain) != 0) {
		(void)lv_error_set(err, "end the domain");
		/* It ended by itself meanwhile. */
		if (err->kind != ERR_NOT_FOUND && err->kind != ERR_CONFLICT) {
			return -1;
		}
	}
	return await_exit(pidfd, err);
}

/* ---- small changes ---- */

int lv_domain_resume_blocking(const struct lv_target *target, const char *id, struct err *err)
{
	struct domain_metadata metadata;
	_cleanup_domain_ virDomainPtr domain = NULL;

	if (find(target, id, &domain, &metadata, err) != 0) {
		return -1;
	}
	return virDomainResume(domain) == 0 ? 0 : lv_error_set(err, "resume the domain");
}

int lv_domain_set_link_blocking(
	const struct lv_target *target, const char *id, bool is_up, struct err *err)
{
	struct domain_metadata metadata;
	_cleanup_domain_ virDomainPtr domain = NULL;
	_cleanup_free_ char *xml = domain_xml_interface(is_up, err);

	if (!xml || find(target, id, &domain, &metadata, err) != 0) {
		return -1;
	}
	struct process process;
	_cleanup_close_ int pidfd = -1;

	if (find_process(target, target->instance, id, &process, err) != 0 ||
		pin(target, id, &process, &pidfd, err) != 0) {
		return -1;
	}
	if (pidfd >= 0) {
		/* As late as can be: it must run to carry this out. */
		process_continue(pidfd);
	}
	return virDomainUpdateDeviceFlags(domain, xml, VIR_DOMAIN_AFFECT_LIVE) == 0
		       ? 0
		       : lv_error_set(err, "set the link");
}

int lv_domain_set_expiry_blocking(
	const struct lv_target *target, const char *id, int64_t expires_at_ms, struct err *err)
{
	struct domain_metadata metadata;
	_cleanup_domain_ virDomainPtr domain = NULL;

	if (find(target, id, &domain, &metadata, err) != 0) {
		return -1;
	}
	metadata.expires_at_ms = expires_at_ms;
	_cleanup_free_ char *xml = domain_xml_metadata(&metadata, err);

	if (!xml) {
		return -1;
	}
	return virDomainSetMetadata(domain, VIR_DOMAIN_METADATA_ELEMENT, xml, DOMAIN_METADATA_KEY,
		       DOMAIN_METADATA_URI, VIR_DOMAIN_AFFECT_LIVE) == 0
		       ? 0
		       : lv_error_set(err, "write the domain's metadata");
}

/* ---- listing ---- */

/*
 * Adds @domain to the census. What can't be read of ours is a failure: left out, it would be taken
 * for dead.
 */
static int count_domain(const struct lv_target *target, virDomainPtr domain,
	struct lv_census *census, struct err *err)
{
	struct domain_metadata metadata;
	const char *name = virDomainGetName(domain);
	unsigned number = virDomainGetID(domain);
	struct lv_facts facts;

	if (!name) {
		return 0;
	}
	census->names[census->name_count++] = (struct lv_name){
		.name = xstrdup(name), .number = number > INT_MAX ? -1 : (int)number};
	if (strncmp(name, DOMAIN_NAME_PREFIX, strlen(DOMAIN_NAME_PREFIX)) != 0) {
		return 0;
	}
	if (read_metadata(domain, &metadata, err) != 0) {
		return is_none_of_ours(err) ? 0 : -1;
	}
	bool is_ours = strcmp(metadata.instance, target->instance) == 0;

	if (read_facts(target, domain, &metadata, &facts, err) != 0) {
		if (is_none_of_ours(err)) {
			return 0;
		}
		if (is_ours) {
			return -1;
		}
		facts.facts = (struct hv_facts){.state = HV_DOMAIN_UNSETTLED};
		copy_metadata(&facts.facts, &metadata);
	}
	if (is_ours) {
		census->own[census->own_count++] = facts;
		return 0;
	}
	struct hv_other *other = &census->others[census->other_count++];

	other->facts = facts.facts;
	snprintf(other->instance, sizeof other->instance, "%s", metadata.instance);
	return 0;
}

static void free_domains(virDomainPtr *domains, int count)
{
	for (int i = 0; i < count; i++) {
		virDomainFree(domains[i]);
	}
	free(domains);
}

void lv_census_fini(struct lv_census *census)
{
	for (size_t i = 0; i < census->name_count; i++) {
		free(census->names[i].name);
	}
	free(census->own);
	free(census->others);
	free(census->names);
	*census = (struct lv_census){0};
}

int lv_domain_census_blocking(
	const struct lv_target *target, struct lv_census *ret, struct err *err)
{
	struct lv_census census = {0};
	virDomainPtr *domains;
	int rc = 0;

	ASSERT(!loop_is_current());
	int total = virConnectListAllDomains(target->conn, &domains, 0);

	if (total < 0) {
		return lv_error_set(err, "list domains");
	}
	census.own = xcalloc((size_t)total + 1, sizeof *census.own);
	census.others = xcalloc((size_t)total + 1, sizeof *census.others);
	census.names = xcalloc((size_t)total + 1, sizeof *census.names);
	for (int i = 0; i < total && rc == 0; i++) {
		rc = count_domain(target, domains[i], &census, err);
	}
	free_domains(domains, total);
	if (rc != 0) {
		lv_census_fini(&census);
		return -1;
	}
	*ret = census;
	return 0;
}

int lv_domain_list_blocking(
	const struct lv_target *target, struct lv_facts **ret, size_t *ret_count, struct err *err)
{
	struct lv_census census;

	if (lv_domain_census_blocking(target, &census, err) != 0) {
		return -1;
	}
	*ret = steal_ptr(&census.own);
	*ret_count = census.own_count;
	lv_census_fini(&census);
	return 0;
}

/* @domain: of a look-up. */
static int is_there(virDomainPtr domain, bool *ret, struct err *err)
{
	_cleanup_domain_ virDomainPtr found = domain;

	*ret = found != NULL;
	if (found) {
		return 0;
	}
	(void)lv_error_set(err, "look for a domain");
	return err->kind == ERR_NOT_FOUND ? 0 : -1;
}

int lv_domain_has_name_blocking(
	const struct lv_target *target, const char *name, bool *ret, struct err *err)
{
	ASSERT(!loop_is_current());
	return is_there(virDomainLookupByName(target->conn, name), ret, err);
}

int lv_domain_has_number_blocking(
	const struct lv_target *target, int number, bool *ret, struct err *err)
{
	ASSERT(!loop_is_current());
	return is_there(virDomainLookupByID(target->conn, number), ret, err);
}

bool lv_domain_settle_blocking(const struct lv_target *target, const char *id)
{
	struct domain_metadata metadata;
	_cleanup_domain_ virDomainPtr domain = NULL;
	struct err err;

	if (find(target, id, &domain, &metadata, &err) != 0) {
		return err.kind == ERR_NOT_FOUND;
	}
	/*
	 * Re-attaching holds the domain's job. This call asks for nothing, but waits for its turn,
	 * and fails at once if the domain turns out to be gone.
	 */
	if (virDomainGetDiskErrors(domain, NULL, 0, 0) >= 0) {
		return true;
	}
	(void)lv_error_set(&err, "wait for the domain");
	return err.kind != ERR_TIMEOUT;
}
