-- Integer keys join the tables; what callers know is (owner, id). Records are JSON, with the columns that queries need
-- beside them. Nothing is ordered by time but the list of sessions and of files.

CREATE TABLE sessions (
    key INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    agent TEXT NOT NULL,
    hidden INTEGER NOT NULL,
    updated_at REAL NOT NULL,
    title TEXT NOT NULL,                -- case folded, for search
    head INTEGER,                       -- runs.key
    floor INTEGER NOT NULL DEFAULT 0,   -- newest position of what has been deleted
    record BLOB NOT NULL,
    UNIQUE (owner, id)
);
CREATE INDEX sessions_by_title ON sessions (owner, title) WHERE hidden = 0;
CREATE INDEX sessions_listed ON sessions (owner, hidden, updated_at DESC, id, agent, title);

CREATE TABLE runs (
    key INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of creation; never used twice
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    session INTEGER NOT NULL,
    turn TEXT NOT NULL,
    status TEXT NOT NULL,
    ended INTEGER NOT NULL,             -- has an outcome
    ended_at REAL,
    stored INTEGER NOT NULL,
    compacted INTEGER NOT NULL,
    continues INTEGER,                  -- runs.key
    shown INTEGER NOT NULL,             -- part of the chain of the session's head
    first_position INTEGER NOT NULL,
    last_position INTEGER NOT NULL,     -- 1 << 62 while the run has no outcome, 0 when its log is deleted
    fingerprint TEXT NOT NULL,
    record BLOB NOT NULL,
    UNIQUE (owner, id)
);
CREATE INDEX runs_of_owner ON runs (owner, key);
CREATE INDEX runs_of_session ON runs (session, key);
CREATE INDEX runs_of_turn ON runs (session, turn, key);
CREATE INDEX runs_to_tidy ON runs (stored, ended_at) WHERE ended = 1 AND compacted = 0;
CREATE INDEX runs_unfinished ON runs (owner, key) WHERE ended = 0;
CREATE INDEX runs_by_position ON runs (session, last_position, first_position);
CREATE INDEX runs_continuing ON runs (continues) WHERE continues IS NOT NULL;

-- The log, in stretches of consecutive events of one run. A new stretch goes to the end of `tail`, whatever its run: a commit
-- of many runs writes few pages. Once a run has many, or has ended, they are folded into one row of `stretches`; what is left
-- of them in `tail` no longer counts and is trimmed later.
CREATE TABLE tail (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    last_position INTEGER NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE stretches (
    id INTEGER PRIMARY KEY,             -- run << 32 | first seq
    last_seq INTEGER NOT NULL,
    last_position INTEGER NOT NULL,
    version INTEGER NOT NULL,
    data BLOB NOT NULL
);
-- Runs whose stretches are still to be taken away, in slices.
CREATE TABLE discarded (
    run INTEGER PRIMARY KEY
);

CREATE TABLE history (
    session INTEGER NOT NULL,
    position INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    anchor INTEGER,                     -- the run to whose chain the row belongs; null: before any run
    own INTEGER NOT NULL,               -- the anchor's events made it; otherwise a client or a fork put it there
    shown INTEGER NOT NULL,             -- on the session's page
    maker TEXT,
    item_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (session, position, ordinal)
) WITHOUT ROWID;
CREATE INDEX history_shown ON history (session, position, ordinal) WHERE shown = 1;
CREATE INDEX history_by_anchor ON history (session, anchor, position, ordinal);
CREATE INDEX history_by_item ON history (session, item_id, maker);

CREATE TABLE idempotency (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    expires_at REAL NOT NULL,
    run INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_by_run ON idempotency (run);
CREATE INDEX idempotency_by_expiry ON idempotency (expires_at);

CREATE TABLE files (
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    created_at REAL NOT NULL,
    purpose TEXT NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (owner, id)
) WITHOUT ROWID;
CREATE INDEX files_by_time ON files (owner, created_at, id);
