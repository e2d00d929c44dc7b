-- +goose Up
-- What users have spent, by the day of the request; what budgets are compared with.
-- The migration after this one fills it, and rule_usage.
CREATE TABLE spent (
    user     TEXT    NOT NULL,
    day      INTEGER NOT NULL,                  -- since 1970-01-01, UTC
    requests INTEGER NOT NULL,
    tokens   INTEGER NOT NULL,                  -- input and output
    nano_usd INTEGER NOT NULL,                  -- billionths of a US dollar
    PRIMARY KEY (user, day)
) STRICT, WITHOUT ROWID;

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

-- How often rules have decided.
CREATE TABLE rule_usage (
    rule     TEXT    NOT NULL,
    decision TEXT    NOT NULL,                  -- '' = refused
    tool     TEXT    NOT NULL,
    day      INTEGER NOT NULL,
    calls    INTEGER NOT NULL,
    last     INTEGER NOT NULL,
    PRIMARY KEY (rule, decision, tool, day)
) STRICT, WITHOUT ROWID;

-- Approvals that hold for later calls of a session or user.
CREATE TABLE remembered (
    id          TEXT    NOT NULL PRIMARY KEY,
    scope       TEXT    NOT NULL CHECK (scope IN ('session', 'user')),
    user        TEXT    NOT NULL,
    session_id  TEXT    NOT NULL,               -- '' with scope user
    tool        TEXT    NOT NULL,
    arguments   TEXT,                           -- canonical JSON; NULL = any
    effect      TEXT    NOT NULL,
    run_id      TEXT    NOT NULL,
    approval_id TEXT    NOT NULL,
    by          TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    revoked_at  INTEGER,                        -- NULL = it holds
    revoked_by  TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX remembered_user ON remembered (user) WHERE revoked_at IS NULL;

-- People, groups and tokens; doc is JSON. The keys of a name are those of names that
-- cannot be told from it.
CREATE TABLE users (
    name    TEXT    NOT NULL PRIMARY KEY,
    folded  TEXT    NOT NULL UNIQUE,
    look    TEXT    NOT NULL UNIQUE,
    removed INTEGER NOT NULL,
    doc     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE user_groups (
    name   TEXT NOT NULL PRIMARY KEY,
    folded TEXT NOT NULL UNIQUE,
    look   TEXT NOT NULL UNIQUE,
    doc    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE passwords (
    user TEXT NOT NULL PRIMARY KEY,
    hash TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE tokens (
    id      TEXT    NOT NULL PRIMARY KEY,
    user    TEXT    NOT NULL,                   -- whom it acts for
    revoked INTEGER NOT NULL,
    doc     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tokens_user ON tokens (user, id);

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

INSERT INTO counters (name, value) VALUES ('remembered', 0), ('access', 0);

-- What the audit log shows, by time.
CREATE INDEX events_audit ON events (time, key)
    WHERE kind IN ('run_started', 'verdicts', 'confirmation_required', 'confirmation_resolved', 'granted', 'stopping');
CREATE INDEX system_events_audit ON system_events (time, seq)
    WHERE kind NOT IN ('anchor', 'session_made', 'session_removed', 'usage_kept');

PRAGMA user_version = 6;
