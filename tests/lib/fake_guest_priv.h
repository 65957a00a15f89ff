#pragma once

/*
 * fake_guest_priv - what fake_guest.c (machines, calls, files), fake_guest_program.c (what
 * commands do), fake_guest_job.c (jobs) and fake_guest_channel.c (channels, the driver's table,
 * what tests call) share
 */

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/xalloc.h"
#include "tests/lib/fake_guest.h"

struct fake_file {
	TAILQ_ENTRY(fake_file) link; /* fake_machine.files */
	char *path;
	struct evbuffer *bytes;
	uint32_t mode;
	int64_t mtime_ms;
};

/* Output with the descriptor it was written to, byte by byte. */
struct fake_output {
	struct evbuffer *data;
	struct evbuffer *fds;
};

struct fake_task {
	TAILQ_ENTRY(fake_task) link; /* fake_machine.jobs, oldest first */
	struct fake_guest *fake;
	struct fake_machine *machine;
	struct guest_call *process; /* runs its program; belongs to no channel; NULL: ended */
	struct guest_job is;        /* as the guest tells of it */
	struct fake_job_view view;
	struct fake_output ring;
	struct fake_output pipe; /* written by the program, not yet in the ring */
	struct evbuffer *input;  /* not yet read by the program */
	bool has_stdin;          /* still open */
	bool has_exited;         /* is to end once its pipe is empty */
};

struct fake_machine {
	TAILQ_ENTRY(fake_machine) link; /* fake_guest.machines */
	char *socket;
	struct fake_settings settings;
	TAILQ_HEAD(, fake_file) files;
	TAILQ_HEAD(, fake_task) jobs;
};

struct channel {
	struct guest guest;
	TAILQ_ENTRY(channel) link; /* fake_guest.channels */
	struct fake_guest *fake;
	char *socket;
	struct guest_hooks hooks;
	enum guest_state state;
	bool has_hello;
	bool is_breaking;
	bool is_closed; /* meanwhile */
	struct guest_hello hello;
	struct event *timer; /* until the hello */
	TAILQ_HEAD(, guest_call) calls;
};

struct guest_call {
	TAILQ_ENTRY(guest_call) link; /* channel.calls, fake_guest.dead */
	struct fake_guest *fake;
	struct fake_machine *machine;
	struct channel *channel; /* NULL: the process of a job */
	struct fake_task *job;   /* whose process it is */
	enum fake_guest_op op;
	struct fake_script script;
	struct event *timer;
	bool is_cancelled;
	bool is_ended;

	guest_done_fn done; /* all that have no hooks */
	void *arg;
	struct guest_exec_hooks exec_hooks; /* EXEC, JOB_WAIT */
	struct guest_list_hooks list_hooks;
	struct guest_get_hooks get_hooks;
	struct guest_job_hooks job_hooks; /* JOB_READ, JOB_LIST */

	char *id;      /* EXEC, JOB_*, SIGNAL */
	char *command; /* EXEC, and the process of a job */
	char *shell;
	char **env;
	uint64_t timeout_ms;
	uint64_t output_cap;
	uint64_t tail_cap;
	struct guest_exec_result result;
	struct evbuffer *tails[2];
	struct fake_output held; /* while paused */
	bool is_sleeping;
	bool is_stubborn; /* ignores all signals but KILL */
	bool is_exiting;  /* once nothing is held */

	struct guest_read_spec read; /* JOB_READ */
	uint64_t position;
	bool has_begun;
	bool is_paused; /* EXEC, too */
	bool has_waited;
	struct guest_job_spec start; /* JOB_START: until its effect */
	bool has_effect;             /* the answer is in status and why */
	uint32_t status;
	char why[128];
	int signal;    /* SIGNAL */
	unsigned rows; /* JOB_RESIZE */
	unsigned cols;
	bool closes; /* JOB_INPUT */

