"""Judges how a run ended: by the invariant, or by comparison with the actors run one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from django_lockstep.errors import ConcurrencyError, sqlstate_of
from django_lockstep.lab.explorer.errors import CAUSES, Nondeterminism
from django_lockstep.lab.explorer.options import Errors
from django_lockstep.lab.explorer.requests import Response
from django_lockstep.lab.explorer.tables.final_state import (
    FinalState,
    Labels,
    canonical_state,
    comparison_text,
    describe_difference,
    differing_columns,
    label_text,
    with_labels,
    without_columns,
)
from django_lockstep.lab.scenario import Scenario
from django_lockstep.lab.wording import error_label, gettext, gettext_noop, joined

_PLAIN = (bool, int, float, Decimal, str, Response)
_IN_THE_WAY = frozenset({409, 423, 425, 429, 503})
"""Statuses that say that another request was in the way: the client may try again."""
_RESULT = "the result of {}"
"""How an actor's result is named among the columns that are not compared."""
_LOCATION = "the location of {}"
"""How the address to which its response redirects is named there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended, with the original objects."""

    fixture: Any
    """What ``set_up`` returned."""
    state: FinalState
    """The final state."""
    results: Mapping[str, Any]
    """What actors returned, by name."""
    errors: Mapping[str, BaseException]
    """What the others raised."""
    labels: Labels = field(default_factory=dict)
    """What stands for keys that the database generated in this run: they depend on the schedule."""


