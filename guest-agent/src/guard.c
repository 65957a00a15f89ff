#include "src/guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "proto/limits.h"
#include "src/log.h"
#include "src/options.h"

#define LOOK_EVERY_S      5
#define STUCK_LOOKS       3 /* a spawn seen so often in a row is stuck */
#define DEADLINE_GRACE_MS 20000u

/* The first look only notes it. */
_Static_assert(LOOK_EVERY_S *(STUCK_LOOKS + 1) * 1000u <= PROTO_SILENCE_MAX_MS,
	"the host takes an agent that is silent for longer to be broken");

struct shared {
	volatile uint64_t deadline_ms;
	volatile uint32_t spawn_number; /* tells one spawn from the next */
	volatile pid_t spawn_pid;       /* 0: the agent isn't in one */
};

static struct shared unshared; /* where there is no guard */
static struct shared *shared = &unshared;

uint64_t guard_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

static void look_at_spawn(void)
{
	static uint32_t number;
	static unsigned looks;
	pid_t pid = shared->spawn_pid;

	if (pid == 0 || shared->spawn_number != number) {
		number = shared->spawn_number;
		looks = 0;
	} else if (++looks >= STUCK_LOOKS) {
		kill(pid, SIGKILL);
		looks = 0;
	}
}

_noreturn_ static void guard_main(void)
{
	const struct timespec pause_between = {.tv_sec = LOOK_EVERY_S};
	sigset_t none;

	syscall(SYS_close_range, 0u, ~0u, 0u);
	prctl(PR_SET_NAME, "paddock-guard");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	util_write_text("/proc/self/oom_score_adj", "-1000");
	for (;;) {
		uint64_t at = shared->deadline_ms;

		if (at != 0 && guard_now_ms() >= at + DEADLINE_GRACE_MS) {
			reboot(RB_POWER_OFF);
		}
		look_at_spawn();
		nanosleep(&pause_between, NULL);
	}
}

void guard_start(void)
{
	if (!options.owns_machine || !options.can_setuid) {
		return;
	}
	void *page = mmap(
		NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED) {
		log_warn("no guard");
		return;
	}
	shared = page;
	pid_t pid = fork();

	if (pid == 0) {
		guard_main();
	}
	if (pid < 0) {
		log_warn("no guard");
	}
}

void guard_set_deadline(uint64_t at_ms)
{
	shared->deadline_ms = at_ms;
}

pid_t *guard_spawn_begins(void)
{
	shared->spawn_number++;
	return (pid_t *)&shared->spawn_pid;
}

void guard_spawn_ends(void)
{
	shared->spawn_pid = 0;
}
