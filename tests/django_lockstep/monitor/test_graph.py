"""The waits as boxes and lines: every session once, nothing over another, lines from waiters to who holds them up."""

from typing import Any

import pytest

from django_lockstep.monitor import Session, Wait
from django_lockstep.monitor.graph import BOX_HEIGHT, BOX_WIDTH, Graph, waits_graph


def session(pid: int, **facts: Any) -> Session:
    return Session(pid=pid, **{"state": "active", "seconds": 2.0, **facts})


def wait(pid: int, *blockers: Session, lock: str = "") -> Wait:
    facts: dict[str, Any] = {"kind": "row", "model": "shop.Seat", "pk": 7, "mode": "FOR UPDATE", "seconds": 3.0}
    return Wait(waiter=session(pid), blockers=blockers, lock=lock or f"of {pid}", **facts)


def lines(graph: Graph) -> dict[int | None, list[str]]:
    return {box.session.pid: [line for _, line in box.lines] for box in graph.boxes}


def places(graph: Graph) -> dict[int | None, tuple[int, int]]:
    """Return the column and row of each session."""
    columns, rows = sorted({box.x for box in graph.boxes}), sorted({box.y for box in graph.boxes})
    return {box.session.pid: (columns.index(box.x), rows.index(box.y)) for box in graph.boxes}


def test_a_box_says_who_and_what_for() -> None:
    holder = session(1, application="web", state="idle in transaction")
    graph = waits_graph([wait(2, holder)])

    assert lines(graph) == {
        1: ['pid 1 "web"', "idle in transaction for 2.0 s", "1 behind it"],
        2: ["pid 2", "waits 3.0 s for", "shop.Seat pk=7 (FOR UPDATE)"],
    }
    assert [box.kind for box in graph.boxes] == ["idle", "waiting"]


def test_waiters_stand_to_the_right_of_who_holds_them_up_each_in_a_row() -> None:
    first, second = session(1), session(2)
    graph = waits_graph([wait(3, first), wait(4, first), wait(5, session(3)), wait(6, second)])

    assert places(graph) == {1: (0, 0), 3: (1, 0), 5: (2, 0), 4: (1, 1), 2: (0, 2), 6: (1, 2)}
    assert len(graph.lines) == 4
    assert (graph.width, graph.height) == (graph.boxes[2].x + BOX_WIDTH, graph.boxes[-1].y + BOX_HEIGHT)


def test_one_that_waits_for_two_has_one_box_and_two_lines() -> None:
    graph = waits_graph([wait(3, session(1), session(2))])

    assert len(graph.boxes) == 3
    assert len(graph.lines) == 2


def test_a_cycle_is_drawn() -> None:
    graph = waits_graph([wait(1, session(2)), wait(2, session(1))])

    assert len(graph.boxes) == len(graph.lines) == 2
    assert [box.kind for box in graph.boxes] == ["waiting", "waiting"]


def test_nothing_is_drawn_where_nobody_waits() -> None:
    assert waits_graph([]) == Graph(boxes=(), lines=())


@pytest.mark.parametrize("name", ["a\nb", "x" * 100, "<b>&"])
def test_any_name_fits_into_its_box(name: str) -> None:
    shown = lines(waits_graph([wait(2, session(1, application=name))]))[1][0]

    assert shown.isprintable()
    assert len(shown) <= 40
