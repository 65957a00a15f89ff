#pragma once

/*
 * files_limit - how many descriptors the process may have
 *
 * Purpose: a shell or another supervisor than systemd starts us with a soft limit of 1024, which
 *          exists for select(). Connections and sandboxes (several descriptors each) need more.
 * Thread:  any, before there are others.
 */

#include <sys/resource.h>

/* systemd/paddockd.service has the same. */
#define FILES_LIMIT 65536

/* Raises the soft limit to FILES_LIMIT, or to the hard one. What it is now; 0: it can't be told. */
rlim_t files_limit_raise(void);
