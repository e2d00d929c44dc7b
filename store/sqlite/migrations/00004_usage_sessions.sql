-- +goose Up
-- What runs have used, added to in the transaction of each append; the rows of a
-- run stay when it is removed. The migration after this one fills them. A row is
-- added to many times, by its number.
CREATE TABLE usage (
    num           INTEGER PRIMARY KEY,
    day           INTEGER NOT NULL,             -- since 1970-01-01, UTC
    run_id        TEXT    NOT NULL,
    provider      TEXT    NOT NULL,             -- as the configuration names it
    model         TEXT    NOT NULL,             -- as the provider names it
    user          TEXT    NOT NULL,
    agent         TEXT    NOT NULL,
    session_id    TEXT    NOT NULL,
    requests      INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,             -- part of input_tokens
    write_tokens  INTEGER NOT NULL,             -- written to a cache; part of input_tokens
    output_tokens INTEGER NOT NULL,
    reason_tokens INTEGER NOT NULL,             -- part of output_tokens
    nano_usd      INTEGER NOT NULL,             -- billionths of a US dollar
    estimated     INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX usage_key ON usage (day, run_id, provider, model, user, agent, session_id);

-- How tools were used. It takes the place of tool_counts.
CREATE TABLE tool_usage (
    tool        TEXT    NOT NULL,
    day         INTEGER NOT NULL,
    agent       TEXT    NOT NULL,               -- '' = of runs pruned before there was this table
    user        TEXT    NOT NULL,
    provider    TEXT    NOT NULL,               -- of the model that asked for the call; '' = none
    model       TEXT    NOT NULL,
    calls       INTEGER NOT NULL,
    errors      INTEGER NOT NULL,               -- of these, such as failed or were refused
    refused     INTEGER NOT NULL,               -- of these, by the gate
    duration_ms INTEGER NOT NULL,
    PRIMARY KEY (tool, day, agent, user, provider, model)
) STRICT, WITHOUT ROWID;
DROP TABLE tool_counts;

-- Sessions, also such as have no run yet or no more.
CREATE TABLE sessions (
    id         TEXT    NOT NULL,                -- ses_…, or what a program calls it
    user       TEXT    NOT NULL,
    name       TEXT    NOT NULL,                -- as a person calls it; '' = it has none
    created_at INTEGER NOT NULL,
    PRIMARY KEY (id, user)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX sessions_name ON sessions (user, name) WHERE name <> '';

-- Whose key has sealed the head; the migration after this one fills it.
ALTER TABLE system_head ADD COLUMN key_id BLOB NOT NULL DEFAULT x'';

-- What ended when, for pruning by age.
CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;

PRAGMA user_version = 4;