	char *path; /* files */
	struct guest_file_spec spec;
	struct pipe *body; /* or an exec's stdin */
	struct evbuffer *bytes;
};

struct fake_guest {
	struct guest_driver driver;
	struct loop *loop;
	struct fake_hv *hv;
	int hello_ms;
	bool ignores_cancel;
	size_t ring_bytes;
	bool discards;
	uint64_t discarded_bytes;
	TAILQ_HEAD(, fake_machine) machines;
	TAILQ_HEAD(, channel) channels;
	TAILQ_HEAD(, guest_call) dead; /* freed in the next turn */
	struct fake_script scripts[FAKE_GUEST_OP_MAX];
	unsigned calls[FAKE_GUEST_OP_MAX];
	fake_program_fn program;
	void *program_arg;
};

static inline void set_timer(struct event *timer, unsigned ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	evtimer_add(timer, &tv);
}

/* ---- fake_guest.c ---- */

struct fake_machine *fake_machine_of(struct fake_guest *fake, const char *socket);
void fake_machine_free(struct fake_guest *fake, struct fake_machine *machine);
struct guest_call *fake_call_new(struct guest *guest, enum fake_guest_op op, struct err *err);
/* A job's; starts in the next turn. */
struct guest_call *fake_process_new(struct fake_task *job, const struct guest_job_spec *spec);
void fake_process_free(struct guest_call *process);
/* Answers; the call is freed in the next turn. @status: with ERR_GUEST. */
void fake_call_end(struct guest_call *call, uint32_t status, const struct err *err);
void fake_call_fail(struct guest_call *call, enum err_kind kind, uint32_t status, const char *why);
void fake_free_dead(void *fake);

/* ---- fake_guest_program.c: EXEC calls and the processes of jobs ---- */

/* Takes the parts of @spec that a program sees. */
void fake_process_take(struct guest_call *process, const struct guest_exec_spec *spec);
void fake_process_run(struct guest_call *process);
void fake_process_on_timer(struct guest_call *process);
/* There is input for a job's, or the end of it. */
void fake_process_on_input(struct guest_call *process);
void fake_process_on_winsize(struct guest_call *process);
void fake_process_signal(struct guest_call *process, int signal);
void fake_process_pause(struct guest_call *process, bool is_paused);

/* ---- fake_guest_job.c ---- */

void fake_task_free(struct fake_task *job);
/* Its program writes, and ends. */
void fake_task_output(struct fake_task *job, int fd, const void *data, size_t len);
void fake_task_exited(struct fake_task *job);
/* What the calls for jobs do when it's their turn. */
void fake_task_act(struct guest_call *call);
/* What a call does at once, whenever its answer comes. */
void fake_task_effect(struct guest_call *call);
void fake_task_read_on(struct guest_call *call);

struct guest_call *fake_signal(struct guest *guest, const char *id, int signal, guest_done_fn done,
	void *arg, struct err *err);
struct guest_call *fake_task_start(struct guest *guest, const struct guest_job_spec *spec,
	guest_done_fn done, void *arg, struct err *err);
struct guest_call *fake_task_wait(
	struct guest *guest, const char *id, const struct guest_exec_hooks *hooks, struct err *err);
struct guest_call *fake_task_read(struct guest *guest, const struct guest_read_spec *spec,
	const struct guest_job_hooks *hooks, struct err *err);
struct guest_call *fake_task_input(struct guest *guest, const char *id, struct pipe *input,
	bool closes, guest_done_fn done, void *arg, struct err *err);
struct guest_call *fake_task_resize(struct guest *guest, const char *id, unsigned rows,
	unsigned cols, guest_done_fn done, void *arg, struct err *err);
struct guest_call *fake_task_list(
	struct guest *guest, const struct guest_job_hooks *hooks, struct err *err);
struct guest_call *fake_task_forget(
	struct guest *guest, const char *id, guest_done_fn done, void *arg, struct err *err);
