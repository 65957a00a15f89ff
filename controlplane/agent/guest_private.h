#pragma once

/*
 * guest_private - a guest as the files of this folder see it
 *
 * Purpose: the object behind struct guest and the functions of its table, one file a noun.
 * Owns:    channel, calls, console.
 * Thread:  loop.
 * Errors:  as guest.h.
 * Uses:    rpc.
 */

#include "agent/guest.h"
#include "agent/guest_agent.h"
#include "agent/guest_clock.h"
#include "agent/request.h"
#include "agent/rpc.h"
#include "loop/wall.h"

struct agent_driver {
	struct guest_driver driver;
	struct loop *loop;
	struct guest_timing timing;
	struct wall_watch *wall;
	TAILQ_HEAD(, agent) guests; /* open */
};

struct agent {
	struct guest guest; /* first */
	TAILQ_ENTRY(agent) link;
	struct agent_driver *driver;
	struct guest_hooks hooks;
	enum guest_state state;
	struct chan *chan;
	struct rpc rpc;
	struct console *console; /* NULL: none */
	struct guest_clock clock;
	bool has_hello;
	bool is_closed;
	struct guest_hello hello;
};

static inline struct agent *agent_of(struct guest *guest)
{
	return container_of(guest, struct agent, guest);
}

static inline const struct agent *agent_of_const(const struct guest *guest)
{
	return (const struct agent *)guest;
}

/* guest_sys.c */
/* A call that is its request and an END. @is_reserved: it may use the streams kept back for those
 * that manage the guest. */
struct guest_call *agent_short_call(struct guest *guest, uint16_t type, struct request *body,
	bool is_reserved, guest_done_fn done, void *arg, struct err *err);
struct guest_call *agent_configure(struct guest *guest, const struct guest_config *config,
	guest_done_fn done, void *arg, struct err *err);
struct guest_call *agent_shutdown(
	struct guest *guest, guest_done_fn done, void *arg, struct err *err);

/* guest_exec.c */
struct guest_call *agent_exec(struct guest *guest, const struct guest_exec_spec *spec,
	const struct guest_exec_hooks *hooks, struct err *err);
void agent_exec_pause(struct guest_call *call, bool is_paused);
/* The fields that EXEC and JOB_START share. */
void agent_put_command(struct request *body, const struct guest_exec_spec *spec, uint32_t flags);
/* 0, or a violation where no command can have ended like that. */
int agent_check_exit(const struct call_end *end, struct err *err);
struct guest_exec_result agent_exit_result(const struct call_end *end);
/* -1 where the agent doesn't have all of @features. */
int agent_needs(const struct agent *agent, uint64_t features, struct err *err);

/* guest_file.c */
struct guest_call *agent_put(struct guest *guest, const struct guest_file_spec *spec,
	struct pipe *body, guest_done_fn done, void *arg, struct err *err);
struct guest_call *agent_get(struct guest *guest, const struct guest_file_spec *spec,
	struct pipe *body, const struct guest_get_hooks *hooks, struct err *err);
struct guest_call *agent_list(struct guest *guest, const struct guest_file_spec *spec,
	const struct guest_list_hooks *hooks, struct err *err);

/* guest_job.c */
struct guest_call *agent_signal(struct guest *guest, const char *id, int signal, guest_done_fn done,
	void *arg, struct err *err);
struct guest_call *agent_job_start(struct guest *guest, const struct guest_job_spec *spec,
	guest_done_fn done, void *arg, struct err *err);
struct guest_call *agent_job_wait(
	struct guest *guest, const char *id, const struct guest_exec_hooks *hooks, struct err *err);
struct guest_call *agent_job_input(struct guest *guest, const char *id, struct pipe *input,
	bool closes, guest_done_fn done, void *arg, struct err *err);
struct guest_call *agent_job_resize(struct guest *guest, const char *id, unsigned rows,
	unsigned cols, guest_done_fn done, void *arg, struct err *err);
struct guest_call *agent_job_forget(
	struct guest *guest, const char *id, guest_done_fn done, void *arg, struct err *err);
/* The field ID; also whether the agent has jobs. */
int agent_put_id(const struct agent *agent, struct request *body, const char *id, struct err *err);

/* guest_job_read.c */
struct guest_call *agent_job_read(struct guest *guest, const struct guest_read_spec *spec,
	const struct guest_job_hooks *hooks, struct err *err);
struct guest_call *agent_job_list(
	struct guest *guest, const struct guest_job_hooks *hooks, struct err *err);
bool agent_is_job_read(const struct guest_call *call);
void agent_job_read_pause(struct guest_call *call, bool is_paused);
