"""Every kind of lock that somebody waits for is told in Django's terms."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import OperationalError

from django_lockstep.monitor import lock_report, waits
from django_lockstep.monitor.trees import trees
from tests.django_lockstep.monitor.lock_situations import LockSituation, execute, lock, run, shape, values_of
from tests.support.sessions import Session, query
from tests.testapps.shop.models import Ticket

# Rows


def test_a_row_is_named_and_its_holder_is_reported_with_its_last_statement(
    group: Group, situation: LockSituation
) -> None:
    holder = situation.hold("web-1", lock, Group, group.pk)
    situation.wait("web-2", lock, Group, group.pk)
    (wait,) = waits()
    assert values_of(wait, "kind", "model", "table", "pk") == ("row", "auth.Group", "auth_group", group.pk)
    assert values_of(wait, "mode", "pk_unknown", "key") == ("FOR NO KEY UPDATE", None, None)
    assert wait.waiter.application == "web-2"
    assert wait.waiter.statement
    assert wait.waiter.statement.endswith("FOR NO KEY UPDATE")
    (blocker,) = wait.blockers
    assert (blocker.pid, blocker.application, blocker.state) == (holder.pid, "web-1", "idle in transaction")
    assert blocker.statement
    assert blocker.statement.endswith("FOR NO KEY UPDATE")
    assert blocker.since
    assert blocker.seconds is not None
    assert blocker.seconds >= wait.seconds >= 0


def test_a_uuid_is_a_primary_key(situation: LockSituation) -> None:
    ticket = Ticket.objects.create()
    situation.hold("web-1", lock, Ticket, ticket.pk)
    situation.wait("web-2", Ticket.objects.filter(pk=ticket.pk).delete)
    (wait,) = waits()
    assert values_of(wait, "model", "pk", "mode") == ("shop.Ticket", ticket.pk, "FOR UPDATE")


def test_automatic_many_to_many_tables_have_a_model(group: Group, situation: LockSituation) -> None:
    user = User.objects.create(username="u")
    user.groups.add(group)
    situation.hold("web-1", user.groups.clear)
    situation.wait("web-2", user.groups.clear)
    (wait,) = waits()
    assert values_of(wait, "model", "pk") == ("auth.User_groups", User.groups.through.objects.get().pk)


def test_any_name_and_any_primary_key_of_a_table_will_do(odd_table: str, situation: LockSituation) -> None:
    situation.hold("web-1", execute, f"UPDATE {odd_table} SET n = 1")
    situation.wait("web-2", execute, f"UPDATE {odd_table} SET n = 2")
    (wait,) = waits()
    assert values_of(wait, "model", "table", "pk") == (None, 'My "odd" table, 100%', "it's")
    assert 'for My "odd" table, 100% pk="it\'s" (FOR NO KEY UPDATE)' in run()


def test_a_table_of_another_schema_is_not_taken_for_the_models(group: Group, situation: LockSituation) -> None:
    execute("CREATE SCHEMA attic", "CREATE TABLE attic.auth_group AS SELECT 1 AS a")
    try:
        situation.hold("web-1", execute, "UPDATE attic.auth_group SET a = 1")
        situation.wait("web-2", execute, "UPDATE attic.auth_group SET a = 1")
        (wait,) = waits()
        assert values_of(wait, "model", "table") == (None, "attic.auth_group")
        assert values_of(wait, "pk", "pk_unknown") == (None, "the table has no primary key")
    finally:
        situation.end()
        execute("DROP SCHEMA attic CASCADE")


def test_a_commit_can_wait_for_a_row_too(group: Group, situation: LockSituation) -> None:
    user = User.objects.create(username="u")
    situation.hold("web-1", execute, f"SELECT FROM auth_group WHERE id = {group.pk} FOR UPDATE")
    adder = situation.hold("web-2", user.groups.add, group)
    situation.go_on(adder, execute, "COMMIT")
    (wait,) = waits()
    assert values_of(wait, "model", "pk", "mode") == ("auth.Group", group.pk, "FOR KEY SHARE")
    assert wait.waiter.statement == "COMMIT"


def test_of_a_unique_key_the_table_is_reported(situation: LockSituation) -> None:
    situation.hold("web-1", lambda: Group.objects.create(name="A"))
    situation.wait("web-2", lambda: Group.objects.create(name="A"))
    (wait,) = waits()
    assert values_of(wait, "kind", "model", "mode") == ("row", "auth.Group", None)
    assert values_of(wait, "pk", "pk_unknown") == (None, "the server does not say which")
    assert "for a row or unique value of auth.Group (the server does not say which)" in run()


def test_of_a_row_that_has_just_changed_hands_the_table_is_reported(group: Group, situation: LockSituation) -> None:
    """The latecomer has found the row, and is held up before it locks it, while the row changes twice."""
    gate = situation.hold("gate", execute, "SELECT pg_advisory_lock(9)", begin=False)
    late = situation.hold("late", lambda: None)
    stall = "pg_advisory_lock_shared(9)::text = ''"
    situation.go_on(late, execute, f"UPDATE auth_group SET name = 'D' WHERE id = {group.pk} AND {stall}")
    Group.objects.update(name="B")
    situation.hold("holder", lambda: Group.objects.update(name="C"))
    gate.run(execute, "SELECT pg_advisory_unlock(9)")
    late.wait_until_blocked()
    (wait,) = waits()
    assert values_of(wait, "model", "pk") == ("auth.Group", None)
    assert wait.blockers[0].application == "holder"


# Tables, transactions, advisory locks


def test_a_migration_waits_for_a_reader_and_the_next_reader_for_the_migration(
    group: Group, situation: LockSituation
) -> None:
    situation.hold("reader", Group.objects.count)
    situation.wait("migrate", execute, "ALTER TABLE auth_group ADD COLUMN n int")
    situation.wait("web", Group.objects.count)
    assert shape(trees(waits())) == [("reader", 2, [("migrate", 1, [("web", 0, [])])])]
    first, second = waits()
    assert values_of(first, "kind", "model", "pk", "mode") == ("table", "auth.Group", None, "ACCESS EXCLUSIVE")
    assert values_of(second, "kind", "model", "pk", "mode") == ("table", "auth.Group", None, "ACCESS SHARE")


def test_the_report_does_not_wait_behind_a_migration(group: Group, situation: LockSituation) -> None:
    situation.hold("a", lock, Group, group.pk)
    situation.wait("b", lock, Group, group.pk)
    situation.wait("migrate", execute, "ALTER TABLE auth_group ADD COLUMN n int")
    assert values_of(waits()[0], "model", "pk", "pk_unknown") == ("auth.Group", None, "the table is locked")


def test_an_index_stands_for_its_table(odd_table: str, situation: LockSituation) -> None:
    situation.hold("reader", execute, f"SELECT FROM {odd_table}")
    situation.wait("dba", execute, 'REINDEX INDEX "My ""odd"" table, 100%_pkey"')
    (wait,) = waits()
    assert values_of(wait, "kind", "table") == ("table", 'My "odd" table, 100%')


def test_a_concurrent_index_waits_for_transactions(odd_table: str, situation: LockSituation) -> None:
    situation.hold("writer", execute, f"UPDATE {odd_table} SET n = 1")
    situation.wait("dba", execute, f"CREATE INDEX CONCURRENTLY ON {odd_table} (n)", begin=False)
    (wait,) = waits()
    assert (wait.kind, wait.blockers[0].application) == ("transaction", "writer")
    assert "for the end of an earlier transaction" in run()


@pytest.mark.parametrize(
    ("arguments", "key"), [("-42", -42), (str(2**40 + 7), 2**40 + 7), ("7, -1", (7, -1)), ("0, 5", (0, 5))]
)
def test_advisory_locks_have_the_key_that_was_given(arguments: str, key: Any, situation: LockSituation) -> None:
    situation.hold("beat-1", execute, f"SELECT pg_advisory_lock({arguments})", begin=False)
    situation.wait("beat-2", execute, f"SELECT pg_advisory_xact_lock({arguments})")
    report = lock_report()
    assert values_of(report.waits[0], "kind", "key", "mode") == ("advisory", key, "EXCLUSIVE")
    (held,) = report.advisory_locks
    assert (held.key, held.mode) == (key, "EXCLUSIVE")
    assert [session.application for session in (*held.holders, *held.waiters)] == ["beat-1", "beat-2"]


def test_a_shared_advisory_lock_has_many_holders(situation: LockSituation) -> None:
    for name in ("beat-1", "beat-2"):
        situation.hold(name, execute, "SELECT pg_advisory_lock_shared(1)")
    lines = run().splitlines()
    assert lines[0].endswith(": no session waits for a lock.")
    assert lines[1:3] == ["", "Advisory locks:"]
    assert lines[3].startswith("    1: held by pid ")
    assert lines[3].endswith('"beat-2" (SHARE)')


def test_a_lock_left_behind_by_an_idle_session_is_named(situation: LockSituation) -> None:
    situation.hold("beat-1", execute, "SELECT pg_advisory_lock(1)", begin=False)
    situation.wait("beat-2", execute, "SELECT pg_advisory_lock(1)")
    assert "LOOK HERE: does not wait and is idle (a session-level lock) since" in run()


@pytest.fixture
def prepared(group: Group) -> Iterator[str]:
    """A prepared transaction that has written to the group; a second one only has looked at it."""
    if query("SELECT current_setting('max_prepared_transactions')::int") < 2:
        pytest.skip("max_prepared_transactions is too small")
    update = f"UPDATE auth_group SET name = 'P' WHERE id = {group.pk}"
    execute("BEGIN", "SELECT FROM auth_group", "PREPARE TRANSACTION 'a reader'")
    execute("BEGIN", update, "PREPARE TRANSACTION 'it''s'")
    yield "it's"
    execute("ROLLBACK PREPARED 'it''s'", "ROLLBACK PREPARED 'a reader'")


@pytest.mark.parametrize("statement", ["UPDATE auth_group SET name = 'Q'", "LOCK TABLE auth_group IN SHARE MODE"])
def test_a_prepared_transaction_is_named(prepared: str, open_session: Callable[[], Session], statement: str) -> None:
    waiter = open_session()
    waiter.begin()
    future = waiter.start(execute, statement)
    waiter.wait_until_blocked()
    (wait,) = waits()
    assert [(session.gid, session.state, session.pid) for session in wait.blockers] == [(prepared, "prepared", None)]
    assert f"prepared transaction {prepared!r}" in run()
    assert "ROLLBACK PREPARED 'it''s';" in run()
    query("SELECT pg_cancel_backend(%s)", waiter.pid)
    assert isinstance(future.exception(), OperationalError)
