-- Received messages with what the queue knows of them, for people and reports: state 0 Seen, 1 Processing (reserved, or held by a worker), 2 Done, 3 Dead.
CREATE VIEW "{{schema}}"."{{inbox}}_ledger" AS
SELECT e."Seq", e."Source", e."MessageId", CASE WHEN e."State" < 2 AND q."Status" = 1 THEN 1 ELSE e."State" END AS "State", e."Hash", e."FirstSeenAt", e."LastSeenAt", e."ProcessedAt",
       COALESCE(q."Attempts", e."Attempts") AS "Attempts", e."Generation", e."OwnerToken", COALESCE(CASE WHEN q."Status" = 1 THEN q."LockedUntil" END, e."LockedUntil") AS "LockedUntil",
       COALESCE(q."LastError", e."LastError") AS "LastError", e."WorkItemId", COALESCE(q."Topic", h."Topic") AS "Topic"
  FROM "{{schema}}"."{{inbox}}_entry" e
  LEFT JOIN "{{schema}}"."{{inbox}}" q ON q."Id" = e."WorkItemId"
  LEFT JOIN "{{schema}}"."{{inbox}}_history" h ON h."Id" = e."WorkItemId";
