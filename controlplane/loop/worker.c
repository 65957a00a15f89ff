#include "loop/worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/xalloc.h"

/*
 * Theory of operation
 *
 * The mailbox (mutex, lists, counters, eventfd) is all that loop and threads share. A job is in one
 * list: it waits (todo), runs, or has come back (finished). Its state is guarded by the mutex,
 * since the thread that takes it and the loop's timers all look.
 *
 * Deadline timers fire on the loop. Under the mutex the timer finds the job either waiting (it is
 * taken out and done with ERR_TIMEOUT), running (it becomes ABANDONED) or finished already (nothing
 * to do, its result is about to be delivered).
 *
 * Threads: a job that hangs costs the pool a thread. It counts as `stuck` once it is abandoned, or
 * earlier, when the pool stalls. Each stuck job allows one thread more, a spare, while there are
 * fewer than `spares`; when it comes back a thread ends if there are now too many.
 *
 * Stalls: while jobs wait the watch looks every stall_ms whether a job has been taken since it last
 * looked. If none has, every thread has been in the same call all the time, and the one that has
 * been there longest counts as stuck. One spare each time: if the calls are slow and don't hang, it
 * soon isn't needed any more, and more of them at the same time would only make them slower.
 */

enum job_state {
	JOB_WAITING = 1,
	JOB_RUNNING,
	JOB_FINISHED,
	JOB_ABANDONED,
	JOB_RETURNED,
	JOB_DONE
};

TAILQ_HEAD(job_list, worker_job);

struct worker_pool {
	struct loop *loop;
	struct worker_limits limits;
	char name[16];
	struct event *mail_event;
	struct event *watch; /* NULL: stalls are not looked for */
	uint64_t seen_takes; /* when the watch looked last */
	int mail_fd;

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t work;
	pthread_cond_t ended;
	struct job_list todo;
	struct job_list running; /* in the order in which they were taken */
	struct job_list finished;
	unsigned waiting;
	unsigned taken;
	unsigned hanging; /* abandoned */
	unsigned stuck;   /* abandoned, or found by the watch */
	unsigned threads;
	uint64_t takes; /* so far */
	bool stop;
};

static void *worker_main(void *arg);

static int start_thread(struct worker_pool *pool)
{
	pthread_t thread;
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 1024 * 1024);
	int rc = pthread_create(&thread, &attr, worker_main, pool);
	pthread_attr_destroy(&attr);
	if (rc == 0) {
		pool->threads++;
	}
	return rc;
}

static void ring(struct worker_pool *pool)
{
	/* Fails only when the counter is at its end, and then the loop has been told anyway. */
	(void)!eventfd_write(pool->mail_fd, 1);
}

static bool has_thread_too_many(const struct worker_pool *pool)
{
	return pool->threads > pool->limits.threads + pool->stuck;
}

static void *worker_main(void *arg)
{
	struct worker_pool *pool = arg;

	pthread_setname_np(pthread_self(), pool->name);
	pthread_mutex_lock(&pool->mutex);
	for (;;) {
		while (TAILQ_EMPTY(&pool->todo) && !pool->stop && !has_thread_too_many(pool)) {
			pthread_cond_wait(&pool->work, &pool->mutex);
		}
		if (pool->stop || has_thread_too_many(pool)) {
			break;
		}
		struct worker_job *job = TAILQ_FIRST(&pool->todo);

		TAILQ_REMOVE(&pool->todo, job, link);
		pool->waiting--;
		pool->taken++;
		pool->takes++;
		job->state = JOB_RUNNING;
		TAILQ_INSERT_TAIL(&pool->running, job, link);
		pthread_mutex_unlock(&pool->mutex);

		job->run(job);

		pthread_mutex_lock(&pool->mutex);
		TAILQ_REMOVE(&pool->running, job, link);
		pool->taken--;
		pool->stuck -= job->is_stuck;
		if (job->state == JOB_ABANDONED) {
			pool->hanging--;
			job->state = JOB_RETURNED;
		} else {
			job->state = JOB_FINISHED;
		}
		TAILQ_INSERT_TAIL(&pool->finished, job, link);
		ring(pool);
	}
	pool->threads--;
	pthread_cond_broadcast(&pool->ended);
	pthread_mutex_unlock(&pool->mutex);
	return NULL;
}

