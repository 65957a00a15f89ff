#pragma once

/*
 * lv_error - libvirt's errors
 *
 * Purpose: the only place that turns a virError into a struct err.
 * Owns:    nothing.
 * Thread:  any; libvirt keeps the last error for each thread.
 * Errors:  ERR_NOT_FOUND: no such domain. ERR_CONFLICT: not in this state. ERR_TIMEOUT: libvirt
 *          gave up waiting. ERR_UNAVAILABLE: the connection is gone. ERR_INTERNAL: the rest.
 * Uses:    base, libvirt.
 */

#include "base/err.h"

/* Keeps libvirt from writing errors to stderr by itself. Once, before anything else of libvirt. */
void lv_error_silence(void);

/* Sets @err from this thread's last libvirt error, after the words @what. Returns -1. */
int lv_error_set(struct err *err, const char *what);
