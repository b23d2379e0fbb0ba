-- Times are microseconds since 1970 in UTC. Text is compared byte by byte, which
-- is SQLite's BINARY collation, the default. No table is WITHOUT ROWID: rows are
-- appended, and only a small index takes the random keys (measured at 1.5 times
-- the throughput of a clustered random key).

CREATE TABLE reprise_migration (
    version    INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;

CREATE TABLE reprise_ledger (
    id              BLOB    NOT NULL, -- 16 bytes over (caller, operation, key)
    caller          TEXT    NOT NULL,
    operation       TEXT    NOT NULL,
    key             TEXT    NOT NULL,
    fingerprint     BLOB    NOT NULL,
    state           TEXT    NOT NULL CHECK (state IN ('in_progress', 'completed', 'unsettled', 'tombstone')),
    token           BLOB    NOT NULL, -- of the attempt that wrote the row
    status          INTEGER NOT NULL DEFAULT 0,
    headers         TEXT,             -- JSON; each character stands for one byte
    body            BLOB,             -- empty is not NULL: NULL is gone
    reference       TEXT    NOT NULL DEFAULT '',
    input           BLOB,
    epoch           INTEGER NOT NULL DEFAULT 0,
    lease_until     INTEGER,
    drives          INTEGER NOT NULL DEFAULT 0,
    claimed_at      INTEGER NOT NULL,
    completed_at    INTEGER,
    expires_at      INTEGER,
    tombstone_until INTEGER
) STRICT;
CREATE UNIQUE INDEX reprise_ledger_id ON reprise_ledger (id);
CREATE INDEX reprise_ledger_unfinished ON reprise_ledger (id) WHERE state IN ('in_progress', 'unsettled');
CREATE INDEX reprise_ledger_expiry ON reprise_ledger (expires_at) WHERE state = 'completed';
CREATE INDEX reprise_ledger_oblivion ON reprise_ledger (tombstone_until) WHERE state = 'tombstone';

CREATE TABLE reprise_step (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    ledger_id BLOB    NOT NULL,
    name      TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    state     TEXT    NOT NULL CHECK (state IN ('planned', 'done')),
    request   BLOB,
    outcome   TEXT    NOT NULL,
    response  BLOB
) STRICT;
CREATE UNIQUE INDEX reprise_step_name ON reprise_step (ledger_id, name);

-- One writer at a time makes the order of ids the order of commits, so a cursor
-- over id misses nothing. AUTOINCREMENT: without it SQLite gives the id of the
-- last row out again once that row is deleted, and the cursor would skip it.
CREATE TABLE reprise_outbox (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id   TEXT    NOT NULL,
    source       TEXT    NOT NULL,
    type         TEXT    NOT NULL,
    subject      TEXT    NOT NULL,
    time         INTEGER NOT NULL,
    content_type TEXT    NOT NULL,
    data         BLOB    NOT NULL,
    header       TEXT, -- JSON; each character stands for one byte
    enqueued_at  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX reprise_outbox_message ON reprise_outbox (source, message_id);

CREATE TABLE reprise_outbox_hold (
    id           INTEGER PRIMARY KEY, -- of the outbox row, so the order of commits stays
    message_id   TEXT    NOT NULL,
    source       TEXT    NOT NULL,
    type         TEXT    NOT NULL,
    subject      TEXT    NOT NULL,
    time         INTEGER NOT NULL,
    content_type TEXT    NOT NULL,
    data         BLOB    NOT NULL,
    header       TEXT,
    enqueued_at  INTEGER NOT NULL,
    state        TEXT    NOT NULL CHECK (state IN ('retry', 'blocked', 'parked')),
    attempts     INTEGER NOT NULL,
    next_at      INTEGER NOT NULL,
    reason       TEXT    NOT NULL
) STRICT;
CREATE INDEX reprise_outbox_hold_subject ON reprise_outbox_hold (subject, id);
CREATE UNIQUE INDEX reprise_outbox_hold_message ON reprise_outbox_hold (source, message_id);
-- A held message is not in reprise_outbox any more, and no other may take its
-- identity: what is decided about one would be done to both.
CREATE TRIGGER reprise_outbox_held BEFORE INSERT ON reprise_outbox
WHEN EXISTS (SELECT 1 FROM reprise_outbox_hold WHERE source = NEW.source AND message_id = NEW.message_id)
BEGIN
    SELECT RAISE(ABORT, 'UNIQUE constraint failed: reprise_outbox.source, reprise_outbox.message_id');
END;

CREATE TABLE reprise_outbox_slot (
    slot        INTEGER PRIMARY KEY,
    owner       TEXT    NOT NULL,
    epoch       INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    position    INTEGER NOT NULL -- everything up to this id is delivered or held
) STRICT;
INSERT INTO reprise_outbox_slot VALUES (0, '', 0, 0, 0);

CREATE TABLE reprise_inbox (
    consumer    TEXT    NOT NULL,
    source      TEXT    NOT NULL,
    message_id  TEXT    NOT NULL,
    digest      BLOB    NOT NULL,
    received_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX reprise_inbox_message ON reprise_inbox (consumer, source, message_id);
CREATE INDEX reprise_inbox_received ON reprise_inbox (received_at);

INSERT INTO reprise_migration VALUES (1, 'start', CAST(unixepoch('subsec') * 1000000 AS INTEGER));
