#include <string.h>

#include "base/xalloc.h"
#include "sandbox/job.h"

/*
 * Theory of operation
 *
 * The tail of a command's output is read for its record when it has ended (job.c), or when its
 * machine is about to: then the guest's list says how far each one's output is, and the last bytes
 * of each are read. That is a kindness, and a guest can't draw it out: after TAKE_MS the machine
 * goes all the same. What comes in then finds nobody who waits for it.
 */

#define TAKE_MS 500

/* One that is being read; apart from its command, which may end meanwhile. */
struct taking {
	struct sandbox *sb;
	char id[ID_BYTES];
	struct store_exec tails;
	uint64_t end; /* of the output when it was listed */
};

/* ---- runs ---- */

void job_tail_add(struct store_exec *tails, size_t cap, int fd, const void *data, size_t len)
{
	struct store_tail *tail = fd == 1 ? &tails->out : &tails->err_out;
	size_t take = MIN(len, cap - tails->out.len - tails->err_out.len);
	uint32_t run = (uint32_t)take << 1 | (fd != 1);

	if (take == 0) {
		return;
	}
	tail->bytes = xrealloc(tail->bytes, tail->len + take, 1);
	memcpy(tail->bytes + tail->len, data, take);
	tail->len += take;
	tails->runs = xrealloc(tails->runs, tails->runs_len + 4, 1);
	for (int i = 0; i < 4; i++) {
		tails->runs[tails->runs_len++] = (unsigned char)(run >> 8 * i);
	}
}

/* ---- of those that run ---- */

static void finish(struct sandbox *sb)
{
	jobs_taken_fn done = sb->tails_done;

	evtimer_del(sb->tails_timer);
	sb->tails_done = NULL;
	if (done && !sb->all->is_closing) {
		done(sb);
	}
}

static void one_is_over(struct sandbox *sb)
{
	if (--sb->tails_pending == 0) {
		finish(sb);
	}
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	finish(arg);
}

static void on_start(void *arg, uint64_t offset)
{
	struct taking *taking = arg;

	(void)offset;
	store_exec_fini(&taking->tails);
}

static void on_output(void *arg, int fd, const void *data, size_t len)
{
	struct taking *taking = arg;

	job_tail_add(&taking->tails, taking->sb->all->config.result_bytes, fd, data, len);
}

/* How much of the whole each of the two outputs was isn't told of one that runs. */
static void count(struct taking *taking)
{
	struct store_exec *tails = &taking->tails;

	tails->err_out.total = tails->err_out.len;
	tails->out.total = MAX(taking->end, tails->out.len + tails->err_out.len) -
			   tails->err_out.total;
}

static void on_read(void *arg, const struct guest_status *status, const struct err *err)
{
	struct taking *taking = arg;
	struct sandbox *sb = taking->sb;
	struct sandbox_job *job = job_find(sb, taking->id);

	(void)status;
	if (!err && job && job->phase == JOB_WAITING) {
		count(taking);
		store_exec_fini(&job->tails);
		job->tails = taking->tails;
		taking->tails = (struct store_exec){0};
	}
	store_exec_fini(&taking->tails);
	free(taking);
	one_is_over(sb);
}

static void on_listed(void *arg, const struct guest_job *listed)
{
	struct sandbox *sb = arg;
	struct sandbox_job *job = job_find(sb, listed->id);
	size_t cap = sb->all->config.result_bytes;
	const struct guest_read_spec spec = {.id = listed->id,
		.offset = listed->end_offset - MIN(listed->end_offset, cap),
		.max = cap};
	struct err err;

	if (!job || job->phase != JOB_WAITING || !sb->guest || sb->tails_pending > sb->job_count) {
		return;
	}
	struct taking *taking = xnew(struct taking);
	const struct guest_job_hooks hooks = {
		.on_start = on_start, .on_output = on_output, .on_done = on_read, .arg = taking};

	taking->sb = sb;
	taking->end = listed->end_offset;
	snprintf(taking->id, sizeof taking->id, "%s", listed->id);
	if (sb->guest->ops->job_read(sb->guest, &spec, &hooks, &err)) {
		sb->tails_pending++;
	} else {
		free(taking);
	}
}

static void on_list_done(void *arg, const struct guest_status *status, const struct err *err)
{
	(void)status;
	(void)err;
	one_is_over(arg);
}

void jobs_take_tails(struct sandbox *sb, jobs_taken_fn done)
{
	const struct guest_job_hooks hooks = {
		.on_job = on_listed, .on_done = on_list_done, .arg = sb};
	const struct sandboxes_config *config = &sb->all->config;
	struct err err;

	if (sb->job_count == 0 || config->results_count == 0 || config->result_bytes == 0 ||
		sb->tails_pending > 0 || !channel_is_ready(sb) ||
		!sb->guest->ops->job_list(sb->guest, &hooks, &err)) {
		done(sb);
		return;
	}
	sb->tails_pending = 1; /* the list */
	sb->tails_done = done;
	loop_timer_set(sb->tails_timer, TAKE_MS);
}

void job_tails_init(struct sandbox *sb)
{
	sb->tails_timer = loop_timer_new(sb->all->loop, on_timer, sb);
}

void job_tails_fini(struct sandbox *sb)
{
	ASSERT(sb->tails_pending == 0);
	event_free(sb->tails_timer);
}
