"""Who waits behind whom, and the words for it."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group

from django_lockstep.monitor import LockReport, Session, Wait, text, waits
from django_lockstep.monitor.graph import BOX_HEIGHT, BOX_WIDTH, Graph, waits_graph
from django_lockstep.monitor.modes import CONFLICTS
from django_lockstep.monitor.trees import trees
from django_lockstep.monitor.wording import duration, printable, remedy, shortened
from tests.django_lockstep.monitor.lock_situations import LockSituation, lock, shape

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


def test_a_circle_is_shown_once() -> None:
    roots = trees([waiting(1, 2), waiting(2, 1), waiting(3, 1)])
    assert shape(roots) == [("1", 2, [("2", 2, []), ("3", 0, [])])]


def test_who_waits_for_two_is_shown_once_and_counted_twice() -> None:
    roots = trees([waiting(3, 1, 2), waiting(4, 2)])
    assert shape(roots) == [("2", 2, [("3", 0, []), ("4", 0, [])]), ("1", 1, [])]
    assert [session.pid for session in roots[0].children[0].more_blockers] == [1]


def test_the_place_is_the_one_nearest_to_a_root() -> None:
    assert shape(trees([waiting(3, 2, 1), waiting(2, 1)])) == [("1", 2, [("3", 0, []), ("2", 1, [])])]


def test_a_session_that_waits_only_in_the_queue_stays_behind_its_head() -> None:
    assert shape(trees([waiting(2, 1, lock="t"), waiting(3, 2, lock="t")])) == [("1", 2, [("2", 1, [("3", 0, [])])])]


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
    assert "does not wait and is active since 2026-01-01 00:00:00 UTC (3.0 s); its transaction: 1 min 5 s" in out
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
    ("seconds", "words"),
    [
        (-0.1, "0.0 s"),
        (0.44, "0.4 s"),
        (59.9, "59.9 s"),
        (60, "1 min 0 s"),
        (3725, "1 h 2 min"),
        (90061, "1 d 1 h"),
        (None, "for an unknown time"),
    ],
)
def test_durations_are_reported_in_two_units(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_conflicts_are_mutual() -> None:
    assert len(CONFLICTS) == 8
    assert all(mode in CONFLICTS[conflicting] for mode, modes in CONFLICTS.items() for conflicting in modes)
    assert sorted(map(len, CONFLICTS.values())) == [1, 2, 4, 5, 5, 6, 7, 8]


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


def test_one_that_waits_for_two_has_one_box_and_two_lines() -> None:
    graph = waits_graph([waiting(3, 1, 2)])

    assert len(graph.boxes) == 3
    assert len(graph.lines) == 2


def test_a_cycle_is_drawn() -> None:
    graph = waits_graph([waiting(1, 2), waiting(2, 1)])

    assert len(graph.boxes) == len(graph.lines) == 2
    assert [box.kind for box in graph.boxes] == ["waiting", "waiting"]


def test_nothing_is_drawn_where_nobody_waits() -> None:
    assert waits_graph([]) == Graph(boxes=(), lines=())


@pytest.mark.parametrize("name", ["a\nb", "x" * 100, "<b>&"])
def test_any_name_fits_into_its_box(name: str) -> None:
    shown = lines(waits_graph([waiting(2, session(1, application=name))]))[1][0]

    assert shown.isprintable()
    assert len(shown) <= 40
