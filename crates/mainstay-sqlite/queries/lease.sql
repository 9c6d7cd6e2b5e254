-- Every statement of the leases. `-- name:` starts one; src/lease.rs lists them.
-- Parameters are numbered, so that other drivers can bind them too. `now` is always a parameter that the same operation
-- read with `clock`: one operation has one moment, and it is SQLite's.

-- name: acquire
-- 1 name, 2 owner, 3 context, 4 now, 5 until, 6 whether the same owner may have it again. No row: somebody else has it.
INSERT INTO "{{schema}}_{{lease}}" (name, owner, context, epoch, fencing_token, acquired_at, renewed_at, expires_at)
VALUES (?1, ?2, ?3, 1, 1, ?4, ?4, ?5)
ON CONFLICT (name) DO UPDATE
   SET owner = excluded.owner, context = excluded.context, epoch = epoch + 1, fencing_token = fencing_token + 1,
       acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at, expires_at = excluded.expires_at
 WHERE owner IS NULL OR expires_at <= ?4 OR (?6 AND owner = ?2)
RETURNING epoch, fencing_token, expires_at;

-- name: renew
-- 1 name, 2 owner, 3 epoch, 4 now, 5 until. Lapsed is lost, even if nobody has taken it yet.
UPDATE "{{schema}}_{{lease}}" SET fencing_token = fencing_token + 1, renewed_at = ?4, expires_at = ?5
 WHERE name = ?1 AND owner = ?2 AND epoch = ?3 AND expires_at > ?4
RETURNING fencing_token, expires_at;

-- name: release
-- 1 name, 2 owner, 3 epoch, 4 now.
UPDATE "{{schema}}_{{lease}}" SET owner = NULL, context = NULL, expires_at = ?4
 WHERE name = ?1 AND owner = ?2 AND epoch = ?3 AND expires_at > ?4;

-- name: force_release
-- 1 name, 2 now.
UPDATE "{{schema}}_{{lease}}" SET owner = NULL, context = NULL, expires_at = ?2
 WHERE name = ?1 AND owner IS NOT NULL AND expires_at > ?2;

-- name: guard
-- 1 name, 2 owner, 3 epoch, 4 now. Changes nothing, but makes the transaction one that writes, so that nobody else can: what it
-- has seen then holds until its end. In one whose view of the database is an old one it fails.
UPDATE "{{schema}}_{{lease}}" SET fencing_token = fencing_token
 WHERE name = ?1 AND owner = ?2 AND epoch = ?3 AND expires_at > ?4;

-- name: home
-- The file with the table that a guard on this connection has looked at: attached ones are searched too, the first one wins.
SELECT d.file FROM pragma_table_list t JOIN pragma_database_list d ON d.name = t.schema
 WHERE t.name = '{{schema:literal}}_{{lease:literal}}' COLLATE NOCASE ORDER BY d.seq LIMIT 1;

-- name: find
-- 1 name, 2 now.
SELECT name, owner IS NOT NULL AND expires_at > ?2, owner, epoch, fencing_token, acquired_at, renewed_at, expires_at, context
  FROM "{{schema}}_{{lease}}" WHERE name = ?1;

-- name: list
-- 1 now, 2 only those held, 3 after this name or null, 4 rows at most.
SELECT name, owner IS NOT NULL AND expires_at > ?1, owner, epoch, fencing_token, acquired_at, renewed_at, expires_at, context
  FROM "{{schema}}_{{lease}}"
 WHERE (NOT ?2 OR (owner IS NOT NULL AND expires_at > ?1)) AND name > coalesce(?3, '')
 ORDER BY name LIMIT ?4;

-- name: list_prefix
-- 1 now, 2 only those held, 3 after this name or null, 4 rows at most, 5 what names begin with, 6 the first text beyond these.
SELECT name, owner IS NOT NULL AND expires_at > ?1, owner, epoch, fencing_token, acquired_at, renewed_at, expires_at, context
  FROM "{{schema}}_{{lease}}"
 WHERE name >= ?5 AND name < ?6 AND (NOT ?2 OR (owner IS NOT NULL AND expires_at > ?1)) AND name > coalesce(?3, '')
 ORDER BY name LIMIT ?4;

-- name: active
-- 1 now.
SELECT count(*) FROM "{{schema}}_{{lease}}" WHERE owner IS NOT NULL AND expires_at > ?1;
