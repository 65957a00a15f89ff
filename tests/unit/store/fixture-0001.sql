-- A database as the first release made it (schema version 1). Never edited.
PRAGMA application_id = 0x5061646b;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE account (
	id         TEXT NOT NULL PRIMARY KEY,
	name       TEXT NOT NULL UNIQUE,
	created_at INTEGER NOT NULL,
	disabled   INTEGER NOT NULL DEFAULT 0 CHECK (disabled IN (0, 1))
) STRICT, WITHOUT ROWID;
INSERT INTO "account" VALUES('ac_00000000000000000001','acme',1767225600000,0);
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
INSERT INTO "api_key" VALUES('ky_00000000000000000001','ac_00000000000000000001','laptop',X'000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F','abcd',1767225600000,NULL,1767225660000);
CREATE TABLE meta (
	key   TEXT NOT NULL PRIMARY KEY,
	value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('instance','00112233445566aa');
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
INSERT INTO "sandbox" VALUES('sb_00000000000000000001','ac_00000000000000000001','web','running',NULL,'small',2,4096,40,'default','681a6057bbc1bccf','egress',0,X'413D3100423D3200','{"team":"x"}',1767225600000,1767225603000,NULL,NULL,'k1','5feceb66',300001,4711,99);
INSERT INTO "sandbox" VALUES('sb_00000000000000000002','ac_00000000000000000001','web','deleted','expired','tiny',1,256,2,'minimal','681a6057bbc1bccf','none',1,NULL,NULL,1767225500000,1767225503000,1767225600000,1767225600100,NULL,NULL,NULL,NULL,NULL);
CREATE INDEX api_key_account ON api_key (account_id, created_at, id);
CREATE UNIQUE INDEX sandbox_live_name ON sandbox (account_id, name)
	WHERE ended_at IS NULL AND name IS NOT NULL;
CREATE UNIQUE INDEX sandbox_idempotency ON sandbox (account_id, idempotency_key)
	WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX sandbox_uid ON sandbox (uid)
	WHERE uid IS NOT NULL;
CREATE INDEX sandbox_all ON sandbox (created_at, id);
CREATE INDEX sandbox_of_account ON sandbox (account_id, created_at, id);
CREATE INDEX sandbox_live ON sandbox (created_at, id)
	WHERE ended_at IS NULL;
CREATE INDEX sandbox_live_of_account ON sandbox (account_id, created_at, id)
	WHERE ended_at IS NULL;
CREATE INDEX sandbox_ended ON sandbox (ended_at)
	WHERE ended_at IS NOT NULL;
COMMIT;