static void drop_timer(struct worker_job *job)
{
	if (job->timer) {
		event_free(job->timer);
		job->timer = NULL;
	}
}

/* Delivers a result; the job is gone afterwards. */
static void deliver(struct worker_job *job, const struct err *err)
{
	drop_timer(job);
	job->state = JOB_DONE;
	job->done(job, err);
}

static void collect(struct worker_pool *pool)
{
	for (;;) {
		pthread_mutex_lock(&pool->mutex);
		struct worker_job *job = TAILQ_FIRST(&pool->finished);

		if (job) {
			TAILQ_REMOVE(&pool->finished, job, link);
		}
		pthread_mutex_unlock(&pool->mutex);
		if (!job) {
			return;
		}
		if (job->is_abandoned) {
			job->late(job);
			continue;
		}
		struct err err = job->err;

		deliver(job, err.kind == ERR_NONE ? NULL : &err);
	}
}

static void on_mail(evutil_socket_t fd, short what, void *arg)
{
	eventfd_t count;

	(void)what;
	(void)!eventfd_read(fd, &count);
	collect(arg);
}

/* Under the mutex: @job runs, and another thread may stand in for its own. */
static void replace_thread(struct worker_pool *pool, struct worker_job *job)
{
	if (job->is_stuck) {
		return;
	}
	job->is_stuck = true;
	pool->stuck++;
	if (pool->threads < pool->limits.threads + pool->limits.spares) {
		/* Without it the pool is smaller; what waits has deadlines too. */
		(void)start_thread(pool);
	}
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct worker_job *job = arg;
	struct worker_pool *pool = job->pool;
	struct err err;

	(void)fd;
	(void)what;
	pthread_mutex_lock(&pool->mutex);
	int state = job->state;

	if (state == JOB_WAITING) {
		TAILQ_REMOVE(&pool->todo, job, link);
		pool->waiting--;
	} else if (state == JOB_RUNNING) {
		job->state = JOB_ABANDONED;
		job->is_abandoned = true;
		pool->hanging++;
		replace_thread(pool, job);
	}
	pthread_mutex_unlock(&pool->mutex);

	if (state == JOB_WAITING) {
		err_set(&err, ERR_TIMEOUT, "the %s is busy", pool->name);
		deliver(job, &err);
	} else if (state == JOB_RUNNING) {
		err_set(&err, ERR_TIMEOUT, "the %s didn't answer in time", pool->name);
		drop_timer(job);
		job->done(job, &err);
	}
}

/* ---- stalls ---- */

/* Under the mutex. */
static void watch_begin(struct worker_pool *pool)
{
	pool->seen_takes = pool->takes;
	loop_timer_set(pool->watch, pool->limits.stall_ms);
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
	struct worker_pool *pool = arg;
	struct worker_job *job;

	(void)fd;
	(void)what;
	pthread_mutex_lock(&pool->mutex);
	if (pool->waiting > 0 && pool->takes == pool->seen_takes) {
		TAILQ_FOREACH (job, &pool->running, link) {
			if (!job->is_stuck) {
				replace_thread(pool, job);
				break;
			}
		}
	}
	if (pool->waiting > 0) {
		watch_begin(pool);
	}
	pthread_mutex_unlock(&pool->mutex);
}

struct worker_pool *worker_pool_new(
	struct loop *loop, const char *name, const struct worker_limits *limits, struct err *err)
{
	struct worker_pool *pool = xnew(struct worker_pool);

	loop_assert();
	ASSERT(limits->threads > 0);
	pool->loop = loop;
	pool->limits = *limits;
	snprintf(pool->name, sizeof pool->name, "%s", name);
	TAILQ_INIT(&pool->todo);
	TAILQ_INIT(&pool->running);
	TAILQ_INIT(&pool->finished);
	pthread_mutex_init(&pool->mutex, NULL);
	pthread_cond_init(&pool->work, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&pool->ended, &attr);
	pthread_condattr_destroy(&attr);
	pool->mail_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ASSERT(pool->mail_fd >= 0);
	pool->mail_event = event_new(
		loop_base(loop), pool->mail_fd, EV_READ | EV_PERSIST, on_mail, pool);
	ASSERT(pool->mail_event != NULL && event_add(pool->mail_event, NULL) == 0);