@dataclass(frozen=True, slots=True)
class Objection:
    """What is wrong with a result."""

    text: str = ""
    """In a sentence; empty if nothing is."""
    differences: tuple[str, ...] = ()
    """How it differs from the nearest serial result, such as ``shop_seat: price 110 instead of 120``."""
    expected: FinalState = ""
    """The state of that one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparable:
    """The part of a result that is compared."""

    state: FinalState
    results: Mapping[str, str]
    errors: Mapping[str, str]

    @property
    def key(self) -> tuple[object, ...]:
        return tuple(self.errors.items()), tuple(self.results.items()), comparison_text(self.state)

    def describe_difference(self, expected: Comparable) -> list[str]:
        """Return in words what differs from the expected result."""
        names = sorted({*self.results, *expected.results, *self.errors, *expected.errors})
        answers = (self._answer_difference(name, expected) for name in names)
        return [*describe_difference(self.state, expected.state), *filter(None, answers)]

    def _answer_difference(self, name: str, expected: Comparable) -> str:
        """Return in words what the actor returned or raised instead of the expected; empty if it is that."""
        (verb, value), (other_verb, due) = self._answer(name), expected._answer(name)
        if (verb, value) == (other_verb, due):
            return ""
        return gettext(_ANSWERS[verb, other_verb], actor=name, answer=value, expected=due)

    def _answer(self, name: str) -> tuple[str, str]:
        if name in self.errors:
            return "raised", self.errors[name]
        return "returned", self.results.get(name, gettext("nothing"))


_ANSWERS = {
    ("raised", "raised"): gettext_noop("{actor} raised {answer} instead of {expected}"),
    ("raised", "returned"): gettext_noop("{actor} raised {answer} instead of returning {expected}"),
    ("returned", "raised"): gettext_noop("{actor} returned {answer} instead of raising {expected}"),
    ("returned", "returned"): gettext_noop("{actor} returned {answer} instead of {expected}"),
}


def nearest(pairs: Iterable[tuple[Comparable, Comparable]]) -> tuple[tuple[str, ...], FinalState]:
    """Of pairs of an end and an expected one, return in words the least difference, and the expected state."""
    described = ((tuple(end.describe_difference(expected)), expected.state) for end, expected in pairs)
    return min(described, key=lambda pair: len(pair[0]), default=((), ""))


class Oracle:
    """Says what is wrong with a result; learns which columns differ without any race.

    ``run_serially`` runs actors, given by their indexes, one after the other; it returns None if one does not end.
    ``raises`` are errors that an actor may raise in a race though it raises them in no serial order.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        ignore: Collection[str],
        raises: Errors = (),
        run_serially: Callable[[Sequence[int]], RunResult | None],
    ) -> None:
        self._scenario = scenario
        self._names = tuple(scenario.actors)
        self._run_serially = run_serially
        self._raises = raises
        self._ignored = set(ignore)
        self._serial_runs: dict[tuple[int, ...], RunResult | None] = {}
        """By the order of the actors; None where one did not end."""
        self._serial: dict[tuple[int, ...], Comparable] = {}
        self._shown: dict[str, tuple[FinalState, Mapping[str, str]]] = {}
        """How ends are shown that differ in keys of new rows alone: as the first of them."""

    @property
    def not_compared(self) -> tuple[str, ...]:
        """The columns left out: those to ignore, and those that were learned."""
        return tuple(sorted(self._ignored))

    def key(self, end: RunResult) -> tuple[object, ...]:
        """Return a key that is equal for equivalent results."""
        return self.comparable(end).key

    def comparable(self, end: RunResult) -> Comparable:
        """Return what is compared: the same for ends that differ in generated keys and ignored columns alone."""
        state = without_columns(end.state, self._ignored)
        returned = {name: result for name, result in end.results.items() if _RESULT.format(name) not in self._ignored}
        for name, result in returned.items():
            if isinstance(result, Response) and _LOCATION.format(name) in self._ignored:
                returned[name] = replace(result, location="")
        results = plain_results(returned)
        labelled = {name: label_text(text, end.labels) for name, text in results.items()}
        form = canonical_state(state, results, end.labels)
        shown_state, shown_results = self._shown.setdefault(form, (with_labels(state, end.labels), labelled))
        errors = {name: error_label(error) for name, error in end.errors.items()}
        return Comparable(state=shown_state, results=shown_results, errors=errors)

    def learn(self, first: RunResult, second: RunResult) -> bool:
        """Note what differs between two results of the same schedule; return whether that is new."""
        mine, theirs = self.comparable(first), self.comparable(second)
        # Then the runs differ as a whole, and ignoring columns would hide that.
        if mine.errors != theirs.errors:
            return False
        columns = differing_columns(mine.state, theirs.state)
        for name in (name for name in mine.results if mine.results[name] != theirs.results.get(name)):
            results = first.results[name], second.results.get(name)
            locations = {result.location for result in results if isinstance(result, Response)}
            # With a token in the location, the status still counts.
            columns.add((_LOCATION if len(locations) > 1 else _RESULT).format(name))
        self.ignore(columns)
        return bool(columns)

    def ignore(self, columns: Collection[str]) -> None:
        """Compare these columns no longer."""
        self._ignored.update(columns)
        # Serial results were compared with them.
        self._serial.clear()
        self._shown.clear()

    def note_serial_run(self, order: Sequence[int], end: RunResult) -> None:
        """Note how actors, given by their indexes, ended one after the other, so that they need not be run so again."""
        self._serial_runs.setdefault(tuple(order), end)

    def learn_from_serial_runs(self) -> bool:
        """Run the serial orders that are known once more, and note what differs now; return whether that is new.

        Between the two the clock may have gone on, and what it says have got into a text. Raises `Nondeterminism` where
        more than values of columns differs, as where rows have become old enough to be deleted: then no end says
        whether it is a serial order's.
        """
        for order, end in self._serial_runs.items():
            if end is None or (again := self._run_serially(order)) is None:
                continue
            if self.learn(end, again):
                return True
            then, now = self.comparable(end), self.comparable(again)
            if then.key != now.key:
                names = ", ".join(self._names[index] for index in order)
                text = f"{names}, one after the other, ended differently when they were repeated: "
                raise Nondeterminism(f"{text}{'; '.join(now.describe_difference(then))}\n{CAUSES}")
        return False

    def objection(self, end: RunResult) -> Objection:
        """Return what is wrong with the result."""
        if self._scenario.invariant is None:
            return self._serial_objection(end)
        return Objection(self._scenario.objection(end.fixture, end.results, end.errors))

    def _serial_objection(self, end: RunResult) -> Objection:
        mine, everyone = self.comparable(end), frozenset(self._names)
        succeeded = everyone.difference(mine.errors)
        candidates: list[tuple[Comparable, Comparable]] = []
        # Actors that raised have either done nothing, or what they do before they raise when they run alone.
        for names, seen in ((succeeded, replace(mine, errors={})), (everyone, mine)):
            for serial in (serial for serial in self._serial_ends(names) if serial.errors == seen.errors):
                if (serial.state, serial.results) == (mine.state, mine.results):
                    return self._error_objection(end)
                candidates.append((seen, serial))
        # Those that answered that another one was in the way have done nothing either, or not been refused for that.
        answers = [(name, answer) for name, answer in end.results.items() if isinstance(answer, Response)]
        refused = [name for name, answer in answers if answer.status in _IN_THE_WAY]
        for absent in itertools.chain(*(itertools.combinations(refused, count + 1) for count in range(len(refused)))):
            results = {name: result for name, result in end.results.items() if name not in absent}
            others = self.comparable(replace(end, results=results, errors={}))
            if any(serial == others for serial in self._serial_ends(succeeded.difference(absent))):
                return self._error_objection(end)
        if not candidates:
            who = ", ".join(name for name in self._names if name in succeeded) or gettext("no actor")
            text = gettext("One after the other, the actors {actors} do not all succeed in any order", actors=who)
            return Objection(text, *nearest((mine, serial) for serial in self._serial_ends(everyone)))
        (differences, expected), error = nearest(candidates), self._error_objection(end)
        differences += error.differences
        template = gettext_noop("No order of {actors}, one after the other, ends like this: {differences}")
        if mine.errors:
            template = gettext_noop(
                "No order of {actors}, one after the other, ends like this, with or without {failed}, which raised an "
                "error: {differences}"
            )
        text = gettext(
            template,
            actors=", ".join(self._names),
            failed=", ".join(mine.errors),
            differences=joined(differences, "; "),
        )
        return Objection(text, differences, expected)

    def _error_objection(self, end: RunResult) -> Objection:
        """Return what is wrong with the errors of a result whose rows are right: one that the race alone brings about.

        An actor that loses a conflict raises what says so, and its caller tries again or answers 409. Any other error
        that no serial order raises is a mistake that the race uncovers, even if the transaction left nothing behind.
        """
        errors = {
            name: error_label(error)
            for name, error in end.errors.items()
            if not (isinstance(error, self._raises) or is_conflict(error))
        }
        if not errors:
            return Objection()
        serial = {item for result in self._serial_ends(frozenset(self._names)) for item in result.errors.items()}
        for name, error in errors.items():
            if (name, error) not in serial:
                text = gettext(
                    "{actor} raised {error}, which it raises in no order one after the other",
                    actor=name,
                    error=describe_error(end.errors[name]),
                )
                return Objection(text, (gettext("{actor} raised {error}", actor=name, error=error),))
        return Objection()

    def _serial_ends(self, names: frozenset[str]) -> Iterator[Comparable]:
        """Yield the results of running these actors one after the other, in every order, those that are known first."""
        indexes = [index for index, name in enumerate(self._names) if name in names]
        # Serializability asks for some order, whichever: each may be run, which is affordable for the few actors of a
        # race.
        for order in sorted(itertools.permutations(indexes), key=lambda order: order not in self._serial_runs):
            if order not in self._serial_runs:
                self._serial_runs[order] = self._run_serially(order)
            if (end := self._serial_runs[order]) is not None:
                if order not in self._serial:
                    self._serial[order] = self.comparable(end)
                yield self._serial[order]


def plain_results(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the results other than None as text: plain values, also in lists and such, and of objects the class."""
    return {
        name: str(result) if _is_plain(result) else type(result).__name__
        for name, result in results.items()
        if result is not None
    }


def _is_plain(result: Any) -> bool:
    """Whether its text says what it is: a plain value, or a list, tuple or dictionary of such ones."""
    if isinstance(result, list | tuple | dict):
        return all(map(_is_plain, result.values() if isinstance(result, dict) else result))
    return result is None or isinstance(result, _PLAIN)


_CONFLICTS = ("40", "55P03", "57014")
"""First characters of SQLSTATEs that say that another transaction was in the way: rollbacks, NOWAIT, time-outs."""


def is_conflict(error: BaseException) -> bool:
    """Whether the error says that another transaction was in the way; a constraint says what is wrong with the row."""
    return isinstance(error, ConcurrencyError) or (sqlstate_of(error) or "").startswith(_CONFLICTS)


def describe_error(error: BaseException) -> str:
    """Return the error's class and the first line of its message."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}".rstrip(": ")


def error_name(error: BaseException) -> str:
    """Return the SQLSTATE, or the class of errors that have none."""
    return sqlstate_of(error) or type(error).__name__
