-- Times are milliseconds since the epoch. A migration is never edited once it has been released.

-- "Padk": tells our files from other people's.
PRAGMA application_id = 0x5061646b;

CREATE TABLE meta (
	key   TEXT NOT NULL PRIMARY KEY,
	value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE account (
	id         TEXT NOT NULL PRIMARY KEY,
	name       TEXT NOT NULL UNIQUE,
	created_at INTEGER NOT NULL,
	disabled   INTEGER NOT NULL DEFAULT 0 CHECK (disabled IN (0, 1))
) STRICT, WITHOUT ROWID;

-- hash: SHA-256 of the key's text, which has 200 random bits; see auth/token.h.
CREATE TABLE api_key (
	id           TEXT NOT NULL PRIMARY KEY,
	account_id   TEXT NOT NULL REFERENCES account (id),
	name         TEXT NOT NULL,
	hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
	hint         TEXT NOT NULL,
	created_at   INTEGER NOT NULL,
	revoked_at   INTEGER,
	last_used_at INTEGER
) STRICT;

CREATE INDEX api_key_account ON api_key (account_id, created_at, id);

CREATE TABLE sandbox (
	id              TEXT NOT NULL PRIMARY KEY,
	account_id      TEXT NOT NULL REFERENCES account (id),
	name            TEXT,
	state           TEXT NOT NULL,
	reason          TEXT,
	size            TEXT,
	vcpus           INTEGER NOT NULL CHECK (vcpus > 0),
	memory_mb       INTEGER NOT NULL CHECK (memory_mb > 0),
	disk_gb         INTEGER NOT NULL CHECK (disk_gb > 0),
	image           TEXT NOT NULL,
	image_version   TEXT NOT NULL,
	network         TEXT NOT NULL,
	temporary       INTEGER NOT NULL CHECK (temporary IN (0, 1)),
	env             BLOB,
	metadata        TEXT,
	created_at      INTEGER NOT NULL,
	ready_at        INTEGER,
	expires_at      INTEGER,
	ended_at        INTEGER,
	idempotency_key TEXT,
	request_hash    TEXT,
	uid             INTEGER,
	pid             INTEGER,
	pid_start       INTEGER,
	CHECK ((idempotency_key IS NULL) = (request_hash IS NULL)),
	CHECK ((pid IS NULL) = (pid_start IS NULL))
) STRICT;

CREATE UNIQUE INDEX sandbox_live_name ON sandbox (account_id, name)
	WHERE ended_at IS NULL AND name IS NOT NULL;
CREATE UNIQUE INDEX sandbox_idempotency ON sandbox (account_id, idempotency_key)
	WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX sandbox_uid ON sandbox (uid)
	WHERE uid IS NOT NULL;

-- The four ways to page through a list: with and without account, all and live ones.
CREATE INDEX sandbox_all ON sandbox (created_at, id);
CREATE INDEX sandbox_of_account ON sandbox (account_id, created_at, id);
CREATE INDEX sandbox_live ON sandbox (created_at, id)
	WHERE ended_at IS NULL;
CREATE INDEX sandbox_live_of_account ON sandbox (account_id, created_at, id)
	WHERE ended_at IS NULL;

CREATE INDEX sandbox_ended ON sandbox (ended_at)
	WHERE ended_at IS NOT NULL;
