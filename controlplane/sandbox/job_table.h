#pragma once

/*
 * job_table - what is to be done about a background command
 *
 * Purpose: the one table of decisions: what we know of a command × what the guest says of it. Pure.
 * Thread:  any.
 * Uses:    nothing.
 */

enum job_row {
	JOB_ROW_NONE,   /* no record: it was removed, or made by somebody else */
	JOB_ROW_ENDED,  /* also one whose start was answered with a failure */
	JOB_ROW_UNSURE, /* it runs, says the record; the guest hasn't been asked yet */
	JOB_ROW_OURS,   /* a call about it is under way, and tells more than the list */
	JOB_ROW_MAX
};

enum job_word {
	JOB_WORD_UNKNOWN, /* not in the guest's list */
	JOB_WORD_RUNNING,
	JOB_WORD_ENDED,
	JOB_WORD_MAX
};

enum job_action {
	JOB_NOTHING,
	JOB_WAIT,   /* for its end, which may have been */
	JOB_LOSE,   /* the record ends as lost */
	JOB_KILL,   /* nothing runs that a record says has ended, or that nobody can see */
	JOB_FORGET, /* the guest needn't keep it */
};

enum job_action job_decide(enum job_row row, enum job_word word);
