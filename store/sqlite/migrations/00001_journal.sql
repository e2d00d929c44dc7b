-- Every migration ends by setting user_version to its own number: that is what
-- is read at each start, and what tells an older toolcrib to keep its hands off.
-- Times are Unix microseconds, UTC. JSON is text as it was hashed.

-- +goose Up
-- One row for each run: its projection, and the fence (last_seq, last_hash).
CREATE TABLE runs (
    num           INTEGER PRIMARY KEY,          -- short name of the run inside this database; rises with time
    id            TEXT    NOT NULL UNIQUE,
    status        TEXT    NOT NULL DEFAULT '',
    stop_reason   TEXT    NOT NULL DEFAULT '',
    agent         TEXT    NOT NULL DEFAULT '',
    model         TEXT    NOT NULL DEFAULT '',
    user          TEXT    NOT NULL DEFAULT '',
    actor         TEXT    NOT NULL DEFAULT '',
    session_id    TEXT    NOT NULL DEFAULT '',
    parent_id     TEXT    NOT NULL DEFAULT '',
    driver        TEXT    NOT NULL DEFAULT '',
    workspace     TEXT    NOT NULL DEFAULT '',
    content       TEXT    NOT NULL DEFAULT '',
    truncated     INTEGER NOT NULL DEFAULT 0,
    iterations    INTEGER NOT NULL DEFAULT 0,
    input_tokens  INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0,   -- part of input_tokens
    write_tokens  INTEGER NOT NULL DEFAULT 0,   -- written to a cache; part of input_tokens
    output_tokens INTEGER NOT NULL DEFAULT 0,
    reason_tokens INTEGER NOT NULL DEFAULT 0,   -- part of output_tokens
    total_tokens  INTEGER NOT NULL DEFAULT 0,
    requests      INTEGER NOT NULL DEFAULT 0,
    cost_usd      REAL    NOT NULL DEFAULT 0,
    estimated     INTEGER NOT NULL DEFAULT 0,
    pending       TEXT,                         -- JSON; NULL = it waits for nobody
    error         TEXT,                         -- JSON; NULL = none
    created_at    INTEGER NOT NULL DEFAULT 0,
    ended_at      INTEGER,                      -- NULL = it has not ended
    last_seq      INTEGER NOT NULL,
    last_hash     BLOB    NOT NULL
);
CREATE INDEX runs_user    ON runs (user, num);
CREATE INDEX runs_session ON runs (session_id, num) WHERE session_id <> '';
CREATE INDEX runs_parent  ON runs (parent_id, num) WHERE parent_id <> '';
CREATE INDEX runs_open    ON runs (status, num) WHERE ended_at IS NULL;

-- The journal. One key holds run and number, so that the events of a run lie
-- side by side and a second writer of a number is refused by the table itself.
CREATE TABLE events (
    key          INTEGER PRIMARY KEY,           -- runs.num << 32 | seq
    kind         TEXT    NOT NULL,
    time         INTEGER NOT NULL,
    payload      TEXT,                          -- JSON; NULL = pruned
    payload_hash BLOB    NOT NULL,
    hash         BLOB    NOT NULL               -- of the chain up to this event
);
CREATE VIEW journal AS
    SELECT runs.id AS run_id, events.key & 0xffffffff AS seq, events.kind, events.time,
           events.payload, events.payload_hash, events.hash
    FROM events JOIN runs ON runs.num = events.key >> 32;

-- What is too large for an event, in pieces of 64 KiB.
CREATE TABLE contents (
    num    INTEGER PRIMARY KEY,
    run_id TEXT    NOT NULL,
    ref    TEXT    NOT NULL,
    size   INTEGER NOT NULL,
    hash   BLOB    NOT NULL,                    -- SHA-256 of the whole
    UNIQUE (run_id, ref)
);
CREATE TABLE content_pieces (
    key  INTEGER PRIMARY KEY,                   -- contents.num << 32 | index of the piece
    data BLOB    NOT NULL
);

-- What administrators have switched on and off.
CREATE TABLE overrides (
    kind    TEXT    NOT NULL CHECK (kind IN ('tool', 'group')),
    name    TEXT    NOT NULL,
    enabled INTEGER NOT NULL,
    by      TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO counters (name, value) VALUES ('overrides', 0);

-- What belongs to no run, chained like a run.
CREATE TABLE system_events (
    seq          INTEGER PRIMARY KEY,
    kind         TEXT    NOT NULL,
    time         INTEGER NOT NULL,
    payload      TEXT    NOT NULL,
    payload_hash BLOB    NOT NULL,
    hash         BLOB    NOT NULL
);

PRAGMA application_id = 1952674402; -- "tcrb"
PRAGMA user_version = 1;
