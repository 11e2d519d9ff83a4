"""What explorations say about a candidate."""

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from django_lockstep.lab.explorer import Exploration, ExplorerError, Outcome, Run, Step
from django_lockstep.lab.finder.confirm import judging
from django_lockstep.lab.finder.confirm.confirmation import Confirmation
from django_lockstep.lab.finder.confirm.judging import Attempts, is_known
from django_lockstep.lab.finder.confirm.pairings import Pairing
from django_lockstep.lab.finder.findings import Finding, Findings, Place
from tests.django_lockstep.lab.finder.test_findings import candidate

TWICE = Pairing(kind="request")
TWO_USERS = Pairing(kind="request", against="another user")
LOST = "seat: price 110 instead of 120"
REFUSED = "B returned status 500 IntegrityError instead of status 302"
DEADLOCK = "Deadlock of A and B, which wait for each other"


def outcome(*differences: str, schedule: str = "ABBA", holds: bool = False) -> Outcome:
    ends: dict[str, Any] = {"errors": {}, "results": {}, "state": {}, "holds": holds}
    return Outcome(**ends, count=1, schedule=schedule, differences=differences, reason="wrong")


def exploration(*outcomes: Outcome, **fields: Any) -> Exploration:
    defaults: dict[str, Any] = {
        "verdict": "nothing found" if all(end.holds for end in outcomes) else "broken",
        "reason": "a reason\nand more",
        "actors": ("A", "B"),
        "schedules": 6,
        "outcomes": outcomes,
        **dict.fromkeys(("redundant", "unsteerable", "yields", "left", "deadlocks"), 0),
        "errors": {},
        "waits": {},
        "seconds": 0.1,
    }
    return Exploration(**{**defaults, **fields})


def step(actor: str, move: int, sql: str, **fields: Any) -> Step:
    return Step(actor=actor, begun=move, ended=move, sql=sql, params="", **fields)


def run_of(schedule: str, *steps: Step) -> Run:
    return Run(schedule=schedule, preemptions=1, steps=steps, errors={}, results={}, state={}, holds=False)


@dataclass
class Fork:
    """Stands for a fork; its replays end as they are told to."""

    steps: tuple[Step, ...] = ()
    result: Exploration | None = None
    titles: tuple[str, ...] = ("A: POST a/",)
    tables: set[str] = field(default_factory=lambda: {"order"})

    def explore(self, *, tables: Collection[str], **terms: object) -> Exploration:
        assert self.result is not None
        assert set(tables) == self.tables  # those of the candidates that are tried
        return self.result

    def replay(self, schedule: str) -> Run:
        return run_of(schedule, *self.steps)


def note(
    attempts: Attempts, result: Exploration, *, pairing: Pairing = TWICE, fork: Fork | None = None, **options: Any
) -> None:
    """Note an exploration in which one of the candidates writes seats."""
    attempts.note(pairing, result, cast("Any", fork or Fork()), **{"taken": {"seat"}, **options})


def noted(
    *outcomes: Outcome, fork: Fork | None = None, taken: set[str] | None = None, **fields: Any
) -> tuple[str, str, tuple[str, ...]]:
    """Return verdict, schedule and differences for a candidate that writes seats."""
    attempts = Attempts(candidate("a", **fields))
    note(attempts, exploration(*outcomes), fork=fork, taken=taken or {"seat"})
    finding = attempts.finding(Place(test="test_it"))
    return finding.verdict, finding.schedule, finding.differences


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ((LOST,), "confirmed"),
        (("seat: one row more, guest=Ada",), "confirmed"),
        (("other.seat: one row more, guest=Ada",), "confirmed"),
        (("show: free 1 instead of 2", LOST), "confirmed"),
        # Another candidate of this place writes shows.
        (("show: free 1 instead of 2",), "not confirmed"),
        # No candidate's: it follows from what was read.
        (("event: free 1 instead of 2",), "confirmed"),
        (("B returned status 200 instead of status 403",), "confirmed"),
        (("A raised ValueError instead of returning status 302",), "confirmed"),
        ((DEADLOCK,), "confirmed"),
    ],
)
def test_a_wrong_end_is_a_finding_unless_it_is_another_candidates(differences: tuple[str, ...], verdict: str) -> None:
    assert noted(outcome(*differences), taken={"seat", "show"})[0] == verdict


