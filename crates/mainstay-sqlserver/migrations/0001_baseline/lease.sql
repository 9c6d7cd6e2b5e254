-- Leases: one row for each name that was ever held.
--
-- What the layout relies on, and what would break it:
--   * A row is never deleted and its numbers never go back: a number given twice would let two holders pass the same fence.
--   * Whoever guards a lease in a transaction holds an application lock on its name, shared. An acquisition takes it exclusively: as long as
--     such a transaction is open, nobody is given the lease. A renewal and a release need no such lock, and never wait for a guard.

CREATE TABLE "{{schema}}"."{{lease}}" (
    -- Compared and listed by its code points, whatever the database's language.
    "Name"         NVARCHAR(510) COLLATE Latin1_General_BIN2 NOT NULL,
    "Owner"        NVARCHAR(510) COLLATE Latin1_General_BIN2 NULL,
    "Context"      NVARCHAR(MAX) NULL,
    -- How often it was acquired. Fences writes.
    "Epoch"        BIGINT NOT NULL,
    -- How often it was acquired or renewed.
    "FencingToken" BIGINT NOT NULL,
    "AcquiredAt"   DATETIME2(6) NOT NULL,
    "RenewedAt"    DATETIME2(6) NOT NULL,
    -- Until when it is held, or when it ended.
    "ExpiresAt"    DATETIME2(6) NOT NULL,
    -- A clustered key is narrower than a name may be.
    CONSTRAINT "PK_{{lease}}" PRIMARY KEY NONCLUSTERED ("Name"),
    CONSTRAINT "CK_{{lease}}_Name" CHECK (DATALENGTH("Name") > 0),
    CONSTRAINT "CK_{{lease}}_Numbers" CHECK ("Epoch" >= 1 AND "FencingToken" >= "Epoch")
);
GO
-- With what acquisitions and renewals compare and count, so that a lease is found by its name alone: of a table of a page or two the server would rather read
-- everything, and wait for every other lease on its way.
CREATE UNIQUE INDEX "IX_{{lease}}_Name" ON "{{schema}}"."{{lease}}" ("Name") INCLUDE ("Owner", "Epoch", "FencingToken", "ExpiresAt");
