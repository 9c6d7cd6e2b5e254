-- What an application's role needs, and no more. Run as the owner of the schema, once per role; running it again changes nothing.
-- The role owns nothing: it can use the queues and can neither alter it nor create anything beside it.
--
-- The functions run with the rights of their caller (SECURITY INVOKER), so the rights on the tables decide, and a mistake in a
-- function can never reach further than its caller. That is also why the role needs the tables and not the functions alone.
-- Execute is revoked from PUBLIC all the same: without it a role that has been given usage on a shared schema for something
-- else could at least call them, and error messages would be its first view of the tables.
-- Sequences need no grant: identity columns draw their numbers without one.

grant usage on schema "{{schema}}" to "{{role}}";

grant select, insert, update, delete on
{{tables}}
to "{{role}}";
-- A lease is never deleted: its numbers would begin again.
revoke delete on "{{schema}}"."{{lease}}", "{{schema}}"."{{lease}}_floor" from "{{role}}";
-- The audit trail is only added to. Whoever wants the application to purge it grants it delete.
revoke update, delete on "{{schema}}"."{{audit}}", "{{schema}}"."{{audit}}_anchor" from "{{role}}";
grant select on
{{views}}
to "{{role}}";
-- To see at the start whether the schema is the one it was built for.
grant select on "{{schema}}"."mainstay_migration" to "{{role}}";

revoke execute on function
{{functions}}
from public;

grant execute on function
{{functions}}
to "{{role}}";
