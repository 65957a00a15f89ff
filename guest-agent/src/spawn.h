#pragma once

/*
 * spawn - starts a program
 *
 * Purpose: vfork and exec with everything a command needs set up in between.
 * Owns:    a shared page in which the child says how far it came.
 * Thread:  the agent has one; it sleeps until the child has called execve.
 * Uses:    options.h.
 */

#include "src/util.h"

struct spawn_plan {
	char **argv;      /* argv[-1] is spare: a script without #! is given to sh */
	const char *file; /* NULL: argv[0] */
	char **envp;
	const char *path; /* directories to look in for the file; NULL: it is used as it is */
	const char *cwd;
	int in_fd; /* become 0, 1 and 2 */
	int out_fd;
	int err_fd;
	int script_fd; /* becomes 3; -1: none */
	int cgroup_fd; /* -1: none */
	bool is_root;
	bool has_tty; /* the three are a terminal, which becomes the controlling one */
};

enum spawn_stage {
	SPAWN_STAGE_DONE, /* the program runs, or has said on stderr why not and ended 126 or 127 */
	SPAWN_STAGE_CLONE,
	SPAWN_STAGE_SETUP,
	SPAWN_STAGE_CWD,
	SPAWN_STAGE_EXEC, /* too long or out of memory */
};

struct spawn_result {
	pid_t pid; /* 0 unless DONE */
	enum spawn_stage stage;
	int sys;
};

/* Descriptor that a command's script_fd becomes. */
#define SPAWN_SCRIPT_PATH "/dev/fd/3"

int spawn_init(void);
void spawn_run(const struct spawn_plan *plan, struct spawn_result *ret);
