#include "hv/domain_xml.h"

#include <inttypes.h>
#include <libxml/parser.h>
#include <libxml/tree.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/parse.h"
#include "base/xalloc.h"

/*
 * Theory of operation. The document is built as a tree, so escaping is libxml2's affair. Element
 * builders never fail: a string that XML can't hold sets `bad` in the builder, which is looked at
 * once at the end.
 *
 * What is left out on purpose: USB, video, sound and the balloon (each is attack surface; the
 * balloon can also punch holes into memory that guests share). What libvirt adds by itself and
 * can't be talked out of: the SATA controller and the PS/2 keyboard and mouse that are part of q35,
 * and an audio backend of type "none".
 *
 * The domain's own label has relabel='no': libvirt owns no file of ours. With that, libvirt refuses
 * labels on single files, so there are none.
 */

DEFINE_CLEANUP(xmlDocPtr, xmlFreeDoc)

/* With user-mode networking every card is a network of its own, so one address does for all. */
#define MAC_ADDRESS  "52:54:00:12:34:56"
#define CHANNEL_NAME "org.paddock.agent.0"

struct builder {
	xmlDocPtr doc;
	bool bad;
};

static const xmlChar *checked(struct builder *b, const char *text)
{
	for (const char *p = text; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 0x7f) {
			b->bad = true;
		}
	}
	if (!utf8_is_valid(text, strlen(text))) {
		b->bad = true;
	}
	return (const xmlChar *)(b->bad ? "" : text);
}

static xmlNodePtr add(struct builder *b, xmlNodePtr parent, const char *name, const char *text)
{
	xmlNodePtr node = xmlNewTextChild(
		parent, NULL, (const xmlChar *)name, text ? checked(b, text) : NULL);

	ASSERT(node != NULL);
	return node;
}

static void set(struct builder *b, xmlNodePtr node, const char *name, const char *value)
{
	ASSERT(xmlNewProp(node, (const xmlChar *)name, checked(b, value)) != NULL);
}

/* Sets pairs of attribute and value up to a NULL. */
static xmlNodePtr add_with(struct builder *b, xmlNodePtr parent, const char *name, ...)
{
	xmlNodePtr node = add(b, parent, name, NULL);
	const char *key;
	va_list ap;

	va_start(ap, name);
	while ((key = va_arg(ap, const char *))) {
		set(b, node, key, va_arg(ap, const char *));
	}
	va_end(ap);
	return node;
}

static void add_number(
	struct builder *b, xmlNodePtr parent, const char *name, const char *unit, uint64_t number)
{
	char text[24];

	snprintf(text, sizeof text, "%" PRIu64, number);
	xmlNodePtr node = add(b, parent, name, text);
	if (unit) {
		set(b, node, "unit", unit);
	}
}

/* ---- parts ---- */

static void set_metadata(struct builder *b, xmlNodePtr node, const struct domain_metadata *metadata)
{
	char number[24];

	snprintf(number, sizeof number, "%d", DOMAIN_FORMAT_VERSION);
	set(b, node, "format", number);
	set(b, node, "instance", metadata->instance);
	set(b, node, "id", metadata->id);
	set(b, node, "account", metadata->account);
	if (metadata->name[0]) {
		set(b, node, "name", metadata->name);
	}
	snprintf(number, sizeof number, "%" PRId64, metadata->expires_at_ms);
	set(b, node, "expires", number);
}

static void add_metadata(
	struct builder *b, xmlNodePtr root, const struct hv_spec *spec, const char *instance)
{
	struct domain_metadata metadata = {.expires_at_ms = spec->expires_at_ms};
	xmlNodePtr node = add(b, add(b, root, "metadata", NULL), DOMAIN_METADATA_NAME, NULL);

	snprintf(metadata.instance, sizeof metadata.instance, "%s", instance);
	snprintf(metadata.id, sizeof metadata.id, "%s", spec->id);
	snprintf(metadata.account, sizeof metadata.account, "%s", spec->account);
	snprintf(metadata.name, sizeof metadata.name, "%s", spec->name ? spec->name : "");
	xmlSetNs(node, xmlNewNs(node, (const xmlChar *)DOMAIN_METADATA_URI,
			       (const xmlChar *)DOMAIN_METADATA_KEY));
	set_metadata(b, node, &metadata);
}

