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
#include "agent/rpc.h"

struct agent_driver {
	struct guest_driver driver;
	struct loop *loop;
	struct guest_timing timing;
	unsigned guests; /* open */
};

struct agent {
	struct guest guest;
	struct agent_driver *driver;
	struct guest_hooks hooks;
	enum guest_state state;
	struct chan *chan;
	struct rpc rpc;
	struct console *console; /* NULL: none */
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
struct guest_call *agent_configure(struct guest *guest, const struct guest_config *config,
	guest_done_fn done, void *arg, struct err *err);
struct guest_call *agent_shutdown(
	struct guest *guest, guest_done_fn done, void *arg, struct err *err);

/* guest_exec.c */
struct guest_call *agent_exec(struct guest *guest, const struct guest_exec_spec *spec,
	const struct guest_exec_hooks *hooks, struct err *err);
void agent_exec_pause(struct guest_call *call, bool is_paused);

/* guest_file.c */
struct guest_call *agent_put(struct guest *guest, const struct guest_file_spec *spec,
	struct pipe *body, guest_done_fn done, void *arg, struct err *err);
struct guest_call *agent_get(struct guest *guest, const struct guest_file_spec *spec,
	struct pipe *body, const struct guest_get_hooks *hooks, struct err *err);
struct guest_call *agent_list(struct guest *guest, const struct guest_file_spec *spec,
	const struct guest_list_hooks *hooks, struct err *err);
