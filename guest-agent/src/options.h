#pragma once

/*
 * options - how this agent was started
 *
 * Purpose: the facts that main() settles once and everything else only reads.
 * Uses:    libc.
 */

#include <stdbool.h>
#include <sys/types.h>

struct options {
	bool is_init;      /* PID 1: owns the machine */
	bool owns_machine; /* false under test: clock, host name, power and the like are left alone
			    */
	const char *port_path; /* NULL: found by name under /sys/class/virtio-ports */
	int port_fd;           /* inherited; -1: none */
	const char *user;      /* who commands and file calls run as */
	uid_t uid;
	gid_t gid;
	bool can_setuid; /* false: not root, everything runs as ourselves */
	const char *home;
	const char *workspace;  /* where relative paths and commands start */
	const char *cgroup_dir; /* parent of the commands' cgroups; NULL: none */
};

extern struct options options;
