#include "agent_rig.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY "65534"

void rig_spawn_agent(struct rig *rig)
{
	const char *program = getenv("PADDOCK_AGENT");

	assert_non_null(program);
	peer_accept(&rig->f.peer);
	rig->agent = fork();
	assert_true(rig->agent >= 0);
	if (rig->agent == 0) {
		int log = open("/dev/null", O_WRONLY);

		dup2(rig->f.peer.fd, 3);
		if (!getenv("PADDOCK_AGENT_LOG")) {
			dup2(log, STDERR_FILENO);
		}
		execl(program, program, "--fd", "3", "--test", "--no-cgroup", "--user", "nobody",
			"--user-id", NOBODY, "--home", rig->workspace, "--workspace",
			rig->workspace, (char *)NULL);
		_exit(127);
	}
	peer_hang_up(&rig->f.peer);
}

void rig_end_agent(struct rig *rig)
{
	if (rig->agent > 0) {
		kill(rig->agent, SIGKILL);
		waitpid(rig->agent, NULL, 0);
		rig->agent = 0;
	}
}

void rig_init(struct rig *rig)
{
	*rig = (struct rig){0};
	strcpy(rig->workspace, "/tmp/paddock-workspace-XXXXXX");
	assert_non_null(mkdtemp(rig->workspace));
	assert_int_equal(chmod(rig->workspace, 0777), 0);
	fixture_init(&rig->f, NULL);
	peer_listen(&rig->f.peer);
	rig_spawn_agent(rig);
	fixture_wait_ready(&rig->f, 1);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void rig_fini(struct rig *rig)
{
	fixture_fini(&rig->f);
	rig_end_agent(rig);
	nftw(rig->workspace, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
