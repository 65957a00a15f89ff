#include "hv/lv_error.h"

#include <libvirt/virterror.h>
#include <stddef.h>

static void ignore_error(void *arg, virErrorPtr error)
{
	(void)arg;
	(void)error;
}

void lv_error_silence(void)
{
	virSetErrorFunc(NULL, ignore_error);
}

static enum err_kind kind_of(int code)
{
	/* A few out of some hundred codes: the others are all the same to a caller. */
	switch (code) {
	case VIR_ERR_NO_DOMAIN:
		return ERR_NOT_FOUND;
	case VIR_ERR_OPERATION_INVALID:
	case VIR_ERR_DOM_EXIST:
		return ERR_CONFLICT;
	case VIR_ERR_OPERATION_TIMEOUT:
	case VIR_ERR_AGENT_UNRESPONSIVE:
		return ERR_TIMEOUT;
	case VIR_ERR_NO_CONNECT:
	case VIR_ERR_INVALID_CONN:
	case VIR_ERR_RPC:
	case VIR_ERR_AUTH_UNAVAILABLE:
		return ERR_UNAVAILABLE;
	default:
		return ERR_INTERNAL;
	}
}

/* What a client may read of it: libvirt's own words name paths and commands. */
static const char *public_text(enum err_kind kind)
{
	if (kind == ERR_NOT_FOUND) {
		return "the virtual machine doesn't exist";
	}
	if (kind == ERR_CONFLICT) {
		return "the virtual machine isn't in a state for this";
	}
	if (kind == ERR_TIMEOUT) {
		return "the hypervisor didn't answer in time";
	}
	return "the hypervisor can't be reached";
}

int lv_error_set(struct err *err, const char *what)
{
	const virError *error = virGetLastError();

	if (!error) {
		return err_set(err, ERR_INTERNAL, "%s: libvirt gave no reason", what);
	}
	enum err_kind kind = kind_of(error->code);

	if (kind == ERR_INTERNAL) {
		return err_set_at(err, kind, error->code, __FILE__, __LINE__, "%s: %s", what,
			error->message ? error->message : "no text");
	}
	return err_set_at(
		err, kind, error->code, __FILE__, __LINE__, "%s: %s", what, public_text(kind));
}
