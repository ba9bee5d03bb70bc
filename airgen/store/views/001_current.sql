-- The rows that the last run was configured to make: each joined to its parent, so that a change of one
-- stage hides everything that came after it.
CREATE OR REPLACE VIEW current_plan AS
SELECT stage, fingerprint FROM plan WHERE run = (SELECT max(run) FROM plan);

CREATE OR REPLACE VIEW current_sample AS
SELECT t.* FROM sample t JOIN current_plan p ON p.stage = 'sample' AND p.fingerprint = t.fingerprint;

CREATE OR REPLACE VIEW current_character AS
SELECT t.* FROM character t JOIN current_plan p ON p.stage = 'character' AND p.fingerprint = t.fingerprint
JOIN current_sample parent ON parent.key = t.parent;

CREATE OR REPLACE VIEW current_scenario AS
SELECT t.* FROM scenario t JOIN current_plan p ON p.stage = 'scenario' AND p.fingerprint = t.fingerprint
JOIN current_character parent ON parent.key = t.parent;

CREATE OR REPLACE VIEW current_query AS
SELECT t.* FROM query t JOIN current_plan p ON p.stage = 'query' AND p.fingerprint = t.fingerprint
JOIN current_scenario parent ON parent.key = t.parent;

CREATE OR REPLACE VIEW current_rewrite AS
SELECT t.* FROM rewrite t JOIN current_plan p ON p.stage = 'rewrite' AND p.fingerprint = t.fingerprint
JOIN current_query parent ON parent.key = t.parent;

CREATE OR REPLACE VIEW current_skip AS
SELECT t.* FROM skip t JOIN current_plan p ON p.stage = t.stage AND p.fingerprint = t.fingerprint;
