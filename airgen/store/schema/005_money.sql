-- Money is noted before it can be spent: a reservation before a call is sent, a payment when its cost is known. What a
-- killed process left open is a reservation without a payment.
CREATE TABLE reservation (
    key VARCHAR PRIMARY KEY, answer VARCHAR NOT NULL, stage VARCHAR NOT NULL, model VARCHAR NOT NULL,
    endpoint VARCHAR NOT NULL, usd DOUBLE NOT NULL
);
CREATE TABLE payment (key VARCHAR PRIMARY KEY, stage VARCHAR NOT NULL, usd DOUBLE NOT NULL);
INSERT INTO payment SELECT key, stage, cost_usd FROM answer WHERE cost_usd > 0;