static void add_machine(struct builder *b, xmlNodePtr root, const struct hv_spec *spec,
	const struct domain_xml_host *host)
{
	add_number(b, root, "memory", "MiB", spec->memory_mb);
	add_number(b, root, "vcpu", NULL, spec->vcpus);

	xmlNodePtr os = add(b, root, "os", NULL);
	set(b, add(b, os, "type", "hvm"), "arch", DOMAIN_ARCH);
	set(b, xmlGetLastChild(os), "machine", DOMAIN_MACHINE);
	add(b, os, "kernel", spec->kernel);
	add(b, os, "initrd", spec->initrd);
	add(b, os, "cmdline", spec->cmdline);

	xmlNodePtr features = add(b, root, "features", NULL);
	add(b, features, "acpi", NULL);
	if (!host->is_kvm) {
		add_number(b, add(b, features, "tcg", NULL), "tb-cache", "MiB", host->tb_cache_mib);
	}
	/* Without this libvirt picks a processor that is too old for today's programs. */
	add_with(b, root, "cpu", "mode", host->is_kvm ? "host-passthrough" : "maximum", NULL);
	add_with(b, root, "clock", "offset", "utc", NULL);
	add(b, root, "on_poweroff", "destroy");
	add(b, root, "on_reboot", "destroy");
	add(b, root, "on_crash", "destroy");
}

/* The whole chain is spelled out, so that nobody probes an image that a guest may have written. */
static void add_disk(struct builder *b, xmlNodePtr devices, const struct hv_spec *spec)
{
	xmlNodePtr disk = add_with(b, devices, "disk", "type", "file", "device", "disk", NULL);

	/* error_policy: a full host disk pauses the guest, which can go on later. */
	add_with(b, disk, "driver", "name", "qemu", "type", "qcow2", "cache",
		spec->is_disk_durable ? "writeback" : "unsafe", "error_policy", "stop", "discard",
		"unmap", NULL);
	add_with(b, disk, "source", "file", spec->paths->overlay, NULL);
	xmlNodePtr backing = add_with(b, disk, "backingStore", "type", "file", NULL);
	add_with(b, backing, "format", "type", "qcow2", NULL);
	add_with(b, backing, "source", "file", spec->base_image, NULL);
	add(b, backing, "backingStore", NULL);
	add_with(b, disk, "target", "dev", "vda", "bus", "virtio", NULL);
}

/* libvirt makes the socket and hands QEMU the descriptor. */
static xmlNodePtr add_socket(
	struct builder *b, xmlNodePtr devices, const char *element, const char *path)
{
	xmlNodePtr node = add_with(b, devices, element, "type", "unix", NULL);

	add_with(b, node, "source", "mode", "bind", "path", path, NULL);
	return node;
}

static void add_interface(struct builder *b, xmlNodePtr interface, bool is_link_up)
{
	set(b, interface, "type", "user");
	add_with(b, interface, "mac", "address", MAC_ADDRESS, NULL);
	add_with(b, interface, "model", "type", "virtio", NULL);
	add_with(b, interface, "link", "state", is_link_up ? "up" : "down", NULL);
}

static void add_devices(struct builder *b, xmlNodePtr root, const struct hv_spec *spec,
	const struct domain_xml_host *host)
{
	xmlNodePtr devices = add(b, root, "devices", NULL);

	if (host->emulator) {
		add(b, devices, "emulator", host->emulator);
	}
	add_disk(b, devices, spec);
	add_with(b, devices, "controller", "type", "usb", "model", "none", NULL);
	add_with(b, devices, "controller", "type", "virtio-serial", "index", "0", NULL);
	if (spec->network == HV_NETWORK_USER) {
		add_interface(b, add(b, devices, "interface", NULL), !spec->is_link_down);
	}
	xmlNodePtr serial = add_socket(b, devices, "serial", spec->paths->console_socket);
	add_with(b, serial, "target", "port", "0", NULL);
	xmlNodePtr channel = add_socket(b, devices, "channel", spec->paths->agent_socket);
	add_with(b, channel, "target", "type", "virtio", "name", CHANNEL_NAME, NULL);
	add_with(b, devices, "memballoon", "model", "none", NULL);
	xmlNodePtr rng = add_with(b, devices, "rng", "model", "virtio", NULL);
	set(b, add(b, rng, "backend", "/dev/urandom"), "model", "random");
}

