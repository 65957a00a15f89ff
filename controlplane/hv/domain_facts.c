#include "hv/domain_facts.h"

#include <libvirt/libvirt.h>
#include <libxml/parser.h>
#include <libxml/tree.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/parse.h"

DEFINE_CLEANUP(xmlDocPtr, xmlFreeDoc)

#define INSTANCE_DIGITS_IN_NAME 8

bool domain_instance_is_valid(const char *instance)
{
	return strlen(instance) == HV_INSTANCE_BYTES - 1 &&
	       strspn(instance, "0123456789abcdef") == HV_INSTANCE_BYTES - 1;
}

void domain_name(char out[DOMAIN_NAME_BYTES], const char *instance, const char *id)
{
	snprintf(out, DOMAIN_NAME_BYTES, DOMAIN_NAME_PREFIX "%.*s-%s", INSTANCE_DIGITS_IN_NAME,
		instance, id);
}

bool domain_name_parse(const char *name, const char *instance, char ret_id[ID_BYTES])
{
	char prefix[DOMAIN_NAME_BYTES];

	domain_name(prefix, instance, "");
	const char *id = name + strlen(prefix);

	if (strncmp(name, prefix, strlen(prefix)) != 0 || !id_is_valid(id, ID_SANDBOX)) {
		return false;
	}
	snprintf(ret_id, ID_BYTES, "%s", id);
	return true;
}

/* Copies the attribute @key; false when it is missing or too long. */
static bool read_attribute(xmlNodePtr node, const char *key, char *out, size_t size)
{
	xmlChar *value = xmlGetNoNsProp(node, (const xmlChar *)key);
	bool fits = value && strlen((const char *)value) < size;

	if (fits) {
		strcpy(out, (const char *)value);
	}
	xmlFree(value);
	return fits;
}

/* libvirt finds the element by its namespace and takes that off before it hands it out. */
static bool is_our_element(xmlNodePtr node)
{
	return node && xmlStrEqual(node->name, (const xmlChar *)DOMAIN_METADATA_NAME);
}

static bool read_number(xmlNodePtr node, const char *key, int64_t max, int64_t *ret)
{
	char text[32];
	struct err err;

	return read_attribute(node, key, text, sizeof text) &&
	       parse_int(text, 0, max, ret, &err) == 0;
}

int domain_metadata_parse(const char *xml, struct domain_metadata *ret, struct err *err)
{
	struct domain_metadata found = {0};
	size_t len = strnlen(xml, DOMAIN_METADATA_MAX + 1);
	int64_t format;

	if (len > DOMAIN_METADATA_MAX) {
		return err_set(err, ERR_INVALID, "the domain's metadata is too long");
	}
	_cleanup_(xmlFreeDoc_p) xmlDocPtr doc = xmlReadMemory(xml, (int)len, NULL, NULL,
		XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
	xmlNodePtr node = doc ? xmlDocGetRootElement(doc) : NULL;

	if (!is_our_element(node)) {
		return err_set(err, ERR_INVALID, "the domain's metadata isn't Paddock's");
	}
	if (!read_number(node, "format", INT32_MAX, &format) || format != DOMAIN_FORMAT_VERSION) {
		return err_set(
			err, ERR_INVALID, "the domain's metadata has a format that isn't known");
	}
	if (!read_attribute(node, "instance", found.instance, sizeof found.instance) ||
		!domain_instance_is_valid(found.instance) ||
		!read_attribute(node, "id", found.id, sizeof found.id) ||
		!id_is_valid(found.id, ID_SANDBOX) ||
		!read_attribute(node, "account", found.account, sizeof found.account) ||
		!id_is_valid(found.account, ID_ACCOUNT) ||
		!read_number(node, "expires", INT64_MAX, &found.expires_at_ms)) {
		return err_set(err, ERR_INVALID, "the domain's metadata is damaged");
	}
	/* Only for people who look at the domain; a bad one is no reason to disown it. */
	if (!read_attribute(node, "name", found.name, sizeof found.name) ||
		!name_is_valid(found.name)) {
		found.name[0] = '\0';
	}
	*ret = found;
	return 0;
}

enum hv_domain_state domain_state(int virt_state, bool is_process_alive)
{
	switch (virt_state) {
	case VIR_DOMAIN_RUNNING:
	case VIR_DOMAIN_BLOCKED:
		return is_process_alive ? HV_DOMAIN_RUNNING : HV_DOMAIN_UNSETTLED;
	case VIR_DOMAIN_PAUSED:
	case VIR_DOMAIN_PMSUSPENDED:
		return is_process_alive ? HV_DOMAIN_PAUSED : HV_DOMAIN_UNSETTLED;
	case VIR_DOMAIN_SHUTOFF:
	case VIR_DOMAIN_CRASHED:
		return is_process_alive ? HV_DOMAIN_UNSETTLED : HV_DOMAIN_SHUTOFF;
	default:
		/* No state yet, or on its way down. */
		return HV_DOMAIN_UNSETTLED;
	}
}
