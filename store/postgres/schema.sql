-- The tables of store/sqlite/schema.sql, where their columns are described. Text is compared by bytes,
-- whatever the collation of the database.

CREATE FUNCTION toolcrib.json_text(doc text, path text[]) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    -- PostgreSQL reads no U+0000; nothing here depends on a text that has one
    AS $$ SELECT pg_catalog.replace(doc, '\u0000', '\u0001')::pg_catalog.json OPERATOR(pg_catalog.#>>) path $$;
CREATE OPERATOR toolcrib.->> (LEFTARG = text, RIGHTARG = text[], FUNCTION = toolcrib.json_text);
CREATE FUNCTION toolcrib.json_valid(doc text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
    AS $$ BEGIN RETURN doc::pg_catalog.json IS NOT NULL; EXCEPTION WHEN data_exception THEN RETURN false; END $$;

-- The version of the schema, and the number of transactions that have written. Its row is the lock for writing.
CREATE TABLE toolcrib.state (
    one     bigint PRIMARY KEY CHECK (one = 1),
    version bigint NOT NULL,
    content bigint NOT NULL
) WITH (fillfactor = 10);
-- The last transaction of each open store, by which one is found whose commit was not answered.
CREATE TABLE toolcrib.writers (
    id      text COLLATE "C" PRIMARY KEY,
    content bigint NOT NULL,
    at      timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 10);
-- Damage that was found: store.Verifying.
CREATE TABLE toolcrib.damage (
    n    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    line text COLLATE "C" NOT NULL
);

CREATE TABLE toolcrib.runs (
    num           bigint GENERATED ALWAYS AS IDENTITY (MAXVALUE 2147483647) PRIMARY KEY,
    id            text COLLATE "C" NOT NULL UNIQUE,
    last_seq      bigint NOT NULL,
    last_hash     bytea  NOT NULL,
    kept_seq      bigint NOT NULL,
    seal          bytea  NOT NULL,
    status        text COLLATE "C" NOT NULL DEFAULT '',
    stop_reason   text COLLATE "C" NOT NULL DEFAULT '',
    agent         text COLLATE "C" NOT NULL DEFAULT '',
    model         text COLLATE "C" NOT NULL DEFAULT '',
    "user"        text COLLATE "C" NOT NULL DEFAULT '',
    actor         text COLLATE "C" NOT NULL DEFAULT '',
    token         text COLLATE "C" NOT NULL DEFAULT '',
    session_id    text COLLATE "C" NOT NULL DEFAULT '',
    parent_id     text COLLATE "C" NOT NULL DEFAULT '',
    beside        text COLLATE "C" NOT NULL DEFAULT '',
    driver        text COLLATE "C" NOT NULL DEFAULT '',
    workspace     text COLLATE "C" NOT NULL DEFAULT '',
    once          text COLLATE "C" NOT NULL DEFAULT '',
    truncated     bigint NOT NULL DEFAULT 0,
    iterations    bigint NOT NULL DEFAULT 0,
    input_tokens  bigint NOT NULL DEFAULT 0,
    cached_tokens bigint NOT NULL DEFAULT 0,
    write_tokens  bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    reason_tokens bigint NOT NULL DEFAULT 0,
    total_tokens  bigint NOT NULL DEFAULT 0,
    requests      bigint NOT NULL DEFAULT 0,
    cost_usd      double precision NOT NULL DEFAULT 0,
    estimated     bigint NOT NULL DEFAULT 0,
    unpriced      bigint NOT NULL DEFAULT 0,
    created_at    bigint,
    ended_at      bigint,
    waits_since   bigint,
    pruned_at     bigint,
    pending       text COLLATE "C",
    error         text COLLATE "C",
    taint         text COLLATE "C" NOT NULL DEFAULT '',
    content       text COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 80);
CREATE INDEX runs_user    ON toolcrib.runs ("user", num);
CREATE INDEX runs_taint   ON toolcrib.runs ("user", num) WHERE taint <> '';
CREATE INDEX runs_created ON toolcrib.runs (created_at);
CREATE INDEX runs_token   ON toolcrib.runs (token, num) WHERE token <> '';
CREATE INDEX runs_session ON toolcrib.runs (session_id, num) WHERE session_id <> '';
CREATE INDEX runs_beside  ON toolcrib.runs (beside, num) WHERE beside <> '';
CREATE INDEX runs_parent  ON toolcrib.runs (parent_id, num) WHERE parent_id <> '';
CREATE INDEX runs_ended   ON toolcrib.runs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_open    ON toolcrib.runs (status, num) WHERE ended_at IS NULL;
CREATE INDEX runs_waiting ON toolcrib.runs (status, waits_since) WHERE waits_since IS NOT NULL;
CREATE INDEX runs_held    ON toolcrib.runs (num) WHERE pending IS NOT NULL AND waits_since IS NULL;
CREATE INDEX runs_once    ON toolcrib.runs (once) WHERE once <> '';
CREATE INDEX runs_approval ON toolcrib.runs ((pending OPERATOR(toolcrib.->>) '{approval_id}')) WHERE pending IS NOT NULL;

CREATE TABLE toolcrib.events (
    key          bigint PRIMARY KEY,
    kind         text COLLATE "C" NOT NULL,
    time         bigint NOT NULL,
    payload      text COLLATE "C",
    payload_hash bytea  NOT NULL,
    hash         bytea  NOT NULL
);
CREATE INDEX events_audit ON toolcrib.events (time, key)
    WHERE kind = 'run_started' OR kind = 'verdicts' OR kind = 'confirmation_required'
        OR kind = 'confirmation_resolved' OR kind = 'granted' OR kind = 'stopping';
CREATE VIEW toolcrib.journal AS
    SELECT runs.id AS run_id, events.key & 4294967295 AS seq, events.kind, events.time,
           events.payload, events.payload_hash, events.hash
    FROM toolcrib.events JOIN toolcrib.runs ON runs.num = events.key >> 32;

CREATE TABLE toolcrib.said (
    num  bigint NOT NULL,
    hash bytea  NOT NULL,
    PRIMARY KEY (num, hash)
);
CREATE INDEX said_hash ON toolcrib.said (hash);

CREATE TABLE toolcrib.contents (
    num    bigint GENERATED ALWAYS AS IDENTITY (MAXVALUE 2147483647) PRIMARY KEY,
    run_id text COLLATE "C" NOT NULL,
    ref    text COLLATE "C" NOT NULL,
    size   bigint NOT NULL,
    hash   bytea  NOT NULL,
    UNIQUE (run_id, ref)
);
CREATE TABLE toolcrib.content_pieces (
    key  bigint PRIMARY KEY,
    data bytea NOT NULL
);

CREATE TABLE toolcrib.docs (
    kind   text COLLATE "C" NOT NULL,
    id     text COLLATE "C" NOT NULL,
    "user" text COLLATE "C" NOT NULL,
    folded text COLLATE "C" NOT NULL,
    look   text COLLATE "C" NOT NULL,
    at     bigint NOT NULL,
    gone   bigint NOT NULL,
    doc    text COLLATE "C" NOT NULL,
    last   bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, id, "user")
);
CREATE INDEX docs_user ON toolcrib.docs ("user", kind, id);
CREATE UNIQUE INDEX docs_folded ON toolcrib.docs (folded, kind) WHERE folded <> '';
CREATE UNIQUE INDEX docs_look ON toolcrib.docs (look, kind) WHERE look <> '';
CREATE INDEX docs_last ON toolcrib.docs (last, id, "user") WHERE kind = 'session';
CREATE UNIQUE INDEX docs_session ON toolcrib.docs ("user", (doc OPERATOR(toolcrib.->>) '{name}'))
    WHERE kind = 'session' AND doc OPERATOR(toolcrib.->>) '{name}' <> '';
CREATE VIEW toolcrib.sessions AS
    SELECT id, "user", doc OPERATOR(toolcrib.->>) '{name}' AS name, at AS created_at, last FROM toolcrib.docs WHERE kind = 'session';
CREATE TABLE toolcrib.counters (
    name  text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO toolcrib.counters (name, value) VALUES ('overrides', 0), ('remembered', 0), ('access', 0);

CREATE TABLE toolcrib.inbox (
    num     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id  text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    text    text COLLATE "C" NOT NULL,
    author  text COLLATE "C" NOT NULL,
    at      bigint NOT NULL,
    seal    bytea  NOT NULL,
    UNIQUE (run_id, message)
);

CREATE TABLE toolcrib.system_events (
    seq          bigint PRIMARY KEY,
    kind         text COLLATE "C" NOT NULL,
    time         bigint NOT NULL,
    payload      text COLLATE "C" NOT NULL,
    payload_hash bytea  NOT NULL,
    hash         bytea  NOT NULL
);
CREATE INDEX system_events_run ON toolcrib.system_events ((payload OPERATOR(toolcrib.->>) '{run_id}'), seq)
    WHERE kind IN ('anchor', 'content_pruned', 'run_removed');
CREATE INDEX system_events_audit ON toolcrib.system_events (time, seq)
    WHERE kind NOT IN ('anchor', 'session_made', 'session_removed');
CREATE TABLE toolcrib.system_head (
    one    bigint PRIMARY KEY CHECK (one = 1),
    seq    bigint NOT NULL,
    hash   bytea  NOT NULL,
    key_id bytea  NOT NULL,
    record bytea  NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE toolcrib.usage (
    kind          bigint NOT NULL,
    "user"        text COLLATE "C" NOT NULL,
    day           bigint NOT NULL,
    run_id        text COLLATE "C" NOT NULL,
    session_id    text COLLATE "C" NOT NULL,
    agent         text COLLATE "C" NOT NULL,
    provider      text COLLATE "C" NOT NULL,
    model         text COLLATE "C" NOT NULL,
    tool          text COLLATE "C" NOT NULL,
    rule          text COLLATE "C" NOT NULL,
    decision      text COLLATE "C" NOT NULL,
    runs          bigint NOT NULL,
    requests      bigint NOT NULL,
    input_tokens  bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    write_tokens  bigint NOT NULL,
    output_tokens bigint NOT NULL,
    reason_tokens bigint NOT NULL,
    nano_usd      bigint NOT NULL,
    calls         bigint NOT NULL,
    errors        bigint NOT NULL,
    refused       bigint NOT NULL,
    duration_ms   bigint NOT NULL,
    estimated     bigint NOT NULL,
    unpriced      bigint NOT NULL,
    last          bigint NOT NULL,
    PRIMARY KEY (kind, "user", day, run_id, session_id, agent, provider, model, tool, rule, decision)
) WITH (fillfactor = 50);
CREATE INDEX usage_runs ON toolcrib.usage (day, run_id) WHERE kind = 4;

CREATE TABLE toolcrib.reservations (
    run_id   text COLLATE "C" PRIMARY KEY,
    request  bigint NOT NULL,
    "user"   text COLLATE "C" NOT NULL,
    day      bigint NOT NULL,
    at       bigint NOT NULL,
    tokens   bigint NOT NULL,
    nano_usd bigint NOT NULL,
    state    bigint NOT NULL
);
CREATE INDEX reservations_user ON toolcrib.reservations ("user", day);

CREATE TABLE toolcrib.leases (
    run_id       text COLLATE "C" PRIMARY KEY,
    owner        text COLLATE "C" NOT NULL,
    epoch        bigint NOT NULL,
    expires      bigint NOT NULL,
    lasts        bigint NOT NULL,
    host         text COLLATE "C" NOT NULL,
    machine      text COLLATE "C" NOT NULL,
    pid          bigint NOT NULL,
    started      bigint NOT NULL,
    cancel_by    text COLLATE "C" NOT NULL,
    cancel_token text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE toolcrib.token_calls (
    token   text COLLATE "C" PRIMARY KEY,
    calls   bigint NOT NULL,
    expires bigint NOT NULL
);
CREATE INDEX token_calls_expires ON toolcrib.token_calls (expires);
CREATE TABLE toolcrib.token_minute (
    token text COLLATE "C" NOT NULL,
    n     bigint NOT NULL,
    at    bigint NOT NULL,
    PRIMARY KEY (token, n)
);
