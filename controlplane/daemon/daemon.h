#pragma once

/*
 * daemon - the wiring
 *
 * Purpose: builds every part bottom-up from the configuration, and takes them down in reverse. Only
 * here is it known which hypervisor and which guest driver are in use. Owns:    all parts. Thread:
 * start-up and loop. Errors:  of daemon_start(): for the operator; what was built by then is for
 * daemon_stop() to take down. Uses:    everything.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct config;
struct daemon;
struct hv;
struct loop;

/* The hypervisor that the settings name, not yet open. */
struct hv *daemon_make_hypervisor(
	struct loop *loop, const struct config *config, const char *instance, struct err *err);

/* Borrows @config. Takes the state directory's lock, listens, and begins to connect; returns before
 * it is ready. */
struct daemon *daemon_new(const struct config *config);
int daemon_start(struct daemon *daemon, struct err *err);
/* Until SIGTERM or SIGINT; a second one ends it at once. */
void daemon_run(struct daemon *daemon);
/* Sandboxes live on. False when a thread hangs in a call that can't be interrupted: exit without
 * more ado. */
bool daemon_free(struct daemon *daemon);

/*
 * Gives back what this instance holds on the host beyond its state directory: the filter's table
 * and the range of user ids. ERR_CONFLICT while a daemon or a sandbox runs. Prints what it gave
 * back.
 */
int daemon_release_host(const struct config *config, struct err *err);