	if (limits->stall_ms > 0) {
		pool->watch = loop_timer_new(loop, on_watch, pool);
	}

	pthread_mutex_lock(&pool->mutex);
	int rc = 0;
	for (unsigned i = 0; i < limits->threads && rc == 0; i++) {
		rc = start_thread(pool);
	}
	pthread_mutex_unlock(&pool->mutex);
	if (rc != 0) {
		worker_pool_free(pool, 1000);
		err_sys(err, rc, "start a worker thread");
		return NULL;
	}
	return pool;
}

int worker_submit(struct worker_pool *pool, struct worker_job *job, struct err *err)
{
	loop_assert();
	ASSERT(job->run && job->done && (job->late || job->deadline_ms == 0));
	pthread_mutex_lock(&pool->mutex);
	if (pool->stop || pool->waiting >= pool->limits.queue_max) {
		pthread_mutex_unlock(&pool->mutex);
		return err_set(err, ERR_UNAVAILABLE,
			"too many operations are waiting for the %s; try again soon", pool->name);
	}
	job->pool = pool;
	job->state = JOB_WAITING;
	job->is_abandoned = false;
	job->is_stuck = false;
	job->err = ERR_INIT;
	job->timer = NULL;
	if (job->deadline_ms > 0) {
		job->timer = loop_timer_new(pool->loop, on_deadline, job);
		loop_timer_set(job->timer, job->deadline_ms);
	}
	TAILQ_INSERT_TAIL(&pool->todo, job, link);
	pool->waiting++;
	if (pool->watch && pool->taken + pool->waiting > pool->threads &&
		!evtimer_pending(pool->watch, NULL)) {
		watch_begin(pool);
	}
	pthread_cond_signal(&pool->work);
	pthread_mutex_unlock(&pool->mutex);
	return 0;
}

void worker_pool_stats(const struct worker_pool *pool, struct worker_stats *ret)
{
	pthread_mutex_t *mutex = (pthread_mutex_t *)&pool->mutex;

	pthread_mutex_lock(mutex);
	*ret = (struct worker_stats){.threads = pool->threads,
		.waiting = pool->waiting,
		.running = pool->taken,
		.hanging = pool->hanging};
	pthread_mutex_unlock(mutex);
}

static bool wait_for_threads(struct worker_pool *pool, uint64_t grace_ms)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(grace_ms / 1000);
	until.tv_nsec += (long)(grace_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	while (pool->threads > 0 && rc == 0) {
		rc = pthread_cond_timedwait(&pool->ended, &pool->mutex, &until);
	}
	return pool->threads == 0;
}

bool worker_pool_free(struct worker_pool *pool, uint64_t grace_ms)
{
	if (!pool) {
		return true;
	}
	loop_assert();
	pthread_mutex_lock(&pool->mutex);
	pool->stop = true;
	struct worker_job *job;
	while ((job = TAILQ_FIRST(&pool->todo))) {
		TAILQ_REMOVE(&pool->todo, job, link);
		pool->waiting--;
		err_set(&job->err, ERR_CANCELLED, "the service is shutting down");
		job->state = JOB_FINISHED;
		TAILQ_INSERT_TAIL(&pool->finished, job, link);
	}
	pthread_cond_broadcast(&pool->work);
	bool all_ended = wait_for_threads(pool, grace_ms);
	pthread_mutex_unlock(&pool->mutex);

	collect(pool);
	event_free(pool->mail_event);
	if (pool->watch) {
		event_free(pool->watch);
	}
	if (!all_ended) {
		return false;
	}
	close(pool->mail_fd);
	pthread_mutex_destroy(&pool->mutex);
	pthread_cond_destroy(&pool->work);
	pthread_cond_destroy(&pool->ended);
	free(pool);
	return true;
}
