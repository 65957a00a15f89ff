/*
 * Theory of operation
 *
 * A job's pipes are read into its ring as far as ring_room() allows: all that comes while nobody
 * follows, else up to what the foremost follower leaves room for. Then is_ready stays set, and
 * job_reader_moved() has the next turn read on.
 *
 * When the command is over the ring is raised by what its pipes still hold, so that a follower who
 * doesn't move can't keep the job from ending. What an ended job holds is cut down to what it
 * needs, and those that ended longest ago to their last bytes when all of them hold too much.
 */

#include "src/job.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "src/exec-request.h"
#include "src/stream.h"

#define READS_PER_TURN 4

static struct job jobs[JOBS_MAX];
static unsigned running_count;
static unsigned ended_count;
static uint64_t last_number;

/* ---- table ---------------------------------------------------------------------------------- */

struct job *job_find(const char *id)
{
	for (size_t i = 0; i < JOBS_MAX; i++) {
		if (jobs[i].is_used && strcmp(jobs[i].command.id, id) == 0) {
			return &jobs[i];
		}
	}
	return NULL;
}

struct job_ref job_ref(const struct job *job)
{
	return (struct job_ref){.slot = (unsigned)(job - jobs), .generation = job->generation};
}

struct job *job_get(struct job_ref ref)
{
	struct job *job = ref.slot < JOBS_MAX ? &jobs[ref.slot] : NULL;

	return job != NULL && job->is_used && job->generation == ref.generation ? job : NULL;
}

const struct job *job_next(const struct job *job)
{
	const struct job *next = NULL;

	for (size_t i = 0; i < JOBS_MAX; i++) {
		const struct job *other = &jobs[i];

		if (other->is_used && other->number > (job != NULL ? job->number : 0) &&
			(next == NULL || other->number < next->number)) {
			next = other;
		}
	}
	return next;
}

void job_forget(struct job *job)
{
	command_release(&job->command);
	ring_fini(&job->ring);
	job->readers = NULL;
	job->is_used = false;
	ended_count--;
	loop_kick();
}

/* ---- readers -------------------------------------------------------------------------------- */

void job_add_reader(struct job *job, struct job_reader *reader)
{
	reader->next = job->readers;
	job->readers = reader;
}

void job_remove_reader(struct job *job, struct job_reader *reader)
{
	for (struct job_reader **at = &job->readers; *at != NULL; at = &(*at)->next) {
		if (*at == reader) {
			*at = reader->next;
			break;
		}
	}
	job_reader_moved(job);
}

void job_reader_moved(const struct job *job)
{
	if (!job->has_ended && (job->out.is_ready || job->err.is_ready)) {
		loop_kick();
	}
}

/* From where on the ring drops nothing. */
static uint64_t kept_from(const struct job *job)
{
	uint64_t foremost = 0;
	bool is_followed = false;

	for (const struct job_reader *r = job->readers; r != NULL; r = r->next) {
		if (r->is_followed) {
			foremost = MAX(foremost, r->offset);
			is_followed = true;
		}
	}
	return is_followed ? foremost : UINT64_MAX;
}

/* ---- start ---------------------------------------------------------------------------------- */

static struct job *free_job(void)
{
	size_t i = 0;

	while (jobs[i].is_used) {
		i++;
	}
	return &jobs[i];
}

static void watch(struct job *job)
{
	struct job_ref ref = job_ref(job);

	loop_watch(job->out.fd, EPOLLIN, (struct loop_ref){LOOP_JOB_OUT, ref.slot, ref.generation});
	if (job->err.fd >= 0) {
		loop_watch(job->err.fd, EPOLLIN,
			(struct loop_ref){LOOP_JOB_ERR, ref.slot, ref.generation});
	}
}

struct job *job_start(struct stream *s, struct exec_request *q)
{
	struct command_pipes pipes;

	if (running_count == PROTO_JOBS_RUNNING_MAX) {
		stream_fail(s, STATUS_LIMIT, 0,
			"%u background commands run: wait for one or kill one", running_count);
		return NULL;
	}
	/* Running and ended ones are never more than there are places. */
	struct job *job = free_job();
	uint32_t generation = job->generation + 1;

	*job = (struct job){.generation = generation};
	if (!command_start(&job->command, s, q, &pipes)) {
		return NULL;
	}
	job->is_used = true;
	job->number = ++last_number;
	job->has_tty = (q->flags & MSG_EXEC_TTY) != 0;
	job->in_fd = pipes.in;
	job->out = (struct output){.fd = pipes.out, .is_tty = job->has_tty};
	job->err = (struct output){.fd = pipes.err};
	ring_init(&job->ring, PROTO_RING_BYTES, PROTO_RING_RUNS);
	running_count++;
	watch(job);
	return job;
}

