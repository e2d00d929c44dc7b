-- +goose Up
-- The seal of the system journal: its last event under a key that is not in this
-- file. There is always one row; the migration after this one makes it.
CREATE TABLE system_head (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    seq  INTEGER NOT NULL,                      -- 0 = there is no event yet
    hash BLOB    NOT NULL,
    mac  BLOB    NOT NULL
) STRICT;

-- How often each tool was called, in all runs that ever were; the migration after
-- this one counts those that are here.
CREATE TABLE tool_counts (
    name   TEXT    NOT NULL PRIMARY KEY,
    calls  INTEGER NOT NULL,
    errors INTEGER NOT NULL                     -- of these, such as failed or were refused
) STRICT, WITHOUT ROWID;

ALTER TABLE runs ADD COLUMN pruned_at INTEGER;  -- NULL = its content is there

-- Where the anchors of a run are, and what was pruned of it.
CREATE INDEX system_events_run ON system_events (payload ->> 'run_id', seq)
    WHERE kind IN ('anchor', 'content_pruned', 'run_removed');

PRAGMA user_version = 2;