def test_a_lock_order_is_confirmed_by_deadlocks_alone() -> None:
    assert noted(outcome(DEADLOCK), kind="lock-order")[0] == "confirmed"
    assert noted(outcome(LOST, DEADLOCK), kind="lock-order")[0] == "not confirmed"


@pytest.mark.parametrize(
    ("step", "verdict"),
    [
        ({"sql": 'INSERT INTO "seat" ("row")', "sqlstate": "23505"}, "confirmed"),
        ({"sql": 'INSERT INTO "show" ("row")', "sqlstate": "23505"}, "not confirmed"),
        ({"sql": 'INSERT INTO "event" ("row")', "sqlstate": "23505"}, "confirmed"),
        ({"sql": 'INSERT INTO "show" ("row")', "sqlstate": None}, "confirmed"),
    ],
)
def test_a_server_error_is_the_candidates_whose_write_was_refused(step: dict[str, Any], verdict: str) -> None:
    fork = Fork(steps=(Step(actor="A", begun=0, ended=0, params="", **step),))

    assert noted(outcome(REFUSED), fork=fork, taken={"seat", "show"})[0] == verdict


ANSWERED = "B returned status 200 instead of status 409"


@pytest.mark.parametrize(
    ("differences", "verdicts"),
    [
        pytest.param((ANSWERED, ANSWERED), ("confirmed", "not confirmed"), id="one finding, on the worst candidate"),
        pytest.param((LOST, ANSWERED), ("confirmed", "not confirmed"), id="none if its rows are wrong as well"),
        pytest.param(("event: one row more", "event: one row less"), ("confirmed", "not confirmed"), id="a table"),
        pytest.param((ANSWERED, "order: n 1 instead of 2"), ("confirmed", "confirmed"), id="another one's rows"),
    ],
)
def test_what_is_no_candidates_is_one_finding(
    differences: tuple[str, ...], verdicts: tuple[str, ...], tmp_path: Path
) -> None:
    candidates = [candidate(name, table=name, unit="POST buy/") for name in ("seat", "order")]
    confirmation = Confirmation(Findings(tmp_path / "findings", candidates), budget=60)
    attempts = [confirmation._attempts_on(item) for item in candidates]
    fork: Any = Fork(result=exploration(*map(outcome, differences)), tables={"seat", "order"})
    confirmation._try(attempts, nullcontext(fork), pairing=TWICE, explorations={}, place=Place())

    assert tuple(item.finding(Place()).verdict for item in attempts) == verdicts


def test_after_answers_another_pairing_may_show_worse() -> None:
    attempts = Attempts(candidate("a"))
    shown = []
    for difference in (ANSWERED, REFUSED, LOST):
        note(attempts, exploration(outcome(difference)))
        shown.append((attempts.finding(Place()).differences, attempts.is_settled))

    assert shown == [((ANSWERED,), False), ((ANSWERED,), False), ((LOST,), True)]


CLAIM = 'SELECT "id" FROM "seat" LIMIT 1 FOR UPDATE SKIP LOCKED'


