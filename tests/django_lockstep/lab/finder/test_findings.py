"""Findings: what differences mean, and the file that keeps them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from django_lockstep.lab.finder.consequences import consequence_of, consequence_sentence, subjects_of
from django_lockstep.lab.finder.derive.candidates import Candidate, Witness
from django_lockstep.lab.finder.findings import Finding, Findings
from django_lockstep.lab.finder.record.recording import RecordedStatement
from django_lockstep.lab.finder.report.races import Report
from django_lockstep.lab.finder.report.text import as_text
from django_lockstep.lab.wording import joined
from tests.django_lockstep.lab.finder.builders import site


def candidate(name: str, **fields: Any) -> Candidate:
    defaults: dict[str, Any] = {
        "id": name,
        "kind": "read-modify-write",
        "table": "seat",
        "unit": f"POST {name}/",
        "unit_kind": "request",
        "read": RecordedStatement(site=site(6), sql="SELECT seat"),
        "write": RecordedStatement(site=site(7), sql="UPDATE seat"),
        "witnesses": (Witness(test="test_it", number=0),),
        "rank": 10,
        "sentence": "A sentence.",
    }
    return Candidate(**{**defaults, **fields})


def confirmed(name: str, **fields: Any) -> Finding:
    defaults: dict[str, Any] = {
        "candidate": candidate(name),
        "fault": "box/office.py:7",
        "schedule": "ABBA",
        "differences": ("seat: price 110 instead of 120",),
        "timeline": "A | B",
    }
    consequence = consequence_of(fields.get("differences", defaults["differences"]))
    return Finding(**{"verdict": "confirmed", "reason": "", "consequence": consequence, **defaults, **fields})


def findings(tmp_path: Path, *names: str) -> Findings:
    return Findings(tmp_path / "findings", [candidate(name) for name in names])


@pytest.mark.parametrize(
    ("difference", "consequence", "table"),
    [
        ("seat: price 110 instead of 120", "numbers lost or doubled", "seat"),
        ("seat: price 110.50 instead of -120.00 in the row with id=1, row=A", "numbers lost or doubled", "seat"),
        ("seat: guest Ada instead of Grace, price 1 instead of 2", "numbers lost or doubled", "seat"),
        ("seat: event_id 3 instead of 4", "other values", "seat"),
        ("seat: event_id -3 instead of 4, guest Ada instead of Grace", "other values", "seat"),
        ("seat: paid_until 2026-03-31 instead of 2026-04-30", "other values", "seat"),
        ("seat: opens 10:00:00 instead of 11:00:00", "other values", "seat"),
        ("seat: row A1 instead of A2", "other values", "seat"),
        ("seat: price NULL instead of 3", "other values", "seat"),
        ("seat: one row more, price=3, guest=Ada", "rows doubled or lost", "seat"),
        ("seat: one row less, price=3", "rows doubled or lost", "seat"),
        ("seat, removed: one row more, price=3", "rows doubled or lost", "seat"),
        ("other.seat: one row more, price=3", "rows doubled or lost", "seat"),
        ("Deadlock of A and B, which wait for each other", "deadlocks", ""),
        ("A returned status 500 ValueError instead of status 302", "server errors", ""),
        ("A raised IntegrityError (23505) instead of returning 302", "server errors", ""),
        ("B returned status 200 instead of status 409", "other answers", ""),
        ("B returned 500 instead of 302", "other answers", ""),
        ("B returned status 409 instead of raising IntegrityError", "other answers", ""),
        ("B returned status 204 instead of status 404", "success instead of not found", ""),
        ("B returned status 302 to / instead of status 410", "success instead of not found", ""),
        ("B returned status 409 instead of status 404", "other answers", ""),
    ],
)
def test_what_a_difference_means(difference: str, consequence: str, table: str) -> None:
    assert consequence_of([difference]) == consequence
    assert subjects_of([difference]) == {table or consequence}


def test_a_line_that_was_cut_off_costs_only_itself(tmp_path: Path) -> None:
    findings(tmp_path, "a").add(confirmed("a"))
    path = tmp_path / "findings"
    path.write_text(path.read_text() + '{"candidate": "b", "differences": {}')
    findings(tmp_path, "a", "c").add(confirmed("c"))

    assert [item.candidate.id for item in findings(tmp_path, "a", "b", "c").in_order()] == ["a", "c"]
    # Those on candidates that are not derived any more are left out.
    assert findings(tmp_path, "b").in_order() == []


def test_the_worst_come_first(tmp_path: Path) -> None:
    store = Findings(
        tmp_path / "findings", [candidate(name, rank=rank) for name, rank in (("a", 1), ("b", 30), ("c", 20), ("d", 5))]
    )
    store.add(Finding(candidate=candidate("a"), verdict="not tried", reason="no time"))
    store.add(confirmed("b"))
    store.add(confirmed("c"))
    store.add(confirmed("d", differences=("B returned 409 instead of 302",)))

    assert [item.candidate.id for item in store.in_order()] == ["c", "b", "d", "a"]


@pytest.mark.parametrize(
    ("suppressed", "status"),
    [([], 1), (["box/office.py"], 1), (["box/office.py sell"], 1), (["a", "b"], 0), (["box/office.py", "b"], 0)],
)
def test_the_status_is_1_for_one_that_is_not_suppressed(tmp_path: Path, suppressed: list[str], status: int) -> None:
    there = RecordedStatement(site=site(3, "refund"), sql="UPDATE seat")
    other = replace(there.site, path="box/till.py") if there.site else None
    store = Findings(
        tmp_path / "findings", [candidate("a"), candidate("b", write=replace(there, site=other)), candidate("c")]
    )
    store.add(confirmed("a"))
    store.add(confirmed("b"))
    store.add(Finding(candidate=candidate("c"), verdict="not confirmed", reason=""))

    assert Report(store, dict.fromkeys(suppressed, "known"), root=tmp_path).exit_status == status


@pytest.mark.parametrize(
    ("verdict", "status", "line"),
    [
        ("not tried", 11, "NOTHING WAS LOOKED AT: none of 2 candidates was tried: the time was over"),
        ("not confirmed", 12, "NOT ALL WAS LOOKED AT: 1 of 2 candidates left for a longer search"),
        ("not decided", 12, "NOT ALL WAS LOOKED AT: 2 of 2 candidates left for a longer search"),
        ("confirmed", 1, "NOT ALL WAS LOOKED AT: 1 of 2 candidates left for a longer search"),
    ],
)
def test_where_not_all_was_tried_the_last_line_and_the_status_say_so(
    tmp_path: Path, verdict: Any, status: int, line: str
) -> None:
    store = findings(tmp_path, "a", "b")
    store.add(Finding(candidate=candidate("a"), verdict="not tried", reason="the time was over"))
    store.add(replace(confirmed("b"), verdict=verdict, reason="the time was over"))
    report = Report(store, {}, root=tmp_path)

    assert (report.exit_status, report.obstacle) == (status, line)
    assert as_text(report).splitlines()[-1] == line


def test_a_death_is_that_of_the_test_which_a_session_began_and_did_not_end(tmp_path: Path) -> None:
    store, other = findings(tmp_path, "a"), findings(tmp_path, "a")
    store.go_on("1/2")
    other.go_on("2/2")
    store.add(confirmed("a", spent=2.5))
    for test in ("test_b", ""):
        other.mark_running(test)
    store.mark_running("test_a")
    parent = findings(tmp_path, "a")

    assert not parent.record_deaths("2/2")
    assert parent.record_deaths("1/2")
    assert not parent.record_deaths()
    assert list(parent.deaths) == list(findings(tmp_path).deaths) == ["test_a"]
    note = "test_a: the session that tries candidates died in it, and went on behind it"
    assert as_text(Report(parent, {}, root=tmp_path)).startswith(note)
    parent.go_on("1/2")
    assert parent.spent == 2.5
    # One that goes on beside another worker has not died.
    parent.mark_running("test_c")
    findings(tmp_path, "a").go_on("1/2")
    assert not findings(tmp_path, "a").record_deaths()


@pytest.mark.parametrize(
    ("schedules", "faults", "races"),
    [
        ("ABBA ABBA ABBA", "views.py:1 views.py:2 views.py:3", [["a", "b", "c"]]),
        ("ABBA ABBA AABB", "views.py:1 views.py:2 views.py:3", [["a", "b"], ["c"]]),
        ("ABBA AABB ABAB", "views.py:1 views.py:2 views.py:1", [["a", "c"], ["b"]]),
    ],
)
def test_candidates_of_one_schedule_or_of_one_line_are_one_race(
    tmp_path: Path, schedules: str, faults: str, races: list[list[str]]
) -> None:
    store = findings(tmp_path, "a", "b", "c")
    for name, schedule, fault in zip("abc", schedules.split(), faults.split(), strict=True):
        store.add(confirmed(name, schedule=schedule, fault=fault, test="test_it"))
    report = Report(store, {}, root=tmp_path)

    assert [[finding.candidate.id for finding in race.findings] for race in report.races()] == races
    assert [race.units for race in report.races()] == [tuple(f"POST {name}/" for name in race) for race in races]
    assert as_text(report).count("the same cause: ") == 3 - len(races)


def test_of_a_race_that_dozens_reach_the_first_are_named(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(9)]
    store = findings(tmp_path, *names)
    for name in names:
        store.add(confirmed(name, fault="views.py:1", test="test_it"))
    text = as_text(Report(store, {}, root=tmp_path))

    assert "at views.py:1, in POST n0/, POST n1/, POST n2/, POST n3/ and 5 more" in text
    assert text.count("the same cause: ") == 5
    assert "the same cause: 4 more candidates" in text


def test_what_is_suppressed_is_not_the_race_of_what_is_not(tmp_path: Path) -> None:
    store = findings(tmp_path, "a", "b")
    for name in "ab":
        store.add(confirmed(name, fault="views.py:1", test="test_it"))

    races = Report(store, {"b": "known"}, root=tmp_path).races()
    assert [race.worst.suppressed for race in races] == ["", "known"]


def test_the_rest_stands_by_reason_and_first_what_can_be_changed(tmp_path: Path) -> None:
    store = findings(tmp_path, *"abcde")
    for name, obstacles in {
        "a": (),
        "b": (joined(["two users", "it has no user"], ": "),),
        "c": (joined(["two users", "it has no user"], ": "), joined(["x", "y"], ": ")),
    }.items():
        store.add(
            Finding(candidate=candidate(name), verdict="not confirmed", reason="4 schedules", obstacles=obstacles)
        )
    store.add(Finding(candidate=candidate("d"), verdict="not tried", reason="the time was over"))
    store.add(Finding(candidate=candidate("e"), verdict="not decided", reason="2 schedules"))
    rest = Report(store, {}, root=tmp_path).rest()

    assert {name: {reason: len(entries) for reason, entries in reasons.items()} for name, reasons in rest.items()} == {
        "not tried": {"the time was over": 1},
        "not decided": {"more is left to try, with a larger budget": 1},
        "not confirmed": {"not two users: it has no user": 2, "all that was to be raced was raced": 1, "not x: y": 1},
    }
    assert list(rest) == ["not tried", "not decided", "not confirmed"]


def test_what_a_changed_row_was_before_is_not_said() -> None:
    changed, deleted = ("a: one row less, x=1", "a, removed: one row less, x=2"), "b, removed: one row more, y=1"

    assert confirmed("a", differences=(*changed, deleted)).difference == f"{changed[0]}; {deleted}"


PRICE = joined(["a", "price 1 instead of 2"], ": ")
RAISED = "B raised E: an error that no order of the two, one after the other, ends with."


@pytest.mark.parametrize(
    ("kind", "differences", "sentence"),
    [
        ("x", ["b: name x instead of y", PRICE], "box.A ends with price 1 instead of 2."),
        ("x", ["A returned 1 instead of 2", "a: one row more, x=1"], "There is one box.A too many (x=1)."),
        ("check-then-insert", ["other.a: one row more, x=1"], "There is one box.A too many (x=1)."),
        ("check-then-insert", ["a: n 1 instead of 2", "a: one row more, x=1"], "There is one box.A too many (x=1)."),
        ("check-then-insert", ["a: n 1 instead of 2", "log: one row more"], "box.A ends with n 1 instead of 2."),
        ("deleted-row-write", ["a: one row more, x=1"], "A deleted box.A comes back (x=1)."),
        ("deleted-row-write", ["log: one row more, x=1"], "There is one log too many (x=1)."),
        ("deleted-row-write", ["log: one row more, x=1", "B raised E"], RAISED),
        ("check-then-insert", ["a: one row more, x=1", "B raised E"], RAISED),
        ("x", ["a: one row less, x=1"], "One box.A is missing (x=1)."),
        ("x", ["a, removed: one row less, x=2", "a: one row less, x=1"], "A change of one box.A is lost (x=1)."),
        (
            "x",
            ["a: one row more, x=2", "a, removed: one row more, x=1"],
            "One box.A is changed that should stay as it was (x=2).",
        ),
        ("x", ["a, removed: one row more, x=1", "B returned 1"], "One box.A is deleted that should stay (x=1)."),
        ("x", ["B returned 1 instead of 2"], "B returned 1 instead of 2."),
        ("x", ["a: name x instead of Sold out."], "box.A ends with name x instead of Sold out."),
        ("x", ["B returned status 204 instead of status 404"], "B returned status 204 instead of status 404."),
        *(
            ("x", [text], f"Both succeed, but one of the two must be refused: {text}.")
            for text in ("B returned status 200 instead of status 409", "A returned nothing instead of raising NoSeat")
        ),
        ("x", ["B raised E"], RAISED),
        (
            "lock-order",
            ["a: number 4 instead of 3", "Deadlock of A, B, in which the server ended the transaction of A"],
            "Deadlock of A, B, in which the server ended the transaction of A.",
        ),
        ("x", [], ""),
    ],
)  # fmt: skip
def test_the_consequence_is_a_sentence(kind: str, differences: list[str], sentence: str) -> None:
    assert consequence_sentence(differences, kind=kind, table="a", models={"a": "box.A"}) == sentence
