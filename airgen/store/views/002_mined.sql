-- Hard negatives out of the corpus stand in the table of the generated ones, under a stage of their own.
CREATE OR REPLACE VIEW current_mined_negative AS
SELECT t.* FROM hard_negative t JOIN current_plan p ON p.stage = 'mined_negative' AND p.fingerprint = t.fingerprint
JOIN final_query parent ON parent.key = t.parent;
