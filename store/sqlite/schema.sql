-- Times are Unix microseconds, UTC. JSON is text as it was hashed.

-- One row for each run: its projection, and the fence (last_seq, last_hash).
CREATE TABLE runs (
    num           INTEGER PRIMARY KEY,          -- short name of the run inside this database; rises with time
    id            TEXT    NOT NULL UNIQUE,
    last_seq      INTEGER NOT NULL,
    last_hash     BLOB    NOT NULL,
    kept_seq      INTEGER NOT NULL,             -- the event at which the run stands in the record of all runs
    seal          BLOB    NOT NULL,             -- keyed; of all other values of the row
    status        TEXT    NOT NULL DEFAULT '',
    stop_reason   TEXT    NOT NULL DEFAULT '',
    agent         TEXT    NOT NULL DEFAULT '',
    model         TEXT    NOT NULL DEFAULT '',
    user          TEXT    NOT NULL DEFAULT '',
    actor         TEXT    NOT NULL DEFAULT '',
    token         TEXT    NOT NULL DEFAULT '',  -- of the access token that started it
    session_id    TEXT    NOT NULL DEFAULT '',
    parent_id     TEXT    NOT NULL DEFAULT '',
    beside        TEXT    NOT NULL DEFAULT '',  -- the session beside which a person made its one call
    driver        TEXT    NOT NULL DEFAULT '',
    workspace     TEXT    NOT NULL DEFAULT '',
    once          TEXT    NOT NULL DEFAULT '',  -- hash of its key : hash of what it was asked with
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
    unpriced      INTEGER NOT NULL DEFAULT 0,   -- 1 = no price is known of some of it
    created_at    INTEGER,                      -- NULL = its first event had no time
    ended_at      INTEGER,                      -- NULL = it has not ended
    waits_since   INTEGER,                      -- NULL = it waits for nobody, or for a run below it
    pruned_at     INTEGER,                      -- NULL = its content is there
    pending       TEXT,                         -- JSON; NULL = it waits for nobody
    error         TEXT,                         -- JSON; NULL = none
    taint         TEXT    NOT NULL DEFAULT '',  -- a line for each source of untrusted data that it has read
    content       TEXT    NOT NULL DEFAULT ''   -- last, because it may be long
);
CREATE INDEX runs_user    ON runs (user, num);
CREATE INDEX runs_taint   ON runs (user, num) WHERE taint <> '';
CREATE INDEX runs_created ON runs (created_at);
CREATE INDEX runs_token   ON runs (token, num) WHERE token <> '';
CREATE INDEX runs_session ON runs (session_id, num) WHERE session_id <> '';
CREATE INDEX runs_beside  ON runs (beside, num) WHERE beside <> '';
CREATE INDEX runs_parent  ON runs (parent_id, num) WHERE parent_id <> '';
CREATE INDEX runs_ended   ON runs (ended_at) WHERE ended_at IS NOT NULL;  -- for pruning by age
CREATE INDEX runs_open    ON runs (status, num) WHERE ended_at IS NULL;
CREATE INDEX runs_waiting ON runs (status, waits_since) WHERE waits_since IS NOT NULL;
CREATE INDEX runs_held    ON runs (num) WHERE pending IS NOT NULL AND waits_since IS NULL;  -- by runs below them
CREATE INDEX runs_once    ON runs (once) WHERE once <> '';
CREATE INDEX runs_approval ON runs (pending ->> 'approval_id') WHERE pending IS NOT NULL;

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

