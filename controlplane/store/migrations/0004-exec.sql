-- The last results become records of commands, which are there while a command runs as well.
-- seq: the order in which they began; end_seq: that in which they ended, whatever the clock said.
-- error: why it has no exit code. Of a background command, tail_runs tells how the two tails follow
-- each other: little-endian words of 32 bits, a number of bytes doubled, and one more for those of
-- stderr.
CREATE TABLE exec (
	sandbox_id   TEXT NOT NULL REFERENCES sandbox (id) ON DELETE CASCADE,
	seq          INTEGER NOT NULL,
	end_seq      INTEGER,
	id           TEXT NOT NULL,
	state        TEXT NOT NULL CHECK (state IN ('running', 'exited', 'lost', 'failed')),
	background   INTEGER NOT NULL CHECK (background IN (0, 1)),
	tty          INTEGER NOT NULL CHECK (tty IN (0, 1)),
	command      TEXT,
	started_at   INTEGER,
	ended_at     INTEGER,
	exit_code    INTEGER,
	signal       INTEGER,
	timed_out    INTEGER NOT NULL CHECK (timed_out IN (0, 1)),
	truncated    INTEGER NOT NULL CHECK (truncated IN (0, 1)),
	duration_ms  INTEGER,
	error        TEXT,
	stdout_bytes INTEGER NOT NULL,
	stdout_tail  BLOB,
	stderr_bytes INTEGER NOT NULL,
	stderr_tail  BLOB,
	tail_runs    BLOB,
	PRIMARY KEY (sandbox_id, seq),
	UNIQUE (sandbox_id, id),
	CHECK ((state = 'running') = (ended_at IS NULL)),
	CHECK ((state = 'running') = (end_seq IS NULL)),
	CHECK ((state = 'exited') = (exit_code IS NOT NULL)),
	CHECK ((state IN ('lost', 'failed')) = (error IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- What was not known then stays so: NULL, and of one without an exit code how it ended.
INSERT INTO exec (sandbox_id, seq, end_seq, id, state, background, tty, command, started_at, ended_at,
	exit_code, signal, timed_out, truncated, duration_ms, error,
	stdout_bytes, stdout_tail, stderr_bytes, stderr_tail)
	SELECT sandbox_id, seq, seq, id, CASE WHEN error IS NULL THEN 'exited' ELSE 'lost' END, 0, 0,
		NULL, ended_at - duration_ms, ended_at,
		exit_code, signal, timed_out, truncated, duration_ms, error,
		stdout_bytes, stdout_tail, stderr_bytes, stderr_tail
	FROM exec_result;
DROP TABLE exec_result;
