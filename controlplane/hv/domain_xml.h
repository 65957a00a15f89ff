#pragma once

/*
 * domain_xml - from a specification to libvirt's domain XML
 *
 * Purpose: the only producer of domain XML. Pure: the same input gives the same bytes.
 * Owns:    nothing; the returned text is the caller's.
 * Thread:  any.
 * Errors:  ERR_INTERNAL: a string that XML can't hold (a control character, bad UTF-8).
 * Uses:    base, hv.h, domain_facts.h (names shared with the reader), libxml2.
 */

#include "hv/domain_facts.h"

#if defined(__aarch64__)
#define DOMAIN_ARCH    "aarch64"
#define DOMAIN_MACHINE "virt"
#else
#define DOMAIN_ARCH    "x86_64"
#define DOMAIN_MACHINE "q35"
#endif

/* What every domain of this service has in common. */
struct domain_xml_host {
	const char *instance;
	bool is_kvm;
	unsigned tb_cache_mib; /* TCG's translation buffer */
	const char *emulator;  /* NULL: libvirt's choice */
};

/* @uuid: 36 characters. */
char *domain_xml_build(const struct hv_spec *spec, const struct domain_xml_host *host,
	const char *uuid, struct err *err);
/* The metadata element alone, for virDomainSetMetadata() (libvirt adds the namespace). */
char *domain_xml_metadata(const struct domain_metadata *metadata, struct err *err);
/* The network card alone, for virDomainUpdateDeviceFlags(). */
char *domain_xml_interface(bool is_link_up, struct err *err);
