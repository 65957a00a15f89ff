#pragma once

/*
 * domain_facts - what a domain says of itself
 *
 * Purpose: reads the metadata element that domain_xml writes, and names the states. Pure.
 * Owns:    nothing.
 * Thread:  any.
 * Errors:  ERR_INVALID: not our element, or damaged. Whoever administers libvirt can write there,
 *          so nothing in it is believed unread.
 * Uses:    base, hv.h, libxml2.
 */

#include <stdbool.h>
#include <stddef.h>

#include "hv/hv.h"

#define DOMAIN_NAME_PREFIX    "paddock-"
#define DOMAIN_NAME_BYTES     64
#define DOMAIN_UUID_BYTES     16
#define DOMAIN_METADATA_URI   "urn:paddock:domain"
#define DOMAIN_METADATA_KEY   "paddock"
#define DOMAIN_METADATA_NAME  "sandbox"
#define DOMAIN_METADATA_MAX   4096
#define DOMAIN_FORMAT_VERSION 1

struct domain_metadata {
	char instance[HV_INSTANCE_BYTES];
	char id[ID_BYTES];
	char account[HV_ACCOUNT_BYTES];
	char name[NAME_MAX_BYTES + 1]; /* "": none */
	int64_t expires_at_ms;         /* 0: never */
};

/* 16 lower-case hex digits. */
bool domain_instance_is_valid(const char *instance);
/* "paddock-" + the first 8 digits of the instance + "-" + the sandbox's id. */
void domain_name(char out[DOMAIN_NAME_BYTES], const char *instance, const char *id);

/* The id in the name of a domain of @instance; false: it is no such name. */
bool domain_name_parse(const char *name, const char *instance, char ret_id[ID_BYTES]);

/* Of the element's text, at most DOMAIN_METADATA_MAX bytes. */
int domain_metadata_parse(const char *xml, struct domain_metadata *ret, struct err *err);

/* From a virDomainState and whether the process lives. */
enum hv_domain_state domain_state(int virt_state, bool is_process_alive);
