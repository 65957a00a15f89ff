-- The last results of each sandbox's commands, for as long as its record is kept.
-- error: why it has no exit code.
CREATE TABLE exec_result (
	sandbox_id   TEXT NOT NULL REFERENCES sandbox (id) ON DELETE CASCADE,
	seq          INTEGER NOT NULL,
	id           TEXT NOT NULL,
	ended_at     INTEGER NOT NULL,
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
	PRIMARY KEY (sandbox_id, seq),
	CHECK ((exit_code IS NULL) != (error IS NULL))
) STRICT, WITHOUT ROWID;

-- An account's records that are too many, oldest first.
CREATE INDEX sandbox_ended_of_account ON sandbox (account_id, ended_at, id)
	WHERE ended_at IS NOT NULL;
