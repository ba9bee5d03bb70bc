-- One table per row type of airgen.records: insert-only, keyed by the identity of the work.
CREATE TABLE passage (
    key VARCHAR PRIMARY KEY, id VARCHAR NOT NULL, ordinal BIGINT NOT NULL, text VARCHAR NOT NULL, title VARCHAR NOT NULL,
    document VARCHAR NOT NULL, "start" BIGINT NOT NULL, "end" BIGINT NOT NULL, tokens BIGINT NOT NULL,
    source VARCHAR NOT NULL, position VARCHAR NOT NULL, licence VARCHAR NOT NULL
);
CREATE TABLE dropped (
    key VARCHAR PRIMARY KEY, id VARCHAR NOT NULL, cleaner VARCHAR NOT NULL, reason VARCHAR NOT NULL,
    detail VARCHAR NOT NULL, source VARCHAR NOT NULL, position VARCHAR NOT NULL, text VARCHAR NOT NULL
);
CREATE TABLE sample (key VARCHAR PRIMARY KEY, parent VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, ordinal BIGINT NOT NULL);
CREATE TABLE character (
    key VARCHAR PRIMARY KEY, parent VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, ordinal BIGINT NOT NULL,
    text VARCHAR NOT NULL, options VARCHAR[] NOT NULL
);
CREATE TABLE scenario (
    key VARCHAR PRIMARY KEY, parent VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, ordinal BIGINT NOT NULL,
    text VARCHAR NOT NULL, options VARCHAR[] NOT NULL
);
CREATE TABLE query (
    key VARCHAR PRIMARY KEY, parent VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, ordinal BIGINT NOT NULL,
    text VARCHAR NOT NULL, length VARCHAR NOT NULL, type VARCHAR NOT NULL, information VARCHAR NOT NULL, attempts BIGINT NOT NULL
);
CREATE TABLE rewrite (
    key VARCHAR PRIMARY KEY, parent VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, ordinal BIGINT NOT NULL,
    text VARCHAR NOT NULL, style VARCHAR NOT NULL, attempts BIGINT NOT NULL
);
CREATE TABLE hard_negative (
    key VARCHAR PRIMARY KEY, parent VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, ordinal BIGINT NOT NULL,
    id VARCHAR NOT NULL, text VARCHAR NOT NULL, title VARCHAR NOT NULL, origin VARCHAR NOT NULL
);
CREATE TABLE recall (
    key VARCHAR PRIMARY KEY, parent VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, ordinal BIGINT NOT NULL,
    model VARCHAR NOT NULL, ids VARCHAR[] NOT NULL, scores DOUBLE[] NOT NULL
);
CREATE TABLE prelabel (
    key VARCHAR PRIMARY KEY, parent VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, ordinal BIGINT NOT NULL,
    model VARCHAR NOT NULL, ids VARCHAR[] NOT NULL, scores DOUBLE[] NOT NULL
);
CREATE TABLE judgment (
    key VARCHAR PRIMARY KEY, parent VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, ordinal BIGINT NOT NULL,
    id VARCHAR NOT NULL, level BIGINT NOT NULL, probability DOUBLE, judge VARCHAR NOT NULL, reason VARCHAR NOT NULL
);
CREATE TABLE decision (
    key VARCHAR PRIMARY KEY, parent VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, ordinal BIGINT NOT NULL,
    id VARCHAR NOT NULL, action VARCHAR NOT NULL, reason VARCHAR NOT NULL, level BIGINT, probability DOUBLE
);
CREATE TABLE skip (
    key VARCHAR PRIMARY KEY, parent VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, ordinal BIGINT NOT NULL,
    stage VARCHAR NOT NULL, reason VARCHAR NOT NULL, detail VARCHAR NOT NULL
);
CREATE TABLE answer (
    key VARCHAR PRIMARY KEY, stage VARCHAR NOT NULL, model VARCHAR NOT NULL, endpoint VARCHAR NOT NULL, text VARCHAR NOT NULL,
    error VARCHAR NOT NULL, finish_reason VARCHAR NOT NULL, prompt_tokens BIGINT NOT NULL, cached_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL, cost_usd DOUBLE NOT NULL, seconds DOUBLE NOT NULL, logprobs VARCHAR NOT NULL
);
-- What the last run was configured to make: rows of other fingerprints stay, and are not read.
CREATE TABLE plan (run BIGINT NOT NULL, stage VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, PRIMARY KEY (run, stage));