-- What runs have said and read, and the IDs of their calls, by which it is known again when a client sends it.
CREATE TABLE said (
    num  INTEGER NOT NULL,                      -- runs.num
    hash BLOB    NOT NULL,                      -- of the user and the text; see store.SaidKey
    PRIMARY KEY (num, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX said_hash ON said (hash);

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

-- What follows from the system journal, and what permission rests on: switches, remembered
-- approvals, sessions, users, groups, passwords and tokens; see store.Doc. The keys of a name
-- are those of names that cannot be told from it.
CREATE TABLE docs (
    kind   TEXT    NOT NULL,
    id     TEXT    NOT NULL,
    user   TEXT    NOT NULL,                    -- whose it is; '' = nobody's
    folded TEXT    NOT NULL,                    -- key of a name; '' = it has none
    look   TEXT    NOT NULL,                    -- likewise
    at     INTEGER NOT NULL,
    gone   INTEGER NOT NULL,                    -- 1 = it was removed or revoked
    doc    TEXT    NOT NULL,                    -- JSON
    last   INTEGER NOT NULL DEFAULT 0,          -- of a session: runs.num of its newest run; 0 = it has none
    PRIMARY KEY (id, kind, user)                -- kind last: SQLite believes that there are few of each
) STRICT, WITHOUT ROWID;
CREATE INDEX docs_kind ON docs (kind, id);
CREATE INDEX docs_user ON docs (user, kind, id);
CREATE UNIQUE INDEX docs_folded ON docs (folded, kind) WHERE folded <> '';
CREATE UNIQUE INDEX docs_look ON docs (look, kind) WHERE look <> '';
CREATE INDEX docs_last ON docs (last, id, user) WHERE kind = 'session';
CREATE UNIQUE INDEX docs_session ON docs (user, doc ->> 'name') WHERE kind = 'session' AND doc ->> 'name' <> '';

-- Sessions, also such as have no run yet or no more: their ID (ses_…, or what a program
-- calls it), and their name as a person calls it; '' = it has none.
CREATE VIEW sessions AS
    SELECT id, user, doc ->> 'name' AS name, at AS created_at, last FROM docs WHERE kind = 'session';

-- How often the documents under one seal were changed.
CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO counters (name, value) VALUES ('overrides', 0), ('remembered', 0), ('access', 0);

-- Small files that all servers of a database share; see toolcrib.Files. A database in a data folder has none: they are
-- in the folder.
CREATE TABLE files (
    name    TEXT    NOT NULL PRIMARY KEY,
    at      INTEGER NOT NULL,                   -- rises with each change of the file
    seal    BLOB    NOT NULL,                   -- keyed; of all other values of the row
    content BLOB    NOT NULL
) STRICT;

-- Messages to runs that have not read them yet.
CREATE TABLE inbox (
    num     INTEGER PRIMARY KEY,
    run_id  TEXT    NOT NULL,
    message TEXT    NOT NULL,                   -- its ID
    text    TEXT    NOT NULL,
    author  TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    seal    BLOB    NOT NULL,                   -- keyed; of all that is above it
    UNIQUE (run_id, message)
) STRICT;

-- What belongs to no run, chained like a run.
CREATE TABLE system_events (
    seq          INTEGER PRIMARY KEY,
    kind         TEXT    NOT NULL,
    time         INTEGER NOT NULL,
    payload      TEXT    NOT NULL,
    payload_hash BLOB    NOT NULL,
    hash         BLOB    NOT NULL
);

-- Where the anchors of a run are, and what was pruned of it.
CREATE INDEX system_events_run ON system_events (payload ->> 'run_id', seq)
    WHERE kind IN ('anchor', 'content_pruned', 'run_removed');

-- The seal of the whole, in one row, under a key that is not in this file: the last
-- event of the system journal, where each run stands, and the small tables that grant.
CREATE TABLE system_head (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    seq    INTEGER NOT NULL,                    -- 0 = there is no event yet
    hash   BLOB    NOT NULL,
    key_id BLOB    NOT NULL,                    -- whose key has sealed it
    record BLOB    NOT NULL                     -- encrypted; see store.Record
) STRICT;

-- What was used, added to in the transaction of each append; what a run has used is in its
-- row, and here when it is removed. Of what a kind is not kept by the column is ''.
CREATE TABLE usage (
    kind          INTEGER NOT NULL,             -- see store.UseKind
    user          TEXT    NOT NULL,
    day           INTEGER NOT NULL,             -- since 1970-01-01, UTC
    run_id        TEXT    NOT NULL,
    session_id    TEXT    NOT NULL,
    agent         TEXT    NOT NULL,
    provider      TEXT    NOT NULL,             -- as the configuration names it
    model         TEXT    NOT NULL,             -- as the provider names it
    tool          TEXT    NOT NULL,
    rule          TEXT    NOT NULL,
    decision      TEXT    NOT NULL,             -- of a rule; '' = refused
    runs          INTEGER NOT NULL,             -- that sent their first request
    requests      INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,             -- part of input_tokens
    write_tokens  INTEGER NOT NULL,             -- written to a cache; part of input_tokens
    output_tokens INTEGER NOT NULL,
    reason_tokens INTEGER NOT NULL,             -- part of output_tokens
    nano_usd      INTEGER NOT NULL,             -- billionths of a US dollar
    calls         INTEGER NOT NULL,
    errors        INTEGER NOT NULL,             -- of the calls, such as failed or were refused
    refused       INTEGER NOT NULL,             -- of the calls, by the gate
    duration_ms   INTEGER NOT NULL,
    estimated     INTEGER NOT NULL,
    unpriced      INTEGER NOT NULL,             -- 1 = no price is known of some of it
    last          INTEGER NOT NULL,             -- when a rule has decided last
    PRIMARY KEY (kind, user, day, run_id, session_id, agent, provider, model, tool, rule, decision)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_runs ON usage (day, run_id) WHERE kind = 4; -- UseRuns, by time: those that were removed

-- What is set aside for requests that are not settled yet, one for a run.
CREATE TABLE reservations (
    run_id   TEXT    NOT NULL PRIMARY KEY,
    request  INTEGER NOT NULL,                  -- its number in the run
    user     TEXT    NOT NULL,
    day      INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    tokens   INTEGER NOT NULL,
    nano_usd INTEGER NOT NULL,
    state    INTEGER NOT NULL                   -- 0 = not written down yet, 1 = the request is in the journal, 2 = given up
) STRICT, WITHOUT ROWID;
CREATE INDEX reservations_user ON reservations (user, day);

-- Which process drives a run. Not sealed: the fence decides which of two drivers may append.
CREATE TABLE leases (
    run_id       TEXT    NOT NULL PRIMARY KEY,
    owner        TEXT    NOT NULL,              -- random, of a process
    epoch        INTEGER NOT NULL,
    expires      INTEGER NOT NULL,              -- by the clock of the database
    lasts        INTEGER NOT NULL,              -- from its renewal; microseconds
    host         TEXT    NOT NULL,              -- name of its machine
    machine      TEXT    NOT NULL,              -- where processes can look at each other
    pid          INTEGER NOT NULL,
    started      INTEGER NOT NULL,              -- when the process started; 0 = unknown
    cancel_by    TEXT    NOT NULL,              -- who asks to cancel the run
    cancel_token TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- How often tokens were used: in all, and each call of the last minute.
CREATE TABLE token_calls (
    token   TEXT    NOT NULL PRIMARY KEY,
    calls   INTEGER NOT NULL,
    expires INTEGER NOT NULL                    -- 0 = unknown
) STRICT, WITHOUT ROWID;
CREATE INDEX token_calls_expires ON token_calls (expires);
CREATE TABLE token_minute (
    token TEXT    NOT NULL,
    n     INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (token, n)
) STRICT, WITHOUT ROWID;

-- The version of the schema, the oldest version whose programs may work on it, and a seal of them and of all definitions.
CREATE TABLE state (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    oldest  INTEGER NOT NULL,
    seal    BLOB    NOT NULL
) STRICT;
INSERT INTO state (one, version, oldest, seal) VALUES (1, 24, 24, x'');

-- What the audit log shows, by time. A chain of OR costs an append nothing; for IN with
-- more than two values SQLite builds a table of them at each row that is inserted.
CREATE INDEX events_audit ON events (time, key)
    WHERE kind = 'run_started' OR kind = 'verdicts' OR kind = 'confirmation_required'
        OR kind = 'confirmation_resolved' OR kind = 'granted' OR kind = 'stopping';
CREATE INDEX system_events_audit ON system_events (time, seq)
    WHERE kind NOT IN ('anchor', 'session_made', 'session_removed');

PRAGMA application_id = 1952674402; -- "tcrb"
PRAGMA user_version = 24;