static void add_label(struct builder *b, xmlNodePtr root, const struct hv_spec *spec)
{
	char label[48];

	/* The plus signs keep libvirt from looking the numbers up as names. */
	snprintf(label, sizeof label, "+%u:+%u", spec->uid, spec->gid);
	xmlNodePtr node = add_with(
		b, root, "seclabel", "type", "static", "model", "dac", "relabel", "no", NULL);
	add(b, node, "label", label);
}

/* ---- whole documents ---- */

static struct builder begin(const char *root)
{
	struct builder b = {.doc = xmlNewDoc((const xmlChar *)"1.0")};
	xmlNodePtr node = xmlNewNode(NULL, (const xmlChar *)root);

	ASSERT(b.doc != NULL && node != NULL);
	xmlDocSetRootElement(b.doc, node);
	return b;
}

/*
 * libvirt gives QEMU -no-shutdown and ends it itself once the guest is off. Without a libvirt that
 * listens (the embedded driver's process is gone) a guest that its dead-man switched off would stay
 * in memory for ever, so QEMU is told to end by itself. The later argument wins.
 */
static void add_qemu_arguments(struct builder *b, xmlNodePtr root)
{
	static const char *const args[] = {"-action", "shutdown=poweroff"};
	xmlNsPtr ns = xmlNewNs(root, (const xmlChar *)"http://libvirt.org/schemas/domain/qemu/1.0",
		(const xmlChar *)"qemu");
	xmlNodePtr line = add(b, root, "commandline", NULL);

	ASSERT(ns != NULL);
	xmlSetNs(line, ns);
	for (size_t i = 0; i < ARRAY_SIZE(args); i++) {
		xmlNodePtr arg = add_with(b, line, "arg", "value", args[i], NULL);

		xmlSetNs(arg, ns);
	}
}

/* The root element as text; frees the tree. */
static char *finish(struct builder *b, struct err *err)
{
	_cleanup_(xmlFreeDoc_p) xmlDocPtr doc = b->doc;

	if (b->bad) {
		err_set(err, ERR_INTERNAL, "a setting holds a character that domain XML can't");
		return NULL;
	}
	xmlBufferPtr buffer = xmlBufferCreate();

	ASSERT(buffer && xmlNodeDump(buffer, doc, xmlDocGetRootElement(doc), 0, 1) > 0);
	char *text = xstrdup((const char *)xmlBufferContent(buffer));

	xmlBufferFree(buffer);
	return text;
}

char *domain_xml_build(const struct hv_spec *spec, const struct domain_xml_host *host,
	const char *uuid, struct err *err)
{
	struct builder b = begin("domain");
	xmlNodePtr root = xmlDocGetRootElement(b.doc);
	char name[DOMAIN_NAME_BYTES];

	domain_name(name, host->instance, spec->id);
	set(&b, root, "type", host->is_kvm ? "kvm" : "qemu");
	add(&b, root, "name", name);
	add(&b, root, "uuid", uuid);
	add_metadata(&b, root, spec, host->instance);
	add_machine(&b, root, spec, host);
	add_devices(&b, root, spec, host);
	add_label(&b, root, spec);
	add_qemu_arguments(&b, root);
	return finish(&b, err);
}

char *domain_xml_metadata(const struct domain_metadata *metadata, struct err *err)
{
	struct builder b = begin(DOMAIN_METADATA_NAME);

	set_metadata(&b, xmlDocGetRootElement(b.doc), metadata);
	return finish(&b, err);
}

char *domain_xml_interface(bool is_link_up, struct err *err)
{
	struct builder b = begin("interface");

	add_interface(&b, xmlDocGetRootElement(b.doc), is_link_up);
	return finish(&b, err);
}
