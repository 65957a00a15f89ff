#pragma once

/*
 * fake_guest_priv - what fake_guest.c (machines, calls) and fake_guest_channel.c (channels, the
 * driver's table, what tests call) share
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

struct fake_machine {
	TAILQ_ENTRY(fake_machine) link; /* fake_guest.machines */
	char *socket;
	struct fake_settings settings;
	TAILQ_HEAD(, fake_file) files;
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
	struct guest_hello hello;
	struct event *timer; /* until the hello */
	TAILQ_HEAD(, guest_call) calls;
};

struct guest_call {
	TAILQ_ENTRY(guest_call) link; /* channel.calls */
	struct channel *channel;
	enum fake_guest_op op;
	struct fake_script script;
	struct event *timer;
	bool is_cancelled;

	guest_done_fn done; /* CONFIGURE, PUT, SHUTDOWN */
	void *arg;
	struct guest_exec_hooks exec_hooks;
	struct guest_list_hooks list_hooks;
	struct guest_get_hooks get_hooks;

	char *command; /* EXEC */
	char **env;
	uint64_t timeout_ms;
	uint64_t output_cap;
	struct guest_exec_result result;
	bool is_sleeping;

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
	TAILQ_HEAD(, fake_machine) machines;
	TAILQ_HEAD(, channel) channels;
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
/* Answers and frees it. */
void fake_call_fail(struct guest_call *call, enum err_kind kind, uint32_t status, const char *why);