/* ---- end ------------------------------------------------------------------------------------ */

static bool is_large(const struct ring *ring)
{
	return ring->end - ring->first > PROTO_JOB_TAIL_BYTES ||
	       ring->runs_count > PROTO_JOB_TAIL_RUNS;
}

/* The one that ended first, of those that nobody reads and that match. NULL: none. */
static struct job *first_ended(bool is_large_only)
{
	struct job *found = NULL;

	for (size_t i = 0; i < JOBS_MAX; i++) {
		struct job *job = &jobs[i];

		if (job->is_used && job->has_ended && job->readers == NULL &&
			(!is_large_only || is_large(&job->ring)) &&
			(found == NULL || job->command.ended_us < found->command.ended_us)) {
			found = job;
		}
	}
	return found;
}

static size_t held_by_ended(void)
{
	size_t sum = 0;

	for (size_t i = 0; i < JOBS_MAX; i++) {
		sum += jobs[i].is_used && jobs[i].has_ended ? ring_held(&jobs[i].ring) : 0;
	}
	return sum;
}

static void make_room(void)
{
	/* There are fewer readers than ended jobs. */
	if (ended_count > PROTO_JOBS_ENDED_MAX) {
		struct job *oldest = first_ended(false);

		if (oldest != NULL) {
			job_forget(oldest);
		}
	}
	for (struct job *job;
		held_by_ended() > PROTO_JOBS_ENDED_BYTES && (job = first_ended(true)) != NULL;) {
		ring_shrink(&job->ring, PROTO_JOB_TAIL_BYTES, PROTO_JOB_TAIL_RUNS);
	}
}

static void end_job(struct job *job)
{
	output_let_go(&job->out);
	output_let_go(&job->err);
	util_close(&job->in_fd);
	tree_release(job->command.tree);
	job->command.tree = NULL;
	job->has_ended = true;
	running_count--;
	ended_count++;
	ring_shrink(&job->ring, (size_t)(job->ring.end - job->ring.first), job->ring.runs_count);
	make_room();
}

static void note_left(struct job *job)
{
	output_note_left(&job->out);
	output_note_left(&job->err);
	ring_raise(&job->ring, job->out.left + job->err.left);
}

bool job_child_exited(pid_t pid, int wait_status)
{
	for (size_t i = 0; i < JOBS_MAX; i++) {
		struct job *job = &jobs[i];

		if (job->is_used && !job->command.has_exited && job->command.pid == pid) {
			command_exited(&job->command, wait_status);
			note_left(job);
			return true;
		}
	}
	return false;
}

/* ---- output --------------------------------------------------------------------------------- */

static void pump_output(struct job *job, struct output *o, unsigned stream)
{
	bool is_bounded = command_is_over(&job->command);

	for (int i = 0; o->fd >= 0 && o->is_ready; i++) {
		size_t limit = is_bounded ? o->left : ring_room(&job->ring, stream, kept_from(job));
		const uint8_t *data;

		if (limit == 0) {
			return;
		}
		if (i == READS_PER_TURN) {
			loop_kick();
			return;
		}
		ssize_t n = output_read(o, limit, &data);

		if (n > 0) {
			ring_append(&job->ring, stream, data, (size_t)n);
			o->bytes += (uint64_t)n;
			o->left -= is_bounded ? (size_t)n : 0;
		} else if (n < 0 || (o->is_tty && !is_bounded)) {
			/* No program has the terminal open: one may open it again. */
			o->is_ready = false;
			o->left = 0;
		} else {
			util_close(&o->fd);
		}
	}
}

void job_on_event(struct loop_ref ref)
{
	struct job *job = job_get((struct job_ref){ref.slot, ref.generation});

	if (job != NULL) {
		(ref.kind == LOOP_JOB_OUT ? &job->out : &job->err)->is_ready = true;
	}
}

static void run(struct job *job, uint64_t now)
{
	struct command *c = &job->command;

	if (c->deadline_ms != 0 && c->deadline_ms <= now && command_timer(c)) {
		note_left(job);
	}
	pump_output(job, &job->out, 0);
	pump_output(job, &job->err, 1);
	if (command_is_over(c) && output_is_drained(&job->out) && output_is_drained(&job->err)) {
		end_job(job);
	} else {
		loop_note_deadline(c->deadline_ms);
	}
}

void job_run_all(void)
{
	if (running_count == 0) {
		return;
	}
	uint64_t now = now_ms();

	for (size_t i = 0; i < JOBS_MAX; i++) {
		if (jobs[i].is_used && !jobs[i].has_ended) {
			run(&jobs[i], now);
		}
	}
}
