-- What lets a later pre-label take over the scores of pairs that did not change.
ALTER TABLE prelabel ADD COLUMN scorer VARCHAR DEFAULT '';
ALTER TABLE prelabel ADD COLUMN texts BIGINT[] DEFAULT [];
