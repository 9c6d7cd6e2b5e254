-- With what acquisitions and renewals compare and count, so that a lease is found by its name alone: of a table of a page or two the server would rather read
-- everything, and wait for every other lease on its way.
CREATE UNIQUE INDEX "IX_{{lease}}_Name" ON "{{schema}}"."{{lease}}" ("Name") INCLUDE ("Owner", "Epoch", "FencingToken", "ExpiresAt");
