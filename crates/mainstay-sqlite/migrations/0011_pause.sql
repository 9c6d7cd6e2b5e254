-- Topics that nobody claims from until somebody resumes them.

CREATE TABLE "{{schema}}_{{queue}}_paused" (
    topic     TEXT    NOT NULL PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    -- Who did it.
    paused_by TEXT    NOT NULL,
    -- Why, in their words.
    reason    TEXT,

    CONSTRAINT topic_is_1_to_255_characters CHECK (typeof(topic) = 'text' AND length(topic) BETWEEN 1 AND 255 AND instr(topic, char(0)) = 0),
    CONSTRAINT times_are_microseconds CHECK (typeof(paused_at) = 'integer'),
    CONSTRAINT actor_is_1_to_255_characters CHECK (typeof(paused_by) = 'text' AND length(paused_by) BETWEEN 1 AND 255 AND instr(paused_by, char(0)) = 0),
    CONSTRAINT reason_is_1_to_255_characters CHECK (
        reason IS NULL OR (typeof(reason) = 'text' AND length(reason) BETWEEN 1 AND 255 AND instr(reason, char(0)) = 0))
) WITHOUT ROWID;