@pytest.mark.parametrize(
    ("claimed_at", "verdict"), [(1, "not confirmed"), (3, "confirmed")], ids=["while it is open", "after its end"]
)
def test_rows_that_are_passed_over_in_another_ones_transaction_confirm_nothing(claimed_at: int, verdict: str) -> None:
    open_from_0_to_2 = (step("A", 0, 'UPDATE "seat"', transaction=0), step("A", 2, "COMMIT", transaction=0))
    fork: Any = Fork(steps=(*open_from_0_to_2, step("B", claimed_at, CLAIM, transaction=0)))
    attempts = Attempts(candidate("a"))
    run = replace(fork.replay("ABA"), differences=(LOST,))
    assert attempts.is_shown_by(run, taken={"seat"}) == (verdict == "confirmed")
    note(attempts, exploration(outcome(LOST)), fork=fork)
    finding = attempts.finding(Place(test="test_it"))

    assert finding.verdict == verdict
    assert ("SKIP LOCKED" in finding.reason) == (verdict == "not confirmed")


def test_the_worst_outcome_is_shown_and_of_these_the_shortest() -> None:
    verdict = noted(
        outcome("seat: guest Ada instead of Grace", schedule="AB"),
        outcome(LOST, schedule="ABBABA"),
        outcome(LOST, schedule="ABBA"),
        outcome(schedule="AABB", holds=True),
    )

    assert verdict == ("confirmed", "ABBA", (LOST,))


def test_all_that_was_tried_in_vain_is_counted() -> None:
    attempts = Attempts(candidate("a"))
    for test in ("test_it", "test_that"):
        note(attempts, exploration(outcome(holds=True)), place=Place(test=test))
    note(attempts, exploration(outcome("show: free 1 instead of 2")), pairing=TWO_USERS, taken={"seat", "show"})
    attempts.note_obstacle(Pairing(kind="request", after=0), "it sleeps")
    finding = attempts.finding(Place(test="test_it", number=3))

    assert (finding.verdict, finding.test, finding.number, finding.schedules) == ("not confirmed", "test_it", 3, 18)
    assert finding.reason == (
        "12 schedules (the request twice) and 6 schedules (the request by two users) leave in seat what serial orders "
        "do; what differs is another finding: show"
    )
    assert finding.obstacles == ("the request and one before it in the test: it sleeps",)


@pytest.mark.parametrize("verdict", ["nondeterministic", "stuck"])
def test_what_could_not_be_explored_was_not_tried(verdict: str) -> None:
    attempts = Attempts(candidate("a"))
    note(attempts, exploration(outcome(LOST), verdict=verdict))
    finding = attempts.finding(Place())

    assert (finding.verdict, finding.reason, finding.schedules) == ("not tried", "not the request twice: a reason", 0)


def test_a_remedy_that_cannot_be_tried_has_not_helped(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> str:
        raise ExplorerError("no")

    monkeypatch.setattr(judging, "try_patches", refuse)
    assert noted(outcome(LOST))[0] == "confirmed"


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        pytest.param(LOST, "not confirmed", id="where another candidate of the request writes"),
        pytest.param("invoice: one row more", "confirmed", id="where no candidate of it writes"),
    ],
)
def test_what_is_confirmed_already_is_not_held_against_others(difference: str, verdict: str, tmp_path: Path) -> None:
    seats, orders = (candidate(name, table=name, unit="POST buy/") for name in ("seat", "order"))
    result = Findings(tmp_path / "findings", [seats, orders])
    result.add(Finding(candidate=seats, verdict="confirmed", reason="wrong"))
    confirmation = Confirmation(result, budget=60)
    fork: Any = Fork(result=exploration(outcome(difference)))

    attempts = confirmation._attempts_on(orders)
    confirmation._try([attempts], nullcontext(fork), pairing=TWICE, explorations={}, place=Place())

    assert attempts.finding(Place(test="test_it")).verdict == verdict


def test_of_two_users_who_write_the_same_rows_only_the_serial_order_is_run() -> None:
    alone = exploration(replace(outcome(holds=True, schedule="AABB"), state={"seat": [{"free": 3}]}))
    same, other = (replace(run_of("AABB"), holds=True, state={"seat": [{"free": left}]}) for left in (3, 4))

    assert is_known(same, alone)
    assert not is_known(other, alone)
    assert not is_known(replace(same, holds=False), alone)
    assert not is_known(replace(same, errors={"A": "23505"}), alone)
    # One that is refused may be so for another reason than the same user is.
    answers = {"A": "status 200", "B": "status 409"}
    refused = exploration(replace(alone.outcomes[0], results=answers))
    assert not is_known(replace(same, results=answers), refused)


