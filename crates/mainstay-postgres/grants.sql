-- What an application's role needs, and no more. Run as the owner of the schema, once per role; running it again changes nothing.
-- The role owns nothing: it can use the outbox and can neither alter it nor create anything beside it.
--
-- The functions run with the rights of their caller (SECURITY INVOKER), so the rights on the tables decide, and a mistake in a
-- function can never reach further than its caller. That is also why the role needs the tables and not the functions alone.
-- Execute is revoked from PUBLIC all the same: without it a role that has been given usage on a shared schema for something
-- else could at least call them, and error messages would be its first view of the tables.
-- Sequences need no grant: identity columns draw their numbers without one.

grant usage on schema "{{schema}}" to "{{role}}";

grant select, insert, update, delete on
    "{{schema}}"."{{outbox}}",
    "{{schema}}"."{{outbox}}_history",
    "{{schema}}"."{{outbox}}_idempotency",
    "{{schema}}"."{{outbox}}_hold",
    "{{schema}}"."{{outbox}}_waiter",
    "{{schema}}"."{{outbox}}_floor"
to "{{role}}";
grant select on "{{schema}}"."{{outbox}}_message" to "{{role}}";
-- To see at the start whether the schema is the one it was built for.
grant select on "{{schema}}"."mainstay_migration" to "{{role}}";

revoke execute on function
    "{{schema}}"."{{outbox}}_abandon",
    "{{schema}}"."{{outbox}}_ack",
    "{{schema}}"."{{outbox}}_add",
    "{{schema}}"."{{outbox}}_add_one",
    "{{schema}}"."{{outbox}}_advance",
    "{{schema}}"."{{outbox}}_busy",
    "{{schema}}"."{{outbox}}_cancel",
    "{{schema}}"."{{outbox}}_channel",
    "{{schema}}"."{{outbox}}_claim",
    "{{schema}}"."{{outbox}}_enqueue",
    "{{schema}}"."{{outbox}}_end",
    "{{schema}}"."{{outbox}}_enqueue_many",
    "{{schema}}"."{{outbox}}_fail",
    "{{schema}}"."{{outbox}}_horizon",
    "{{schema}}"."{{outbox}}_horizon_passed",
    "{{schema}}"."{{outbox}}_idle",
    "{{schema}}"."{{outbox}}_next_due",
    "{{schema}}"."{{outbox}}_purge",
    "{{schema}}"."{{outbox}}_raise_floor",
    "{{schema}}"."{{outbox}}_reap_expired",
    "{{schema}}"."{{outbox}}_refuse",
    "{{schema}}"."{{outbox}}_release",
    "{{schema}}"."{{outbox}}_release_key",
    "{{schema}}"."{{outbox}}_renew",
    "{{schema}}"."{{outbox}}_requeue",
    "{{schema}}"."{{outbox}}_requeue_where",
    "{{schema}}"."{{outbox}}_settle",
    "{{schema}}"."{{outbox}}_stats",
    "{{schema}}"."{{outbox}}_stats_by_topic",
    "{{schema}}"."{{outbox}}_sweep",
    "{{schema}}"."{{outbox}}_take",
    "{{schema}}"."{{outbox}}_uuid7",
    "{{schema}}"."{{outbox}}_wake"
from public;

grant execute on function
    "{{schema}}"."{{outbox}}_abandon",
    "{{schema}}"."{{outbox}}_ack",
    "{{schema}}"."{{outbox}}_add",
    "{{schema}}"."{{outbox}}_add_one",
    "{{schema}}"."{{outbox}}_advance",
    "{{schema}}"."{{outbox}}_busy",
    "{{schema}}"."{{outbox}}_cancel",
    "{{schema}}"."{{outbox}}_channel",
    "{{schema}}"."{{outbox}}_claim",
    "{{schema}}"."{{outbox}}_enqueue",
    "{{schema}}"."{{outbox}}_end",
    "{{schema}}"."{{outbox}}_enqueue_many",
    "{{schema}}"."{{outbox}}_fail",
    "{{schema}}"."{{outbox}}_horizon",
    "{{schema}}"."{{outbox}}_horizon_passed",
    "{{schema}}"."{{outbox}}_idle",
    "{{schema}}"."{{outbox}}_next_due",
    "{{schema}}"."{{outbox}}_purge",
    "{{schema}}"."{{outbox}}_raise_floor",
    "{{schema}}"."{{outbox}}_reap_expired",
    "{{schema}}"."{{outbox}}_refuse",
    "{{schema}}"."{{outbox}}_release",
    "{{schema}}"."{{outbox}}_release_key",
    "{{schema}}"."{{outbox}}_renew",
    "{{schema}}"."{{outbox}}_requeue",
    "{{schema}}"."{{outbox}}_requeue_where",
    "{{schema}}"."{{outbox}}_settle",
    "{{schema}}"."{{outbox}}_stats",
    "{{schema}}"."{{outbox}}_stats_by_topic",
    "{{schema}}"."{{outbox}}_sweep",
    "{{schema}}"."{{outbox}}_take",
    "{{schema}}"."{{outbox}}_uuid7",
    "{{schema}}"."{{outbox}}_wake"
to "{{role}}";
