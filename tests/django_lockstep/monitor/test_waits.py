"""Every kind of lock that somebody waits for is told in Django's terms."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import OperationalError

from django_lockstep.monitor import LockReport, Session, Wait, lock_report, text, waits
from django_lockstep.monitor.graph import BOX_HEIGHT, BOX_WIDTH, Graph, waits_graph
from django_lockstep.monitor.text import duration, printable, remedy, shortened
from django_lockstep.monitor.trees import trees
from tests.django_lockstep.monitor.lock_situations import LockSituation, execute, lock, run, shape, values_of
from tests.support.sessions import Session as OpenSession
from tests.support.sessions import query
from tests.testapps.shop.models import Ticket

# Rows


def test_a_row_is_named_and_its_holder_has_its_last_statement(group: Group, situation: LockSituation) -> None:
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


def test_a_migration_waits_for_a_reader_and_the_next_reader_for_it(group: Group, situation: LockSituation) -> None:
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
def prepared(group: Group) -> Iterator[None]:
    """A prepared transaction that has written to the group."""
    if query("SELECT current_setting('max_prepared_transactions')::int") < 1:
        pytest.skip("max_prepared_transactions is too small")
    update = f"UPDATE auth_group SET name = 'P' WHERE id = {group.pk}"
    execute("BEGIN", update, "PREPARE TRANSACTION 'p'")
    yield
    execute("ROLLBACK PREPARED 'p'")


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("statement", ["UPDATE auth_group SET name = 'Q'", "LOCK TABLE auth_group IN SHARE MODE"])
def test_a_prepared_transaction_is_said_to_be_one(open_session: Callable[[], OpenSession], statement: str) -> None:
    waiter = open_session()
    waiter.begin()
    future = waiter.start(execute, statement)
    waiter.wait_until_blocked()
    (wait,) = waits()
    assert [(session.state, session.pid) for session in wait.blockers] == [("prepared", None)]
    assert "prepared transaction (see pg_prepared_xacts)" in run()
    query("SELECT pg_cancel_backend(%s)", waiter.pid)
    assert isinstance(future.exception(), OperationalError)


# Chains


def test_a_chain_of_three_hangs_on_its_root(group: Group, situation: LockSituation) -> None:
    other = Group.objects.create(name="B")
    situation.hold("a", lock, Group, group.pk)
    middle = situation.hold("b", lock, Group, other.pk)
    situation.go_on(middle, lock, Group, group.pk)
    situation.wait("c", lock, Group, other.pk)
    assert shape(trees(waits())) == [("a", 2, [("b", 1, [("c", 0, [])])])]
    assert [wait.pk for wait in waits()] == [group.pk, other.pk]


def test_a_queue_for_one_row_is_no_chain(group: Group, situation: LockSituation) -> None:
    situation.hold("a", lock, Group, group.pk)
    for name in "bcd":
        situation.wait(name, lock, Group, group.pk)
    (root,) = trees(waits())
    assert shape([root]) == [("a", 3, [("b", 2, [("c", 0, []), ("d", 0, [])])])]
    assert [child.ahead for child in root.children[0].children] == [0, 1]
    assert {wait.pk for wait in waits()} == {group.pk}


def session(pid: int, **values: Any) -> Session:
    return Session(pid=pid, **{"application": str(pid), "state": "active", "seconds": 2.0, **values})


def waiting(pid: int, *blockers: int | Session, lock: str = "", **values: Any) -> Wait:
    sessions = tuple(blocker if isinstance(blocker, Session) else session(blocker) for blocker in blockers)
    lock_values = {"kind": "table", "table": "t", "mode": None, "seconds": 1.0} | values
    return Wait(waiter=session(pid), blockers=sessions, lock=lock or str(pid), **lock_values)


@pytest.mark.parametrize(
    ("waits", "roots"),
    [
        ([waiting(1, 2), waiting(2, 1), waiting(3, 1)], [("1", 2, [("2", 2, []), ("3", 0, [])])]),
        ([waiting(3, 2, 1), waiting(2, 1)], [("1", 2, [("3", 0, []), ("2", 1, [])])]),
        ([waiting(2, 1, lock="t"), waiting(3, 2, lock="t")], [("1", 2, [("2", 1, [("3", 0, [])])])]),
    ],
    ids=["a circle is shown once", "the place nearest to a root", "in a queue behind its head"],
)
def test_each_has_one_place(waits: list[Wait], roots: list[Any]) -> None:
    assert shape(trees(waits)) == roots


def test_who_waits_for_two_is_shown_once_and_counted_twice() -> None:
    roots = trees([waiting(3, 1, 2), waiting(4, 2)])
    assert shape(roots) == [("2", 2, [("3", 0, []), ("4", 0, [])]), ("1", 1, [])]
    assert [session.pid for session in roots[0].children[0].more_blockers] == [1]


# Words


def report_of(*waits: Wait) -> LockReport:
    return LockReport(database="bank", taken_at=datetime(2026, 1, 1, tzinfo=UTC), waits=waits, advisory_locks=())


def test_a_circle_is_called_a_deadlock() -> None:
    out = text(report_of(waiting(1, 2), waiting(2, 1)))
    assert '    waits 1.0 s for table t, also waits for pid 2 "2", in a cycle: a deadlock' in out
    assert "LOOK HERE" not in out


def test_who_is_at_work_is_not_to_be_ended() -> None:
    busy = session(7, state="active", since=datetime(2026, 1, 1, tzinfo=UTC), seconds=3.0, transaction_seconds=65.0)
    wait = Wait(waiter=session(8), blockers=(busy,), kind="table", lock="t", mode="SHARE", seconds=1.0)
    out = text(report_of(wait))
    assert "does not wait and is active since 2026-01-01 00:00:00 UTC (3.0 s); its transaction: 0:01:05" in out
    assert "to end it" not in out
    assert remedy(busy) is None


def test_a_holder_that_has_gone_is_said_to_be_gone() -> None:
    assert "has ended in the meantime" in text(report_of(waiting(1, session(2, state=None))))


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b[2Jb\u202ec") == "a?[2Jb?c"


def test_statements_are_cut_in_the_middle() -> None:
    statement = f"SELECT {', '.join('abcdefgh' * 20)}\n  FROM t WHERE id = 17 FOR UPDATE"
    short = shortened(statement, room=60)
    assert len(short) == 60
    assert short.startswith("SELECT a, b")
    assert short.endswith("FROM t WHERE id = 17 FOR UPDATE")
    assert shortened("SELECT\n 1", room=60) == "SELECT 1"


@pytest.mark.parametrize(
    ("seconds", "words"), [(-0.1, "0.0 s"), (59.9, "59.9 s"), (3725, "1:02:05"), (None, "for an unknown time")]
)
def test_durations_are_for_people(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


# The waits as boxes and lines: every session once, nothing over another, lines from waiters to who holds them up


def lines(graph: Graph) -> dict[int | None, list[str]]:
    return {box.session.pid: [line for _, line in box.lines] for box in graph.boxes}


def places(graph: Graph) -> dict[int | None, tuple[int, int]]:
    """Return the column and row of each session."""
    columns, rows = sorted({box.x for box in graph.boxes}), sorted({box.y for box in graph.boxes})
    return {box.session.pid: (columns.index(box.x), rows.index(box.y)) for box in graph.boxes}


def test_a_box_says_who_and_what_for() -> None:
    holder = session(1, application="web", state="idle in transaction")
    graph = waits_graph([waiting(2, holder, kind="row", model="shop.Seat", pk=7, mode="FOR UPDATE", seconds=3.0)])

    assert lines(graph) == {
        1: ['pid 1 "web"', "idle in transaction for 2.0 s", "1 behind it"],
        2: ['pid 2 "2"', "waits 3.0 s for", "shop.Seat pk=7 (FOR UPDATE)"],
    }
    assert [box.kind for box in graph.boxes] == ["idle", "waiting"]


def test_waiters_stand_to_the_right_of_who_holds_them_up_each_in_a_row() -> None:
    graph = waits_graph([waiting(3, 1), waiting(4, 1), waiting(5, 3), waiting(6, 2)])

    assert places(graph) == {1: (0, 0), 3: (1, 0), 5: (2, 0), 4: (1, 1), 2: (0, 2), 6: (1, 2)}
    assert len(graph.lines) == 4
    assert (graph.width, graph.height) == (graph.boxes[2].x + BOX_WIDTH, graph.boxes[-1].y + BOX_HEIGHT)


@pytest.mark.parametrize(
    ("waits", "kinds", "paths"),
    [
        ([], [], 0),
        ([waiting(3, 1, 2)], ["active", "waiting", "active"], 2),
        ([waiting(1, 2), waiting(2, 1)], ["waiting", "waiting"], 2),
    ],
    ids=["nothing", "one that waits for two", "a cycle"],
)
def test_a_session_has_a_box_and_a_line_to_each_it_waits_for(waits: list[Wait], kinds: list[str], paths: int) -> None:
    graph = waits_graph(waits)
    assert ([box.kind for box in graph.boxes], len(graph.lines)) == (kinds, paths)


@pytest.mark.parametrize("name", ["a\nb", "x" * 100, "<b>&"])
def test_any_name_fits_into_its_box(name: str) -> None:
    shown = lines(waits_graph([waiting(2, session(1, application=name))]))[1][0]

    assert shown.isprintable()
    assert len(shown) <= 40
