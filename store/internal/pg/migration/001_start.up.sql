-- For PostgreSQL 14 and later, in a database encoded in UTF8. Names are not
-- qualified: the tables belong to the first schema of the search path. Text is
-- compared for equality only, which is byte by byte whatever the collation; where
-- it is indexed its order is C's, which is fast and never changes.

CREATE TABLE reprise_migration (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A type, and no constraint: checking one costs each INSERT as much as an index does.
CREATE TYPE reprise_state AS ENUM ('in_progress', 'completed', 'unsettled', 'tombstone');

-- A row of the atomic mode is written once, at completion. Columns of fixed
-- width come first, so that none is padded; those that do not apply are NULL and
-- take no room.
CREATE TABLE reprise_ledger (
    claimed_at      timestamptz NOT NULL,
    completed_at    timestamptz,
    expires_at      timestamptz,
    tombstone_until timestamptz,
    due_at          timestamptz, -- of the purge: the end of the body, then that of the tombstone
    lease_until     timestamptz,
    epoch           bigint,
    drives          integer,
    status          integer,
    state           reprise_state NOT NULL,
    id              uuid        NOT NULL, -- 16 bytes over (caller, operation, key)
    token           uuid        NOT NULL, -- of the attempt that wrote the row
    fingerprint     bytea       NOT NULL,
    caller          text        NOT NULL,
    operation       text        NOT NULL,
    key             text        NOT NULL,
    reference       text        NOT NULL DEFAULT '',
    headers         text,  -- JSON; each character stands for one byte
    body            bytea, -- empty is not NULL: NULL is gone
    input           bytea,
    CONSTRAINT reprise_ledger_id PRIMARY KEY (id)
);
CREATE INDEX reprise_ledger_due ON reprise_ledger (due_at);
CREATE INDEX reprise_ledger_unfinished ON reprise_ledger (id) WHERE state IN ('in_progress', 'unsettled');

-- The first epoch of a run. What is between two of them is for its takeovers, so
-- that none is given out twice, not even after the run was forgotten.
CREATE SEQUENCE reprise_epoch START WITH 1048576 INCREMENT BY 1048576;

CREATE TABLE reprise_step (
    seq       bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    ledger_id uuid   NOT NULL,
    state     text   NOT NULL CHECK (state IN ('planned', 'done')),
    outcome   text   NOT NULL,
    name      text COLLATE "C" NOT NULL,
    key       text   NOT NULL,
    request   bytea,
    response  bytea,
    CONSTRAINT reprise_step_name PRIMARY KEY (ledger_id, name)
);

-- Every message that is kept is one row, whether it waits, is held or, with a
-- retention, has been delivered. Rows are never changed. xid is the transaction
-- that wrote the row: the relay finds what is new by it, because an id may be
-- committed after a higher one has been read.
CREATE TABLE reprise_outbox (
    id           bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    xid          xid8        NOT NULL DEFAULT pg_current_xact_id(),
    time         timestamptz NOT NULL,
    enqueued_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    message_id   text COLLATE "C" NOT NULL,
    source       text COLLATE "C" NOT NULL,
    type         text        NOT NULL,
    subject      text        NOT NULL,
    content_type text        NOT NULL,
    header       text,  -- JSON; each character stands for one byte
    data         bytea       NOT NULL,
    CONSTRAINT reprise_outbox_id PRIMARY KEY (xid, id),
    CONSTRAINT reprise_outbox_message UNIQUE (message_id, source)
);

-- The state of a held message, whose content stays in reprise_outbox.
CREATE TABLE reprise_outbox_hold (
    id       bigint      NOT NULL, -- of the outbox row, so the order of commits stays
    xid      xid8        NOT NULL,
    next_at  timestamptz NOT NULL,
    attempts integer     NOT NULL,
    state    text        NOT NULL CHECK (state IN ('retry', 'blocked', 'parked')),
    subject  text COLLATE "C" NOT NULL,
    reason   text        NOT NULL,
    CONSTRAINT reprise_outbox_hold_id PRIMARY KEY (id)
);
CREATE INDEX reprise_outbox_hold_subject ON reprise_outbox_hold (subject, id);

CREATE TABLE reprise_outbox_slot (
    slot        integer     PRIMARY KEY,
    epoch       bigint      NOT NULL,
    lease_until timestamptz NOT NULL,
    owner       text        NOT NULL
);
INSERT INTO reprise_outbox_slot VALUES (0, 0, 'epoch', '');

-- How far a slot has come; the row with the highest n counts. Rows are added and
-- deleted, never updated: one that is updated with every page would drag all its
-- dead versions along while a long transaction keeps them from being vacuumed.
CREATE TABLE reprise_outbox_position (
    slot  integer     NOT NULL,
    n     bigint      NOT NULL,
    seen  pg_snapshot NOT NULL, -- what is visible in it has been dealt with
    upto  pg_snapshot,          -- and what is visible in this one, as far as ...
    after bigint      NOT NULL, -- ... its id is not greater
    PRIMARY KEY (slot, n)
);
INSERT INTO reprise_outbox_position VALUES (0, 0, '1:1:', NULL, 0);

CREATE TABLE reprise_inbox (
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    consumer    text COLLATE "C" NOT NULL,
    source      text COLLATE "C" NOT NULL,
    message_id  text COLLATE "C" NOT NULL,
    digest      bytea       NOT NULL,
    CONSTRAINT reprise_inbox_message PRIMARY KEY (consumer, source, message_id)
);
CREATE INDEX reprise_inbox_received ON reprise_inbox (received_at);

INSERT INTO reprise_migration VALUES (1, 'start');
