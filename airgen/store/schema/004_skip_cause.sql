-- What ended a piece of work is a column, no longer the beginning of a text.
ALTER TABLE skip ADD COLUMN cause VARCHAR DEFAULT 'check';
UPDATE skip SET cause = CASE
    WHEN starts_with(reason, 'llm: ') THEN 'llm'
    WHEN starts_with(reason, 'malformed') THEN 'malformed'
    WHEN reason IN ('no rewriting asked for', 'none asked for') THEN 'settings'
    WHEN stage = 'mined_negative' THEN 'control'
    ELSE 'check' END;
-- Queries name the fingerprints that they read, so no view depends on the plan that was written last.
DROP VIEW IF EXISTS current_mined_negative; DROP VIEW IF EXISTS current_skip; DROP VIEW IF EXISTS current_decision;
DROP VIEW IF EXISTS current_prelabel; DROP VIEW IF EXISTS current_recall; DROP VIEW IF EXISTS current_hard_negative;
DROP VIEW IF EXISTS current_judgment; DROP VIEW IF EXISTS final_query; DROP VIEW IF EXISTS current_rewrite;
DROP VIEW IF EXISTS current_query; DROP VIEW IF EXISTS current_scenario; DROP VIEW IF EXISTS current_character;
DROP VIEW IF EXISTS current_sample; DROP VIEW IF EXISTS current_dropped; DROP VIEW IF EXISTS current_passage;
DROP VIEW IF EXISTS current_plan;