def test_a_race_of_one_user_is_not_counted_as_one_of_two() -> None:
    attempts = Attempts(candidate("a"))
    alone = exploration(outcome(holds=True))
    note(attempts, alone)
    note(attempts, replace(alone, schedules=1, left=5), pairing=TWO_USERS, twice=alone)

    finding = attempts.finding(Place())
    assert finding.reason == "6 schedules (the request twice) leave in seat what serial orders do"
    assert finding.obstacles == (
        "the request by two users: one after the other they leave the same rows as one user's two do",
    )


def test_no_candidate_takes_more_than_its_share_of_a_round(tmp_path: Path) -> None:
    result = Findings(tmp_path / "findings", [candidate("a"), candidate("b")])
    confirmation = Confirmation(result, budget=600)
    shares = [confirmation._attempts_on(item) for item in result.candidates.values()]
    run, runs = run_of("AB" * 60), 0
    for rounds in (1, 4):
        while not confirmation._is_enough(run, shares, taken=set(), twice=None):
            runs += 1
        runs += 1
        # Two candidates share the schedules.
        assert runs == rounds * 2 * 6
        shares[0].begin_round(4)
        shares[1].begin_round(4)


def test_a_search_that_was_cut_off_goes_on_in_the_next_round_and_others_do_not() -> None:
    attempts = Attempts(candidate("a"))
    first, second, third = (Place(test=name) for name in ("test_a", "test_b", "test_c"))
    note(attempts, exploration(outcome(holds=True)), place=first)
    attempts.note_obstacle(TWICE, "a reason", place=second)
    moved = Pairing(kind="request", partner="POST sell/")
    attempts.note_obstacle(moved, "its row has no counterpart here", place=second)
    note(attempts, replace(exploration(outcome(holds=True)), left=5), place=third)
    attempts.begin_round(4)

    assert attempts.again == {"test_c"}
    assert [attempts.is_open_to(TWICE, place=place) for place in (first, second, third)] == [False, False, True]
    assert [attempts.is_open_to(moved, place=place) for place in (first, second)] == [True, False]
    # Its first schedules are run again, and are not counted twice.
    note(attempts, exploration(outcome(holds=True)), place=third)
    assert attempts.finding(Place()).schedules == 12
    assert not attempts.cut_off


@pytest.mark.parametrize(("is_left", "verdict"), [(True, "not decided"), (False, "not confirmed")])
def test_what_is_left_is_not_decided(is_left: bool, verdict: str) -> None:
    attempts = Attempts(candidate("a"))
    note(attempts, exploration(outcome(holds=True)))
    finding = attempts.finding(Place(), is_left=is_left)

    assert finding.verdict == verdict
    assert ("; more is left to try, with a larger budget" in finding.reason) is is_left


@pytest.mark.parametrize(("is_run", "is_left"), [(False, True), (True, False)])
def test_a_round_leaves_the_tests_that_it_did_not_come_to(tmp_path: Path, is_run: bool, is_left: bool) -> None:
    confirmation = Confirmation(Findings(tmp_path / "findings", [candidate("a")]), budget=60)
    tests = confirmation.choose(["test_it", "test_that"], str)
    attempts = confirmation._attempts_on(candidate("a"))
    attempts.tests, attempts.cut_off, confirmation._tries = {"test_it"}, {"test_it"}, 1

    rounds = confirmation.rounds(tests, str)
    assert [next(rounds), next(rounds)] == [["test_it"]] * 2
    if is_run:
        assert confirmation.is_wanted("test_it")
    assert confirmation._is_left(attempts) is is_left
    confirmation.budget = 0
    assert confirmation._is_left(attempts)
    assert list(rounds) == []
