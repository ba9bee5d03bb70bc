-- A corpus is done when its row stands in `corpus`; `membership` says which passages and drops belong to it, so
-- that an edited corpus keeps the passages (and all that was made from them) that did not change.
CREATE TABLE corpus (
    fingerprint VARCHAR PRIMARY KEY, passages BIGINT NOT NULL, dropped BIGINT NOT NULL, digest VARCHAR NOT NULL
);
CREATE TABLE membership (
    fingerprint VARCHAR NOT NULL, key VARCHAR NOT NULL, ordinal BIGINT NOT NULL, PRIMARY KEY (fingerprint, key)
);
