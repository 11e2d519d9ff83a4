"""Long strings are not shown unless values are asked for."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from django_lockstep.lab.explorer import Outcome, Run, Step, timeline
from django_lockstep.lab.explorer.results import Raised
from django_lockstep.lab.finder.confirm.forks import Fork
from django_lockstep.lab.finder.confirm.judging import Attempts
from django_lockstep.lab.finder.confirm.pairings import Pairing
from django_lockstep.lab.finder.findings import Place
from django_lockstep.lab.finder.record.redaction import mask_message, redact
from tests.django_lockstep.lab.finder.test_judging import exploration
from tests.django_lockstep.lab.finder.test_reports import RUN, candidate

NOTE = "a note that it's better not to show"
OTHER = "what another order leaves behind"
UNKNOWN = "it's known only here, and nowhere else"
KEY = "0b1c9ab2-7d62-4a4e-9f5e-0a9a52b0a5d1"
TIME = "2026-02-03 10:11:12.000001+00:00"


def step(actor: str, move: int, *arguments: str, **fields: Any) -> Step:
    sql = 'UPDATE "seat_with_quite_a_long_name" SET "note" = %s, "key" = %s WHERE "id" = %s'
    params = str(tuple(arguments))
    return Step(actor=actor, begun=move, ended=move, sql=sql, params=params, arguments=arguments, **fields)


LONG = replace(
    RUN,
    schedule="AB",
    steps=(
        step("A", 0, NOTE, KEY, "1", values=({"note": NOTE, "guest": "Ada", "at": TIME},)),
        replace(step("B", 1), sql=f"SELECT '{OTHER}' FROM \"seat\"", params=str([(NOTE, 1), (UNKNOWN, 2)])),
    ),
    state={"seat": [{"note": NOTE, "price": 123456789012345678901234, "tags": {"note": NOTE}}]},
    results={"A": f"status 302 to /{NOTE}/", "B": "status 500 TransactionManagementError"},
    differences=(f"seat: note {NOTE} instead of {OTHER}, price 1 instead of 2", f"B returned status 302 to /{OTHER}/"),
    reason=f"ends with {NOTE}",
    raised={"B": Raised(type="ValueError", message=f"not {NOTE}, for 12", source="box/office.py:3")},
)  # fmt: skip
OUTCOME = Outcome(
    errors={}, results=LONG.results, state=LONG.state, holds=False, count=1, schedule="AB",
    reason=LONG.reason, differences=LONG.differences,
)  # fmt: skip
RIGHT = replace(
    OUTCOME, holds=True, state={"seat": [{"note": OTHER}]}, results={"B": f"status 302 to /{OTHER}/"},
    reason="", differences=(),
)  # fmt: skip


def everything(outcome: Outcome, run: Run) -> str:
    return json.dumps([asdict(outcome), asdict(run)]) + timeline(run)


def test_columns_and_files_keep_their_names() -> None:
    values = ({"a_column_with_a_long_name": "1", "path": "customer/wishlists/summary"},)
    source = "oscar/apps/customer/wishlists/summary.py:650"
    run = replace(LONG, steps=(step("A", 0, "1", values=values, source=source),))
    (hidden,) = redact(OUTCOME, run, ends=[])[1].steps

    assert hidden.source == source
    assert hidden.values == ({"a_column_with_a_long_name": "1", "path": "str#1"},)
    # Also a table that is called like a value.
    named = replace(LONG, steps=(step("A", 0, "seat_with_quite_a_long_name", "", "1"),))
    assert redact(OUTCOME, named, ends=[])[1].steps[0].sql == named.steps[0].sql


def test_no_long_string_is_left_and_equal_ones_have_one_name() -> None:
    outcome, run = redact(OUTCOME, LONG, ends=[(RIGHT.state, RIGHT.results)])
    shown, name = everything(outcome, run), run.steps[0].arguments[0]

    for secret in (NOTE, repr(NOTE)[1:-1], OTHER, "known only here"):
        assert secret not in shown
    assert name.startswith("str#")
    assert run.steps[0].values[0]["note"] == name
    assert run.raised["B"].message == f"not {name}, for #"
    assert outcome.differences[0].startswith(f"seat: note {name} instead of str#")
    assert outcome.differences[0].endswith(", price 1 instead of 2")
    for kept in (
        KEY,
        TIME,
        "123456789012345678901234",
        "Ada",
        "status 302 to str#",
        "status 500 TransactionManagementError",
        '\\"seat_with_quite_a_long_name\\"',
    ):
        assert kept in shown


def test_tables_and_columns_of_differences_keep_their_names() -> None:
    state = {"seat_with_quite_a_long_name": [{"note_with_quite_a_long_name": NOTE}]}
    outcome = replace(OUTCOME, differences=(f"seat_with_quite_a_long_name: note_with_quite_a_long_name {NOTE}",))
    shown, _ = redact(outcome, LONG, ends=[(state, {})])

    assert shown.differences[0].startswith("seat_with_quite_a_long_name: note_with_quite_a_long_name str#")


@pytest.mark.parametrize("values", [False, True])
def test_findings_show_them_only_if_values_are_asked_for(*, values: bool) -> None:
    # No remedy is tried for this kind.
    attempts = Attempts(candidate(kind="lock-order"), values=values)
    deadlocked = replace(OUTCOME, differences=("Deadlock of A, B",))
    attempts.note(Pairing(kind="request"), exploration(deadlocked, RIGHT, failure=LONG), fork=Fork({}), taken={"seat"})
    finding = attempts.finding(Place(test="test_it"))

    assert finding.verdict == "confirmed"
    assert (NOTE in json.dumps({**vars(finding), "candidate": ""})) is values


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Card 4929-1234 of 'Ada Lovelace' has 12.50 left", "Card # of '...' has # left"),
        ("KeyError: 'Ada'", "KeyError: '...'"),
        ('invalid input syntax for type integer: "Ada"', "invalid input syntax for type integer: '...'"),
        ("Key (email)=(ada@example.org) already exists.", "Key (email)'...' already exists."),
        ('violates unique constraint "seat_pkey2"', 'violates unique constraint "seat_pkey2"'),
        ("It isn't there, and wasn't before", "It isn't there, and wasn't before"),
        (r"not 'Ada\'s' seat", "not '...' seat"),
    ],
)
def test_messages_keep_neither_numbers_nor_what_is_quoted(message: str, shown: str) -> None:
    assert mask_message(message) == shown


@pytest.mark.parametrize("values", [False, True])
def test_what_kept_a_pairing_from_being_tried_names_no_long_string(*, values: bool) -> None:
    attempts = Attempts(candidate(), values=values)
    attempts.note_obstacle(Pairing(kind="request"), f"it sent {NOTE!r}, then 'Ada' of 300 rows")
    reason = attempts.finding(Place(test="test_it")).reason

    assert (NOTE in reason) is values
    assert reason.endswith("then 'Ada' of 300 rows")
