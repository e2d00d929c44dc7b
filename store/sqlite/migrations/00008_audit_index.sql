-- The same index with a condition that costs an append nothing: for IN with more than
-- two values SQLite builds a table of them at each row that is inserted.

-- +goose Up
DROP INDEX events_audit;
CREATE INDEX events_audit ON events (time, key)
    WHERE kind = 'run_started' OR kind = 'verdicts' OR kind = 'confirmation_required'
        OR kind = 'confirmation_resolved' OR kind = 'granted' OR kind = 'stopping';

PRAGMA user_version = 8;
