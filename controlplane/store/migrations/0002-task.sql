-- What is being done to a live sandbox beyond its state ("restart", "reset"), so that a daemon which
-- dies in the middle of it can go on.
ALTER TABLE sandbox ADD COLUMN task TEXT;
