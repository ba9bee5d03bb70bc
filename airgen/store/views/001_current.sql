-- The rows that the last run was configured to make: each joined to its parent, so that a change of one
-- stage hides everything that came after it.
CREATE OR REPLACE VIEW current_plan AS
SELECT stage, fingerprint FROM plan WHERE run = (SELECT max(run) FROM plan);

CREATE OR REPLACE VIEW current_passage AS
SELECT t.* REPLACE (m.ordinal AS ordinal) FROM passage t JOIN membership m ON m.key = t.key
JOIN current_plan p ON p.stage = 'corpus' AND p.fingerprint = m.fingerprint;

CREATE OR REPLACE VIEW current_dropped AS
SELECT t.* FROM dropped t JOIN membership m ON m.key = t.key
JOIN current_plan p ON p.stage = 'corpus' AND p.fingerprint = m.fingerprint;

CREATE OR REPLACE VIEW current_sample AS
SELECT t.* FROM sample t JOIN current_plan p ON p.stage = 'sample' AND p.fingerprint = t.fingerprint
JOIN membership m ON m.key = t.parent JOIN current_plan c ON c.stage = 'corpus' AND c.fingerprint = m.fingerprint;

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

-- The text that the dataset holds: the last rewrite, or the original where no rewrite passed its checks.
CREATE OR REPLACE VIEW final_query AS
SELECT coalesce(r.key, q.key) AS key, q.key AS query, s.parent AS passage, sc.parent AS character, q.parent AS scenario,
       coalesce(r.text, q.text) AS text, q.text AS original, q.length, q.type, q.information, r.style,
       coalesce(r.ordinal, 0) AS rounds, s.key AS sample, s.ordinal AS round
FROM current_query q
JOIN current_scenario sc ON sc.key = q.parent
JOIN current_character c ON c.key = sc.parent
JOIN current_sample s ON s.key = c.parent
LEFT JOIN (SELECT parent, arg_max(key, ordinal) AS key, arg_max(text, ordinal) AS text, arg_max(style, ordinal) AS style,
                  max(ordinal) AS ordinal FROM current_rewrite GROUP BY parent) r ON r.parent = q.key;

CREATE OR REPLACE VIEW current_judgment AS
SELECT t.* FROM judgment t JOIN current_plan p ON p.stage = 'judgment' AND p.fingerprint = t.fingerprint
JOIN final_query parent ON parent.key = t.parent;

CREATE OR REPLACE VIEW current_hard_negative AS
SELECT t.* FROM hard_negative t JOIN current_plan p ON p.stage = 'hard_negative' AND p.fingerprint = t.fingerprint
JOIN final_query parent ON parent.key = t.parent;

CREATE OR REPLACE VIEW current_recall AS
SELECT t.* FROM recall t JOIN current_plan p ON p.stage = 'recall' AND p.fingerprint = t.fingerprint;

CREATE OR REPLACE VIEW current_prelabel AS
SELECT t.* FROM prelabel t JOIN current_plan p ON starts_with(p.stage, 'prelabel') AND p.fingerprint = t.fingerprint
JOIN final_query parent ON parent.key = t.parent;

CREATE OR REPLACE VIEW current_decision AS
SELECT t.* FROM decision t JOIN current_plan p ON p.stage = 'decision' AND p.fingerprint = t.fingerprint
JOIN final_query parent ON parent.key = t.parent;

CREATE OR REPLACE VIEW current_skip AS
SELECT t.* FROM skip t JOIN current_plan p ON p.stage = t.stage AND p.fingerprint = t.fingerprint;
