-- MySQL commits every CREATE TABLE by itself, so a migration can stop half way.
-- Each statement may therefore be run again, and the last one notes the version.
-- Identities are VARBINARY or BINARY, which compare byte by byte: no collation,
-- no folding of case or accents, no padding. Times are UTC, by the server's clock.

CREATE TABLE IF NOT EXISTS reprise_migration (
    version    INT            NOT NULL PRIMARY KEY,
    name       VARBINARY(255) NOT NULL,
    applied_at DATETIME(6)    NOT NULL
) ENGINE=InnoDB;

-- A record is a row for each thing that happens to an intent, so that none has to
-- grow: a row that does moves its neighbours, and here the neighbours are the
-- claims of the same moment. Its claim is the row that keeps out all others.
CREATE TABLE IF NOT EXISTS reprise_ledger (
    id          BINARY(16)      NOT NULL PRIMARY KEY, -- over (caller, operation, key); in the order of time for UUIDv7 keys
    caller      VARBINARY(1024) NOT NULL,
    operation   VARBINARY(1024) NOT NULL,
    `key`       VARBINARY(255)  NOT NULL,
    fingerprint VARBINARY(64)   NOT NULL,
    token       BINARY(16)      NOT NULL, -- of the attempt that wrote the row
    claimed_at  DATETIME(6)     NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- The result; an intent without one is in progress. No foreign key says that it
-- has a claim: with one, claims were seen to wait for gaps that other transactions
-- had locked, on MariaDB 10.11 at READ COMMITTED (presumably a lock of its check
-- that was inherited when a page was split).
CREATE TABLE IF NOT EXISTS reprise_result (
    id              BINARY(16)      NOT NULL PRIMARY KEY,
    state           ENUM('completed', 'unsettled', 'tombstone') NOT NULL,
    status          SMALLINT        NOT NULL,
    headers         LONGBLOB,                 -- JSON; each character stands for one byte
    body            LONGBLOB,                 -- empty is not NULL: NULL is gone
    reference       VARBINARY(4096) NOT NULL,
    completed_at    DATETIME(6)     NOT NULL,
    expires_at      DATETIME(6),
    tombstone_until DATETIME(6),
    due_at          DATETIME(6),              -- what comes next: the end of the body, or of the tombstone
    KEY reprise_result_due (state, due_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- What a staged run has beside its claim.
CREATE TABLE IF NOT EXISTS reprise_run (
    id          BINARY(16)  NOT NULL PRIMARY KEY,
    token       BINARY(16)  NOT NULL, -- of the attempt that owns it, or was the last to
    epoch       BIGINT      NOT NULL,
    drives      INT         NOT NULL,
    lease_until DATETIME(6),          -- NULL when it has its result
    input       LONGBLOB,
    KEY reprise_run_lease (lease_until)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS reprise_step (
    seq       BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
    ledger_id BINARY(16)      NOT NULL,
    name      VARBINARY(1024) NOT NULL,
    `key`     VARBINARY(255)  NOT NULL,
    state     ENUM('planned', 'done') NOT NULL,
    request   LONGBLOB,
    outcome   VARBINARY(32)   NOT NULL,
    response  LONGBLOB,
    UNIQUE KEY reprise_step_name (ledger_id, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Every message that is kept is one row. A waiting one has a positive id. One
-- that a relay has dealt with has the negative of its id: it is held, and then
-- named in reprise_outbox_hold, or it was delivered and stays for people to see.
CREATE TABLE IF NOT EXISTS reprise_outbox (
    id           BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    message_id   VARBINARY(255) NOT NULL,
    source       VARBINARY(255) NOT NULL,
    type         VARBINARY(255) NOT NULL,
    subject      VARBINARY(255) NOT NULL,
    time         BIGINT         NOT NULL, -- microseconds since 1970: it is the message's own
    content_type VARBINARY(255) NOT NULL,
    data         LONGBLOB       NOT NULL,
    header       LONGBLOB,                -- JSON; each character stands for one byte
    enqueued_at  DATETIME(6)    NOT NULL,
    UNIQUE KEY reprise_outbox_message (source, message_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS reprise_outbox_hold (
    id       BIGINT         NOT NULL PRIMARY KEY, -- of the row in reprise_outbox, negative
    subject  VARBINARY(255) NOT NULL,
    state    ENUM('retry', 'blocked', 'parked') NOT NULL,
    attempts INT            NOT NULL,
    next_at  DATETIME(6)    NOT NULL,
    reason   BLOB           NOT NULL,
    KEY reprise_outbox_hold_subject (subject, id)
) ENGINE=InnoDB;

-- A transaction locks the bucket of each subject that it has messages of, from
-- before they get their ids until it commits. So the ids of one subject are in
-- the order of its commits. Messages without a subject lock nothing.
CREATE TABLE IF NOT EXISTS reprise_outbox_bucket (
    bucket SMALLINT NOT NULL PRIMARY KEY,
    n      BIGINT   NOT NULL DEFAULT 0
) ENGINE=InnoDB;
INSERT IGNORE INTO reprise_outbox_bucket (bucket)
SELECT a.n + 4 * b.n + 16 * c.n + 64 * d.n
FROM (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3) AS a,
     (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3) AS b,
     (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3) AS c,
     (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3) AS d;

CREATE TABLE IF NOT EXISTS reprise_outbox_slot (
    slot        INT            NOT NULL PRIMARY KEY,
    owner       VARBINARY(255) NOT NULL,
    epoch       BIGINT         NOT NULL,
    lease_until DATETIME(6)    NOT NULL,
    writes      BIGINT         NOT NULL -- changes with every fenced write
) ENGINE=InnoDB;
INSERT IGNORE INTO reprise_outbox_slot VALUES (0, '', 0, '1970-01-01', 0);

CREATE TABLE IF NOT EXISTS reprise_inbox (
    consumer    VARBINARY(512) NOT NULL,
    source      VARBINARY(512) NOT NULL,
    message_id  VARBINARY(512) NOT NULL,
    digest      BINARY(32)     NOT NULL,
    received_at DATETIME(6)    NOT NULL,
    PRIMARY KEY (consumer, source, message_id),
    KEY reprise_inbox_received (received_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT IGNORE INTO reprise_migration VALUES (1, 'start', UTC_TIMESTAMP(6));
