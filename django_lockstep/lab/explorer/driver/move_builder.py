"""Describes a move when every actor stands, waits or is done again: what it touched, and whom it woke."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.driver.trace import StepRecord, Trace
from django_lockstep.lab.explorer.driver.wait_monitor import RunState
from django_lockstep.lab.explorer.effects.footprints import Event, Footprint, FootprintKey, Mode, dependent, only
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.effects.transactions import Transaction
from django_lockstep.lab.explorer.errors import Overtaken
from django_lockstep.lab.explorer.search.branches import Move
from django_lockstep.lab.explorer.search.waits import Contest, Waits, first_ones, met_by_chance, overtaken


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveBuilder:
    """Builds the moves of one run, and notes in its trace what only the server decided."""

    names: Sequence[str]
    """Of the actors."""
    state: RunState
    trace: Trace
    transaction: Callable[[int, Operation], Transaction]
    """Returns the open transaction of an actor's session in which it sends this."""
    in_turn: bool
    """Whether waiters have to go on in the order in which they came, wherever there is one."""

    def build(self, chosen: int, *, was_waiting: Waits) -> tuple[Move, Contest | None]:
        """Return the move that this actor has made, and which waiters competed when it had.

        Raises `Overtaken` if waiters must go on in turn and have not.
        """
        number, current = len(self.trace.moves), self.state.current
        ended = [i for i in current if i not in self.state.waiting and current[i].ended is None]
        # The chosen one first: what it has committed matters to those that it wakes.
        ended.sort(key=lambda index: (index != chosen, index))
        parts = {index: self._end(index, number, chosen, was_waiting) for index in ended}
        sent = self.state.current[chosen].operation
        statement = self.transaction(chosen, sent).statement(sent)
        # A step that only begins to wait is a move too: its place in the queue decides who gets the lock next.
        if chosen in self.state.waiting:
            parts[chosen] = self.transaction(chosen, sent).waiting(sent)
        woken = frozenset(parts.keys() & was_waiting.keys())
        contest = self._contest(parts, chosen, was_waiting=was_waiting)
        self._note_unsteerable(parts, chosen, was_waiting=was_waiting)
        if contest is not None:
            del parts[contest.turn.actor]
        return Move(
            actor=chosen,
            footprint=frozenset().union(*parts.values()),
            writes=statement.may_change,
            # But for those that an inserted row refers to.
            tables=frozenset(table for (table, _), mode in statement.locks if mode is not Mode.KEY_SHARE).union(
                table for table, _ in statement.writes
            ),
            woken=woken if contest is None else woken | contest.contenders,
            contested=contest is not None,
            waits_for=self.state.waiting.get(chosen, frozenset()),
            # Of the deadlocks that ended in this move.
            cycle=frozenset().union(
                *(cycle for cycle, victim, _ in self.trace.cycles if self.state.current[victim].ended == number)
            ),
        ), contest

    def _end(self, index: int, number: int, chosen: int, was_waiting: Waits) -> Footprint:
        """Note that the actor's step has ended with this move, and return what it touched."""
        step = self.state.current[index]
        step.ended = number
        waited = index in was_waiting or bool(step.waited_for)
        part = self.transaction(index, step.operation).footprint(step.operation, waited=waited)
        self._note_deadlock(index, step.operation)
        if index in was_waiting:
            step.woken_by = chosen
        return part

    # What the server decided

    def _contest(self, parts: Mapping[int, Footprint], chosen: int, *, was_waiting: Waits) -> Contest | None:
        """Return the contest to which the move has led, if there was one.

        Raises `Overtaken` where what follows belongs to another schedule, which the search runs anyway.
        """
        after = self.state.waiting
        winner, losers = self._competitors(parts, chosen, was_waiting=was_waiting)
        begun = {index: self.state.current[index].number for index in losers | winner}
        firsts = first_ones(begun, self.trace.moves)
        if losers:
            queue = {index: after[index] - was_waiting[index] for index in losers}
            in_turn = winner <= firsts and not any(begun[i] < begun[j] for i in queue for j in queue[i] & losers)
            in_turn = in_turn and not self._comes_too_late(losers, parts[chosen])
            # The actors that wait again may have queued in any order, too.
            by_chance = not in_turn or len(first_ones({i: begun[i] for i in losers}, self.trace.moves)) > 1
        else:
            in_turn = not overtaken(was_waiting, after)
            by_chance = met_by_chance(was_waiting, after)
        if self.in_turn and not in_turn:
            raise Overtaken("The server let waiters for a row go on in another order than they came, or not at once")
        self.trace.unsteerable += by_chance
        if not (in_turn and len(firsts) > 1):
            return None
        (index,) = winner
        self.state.current[index].ended = len(self.trace.moves) + 1
        return Contest(
            turn=Move(actor=index, footprint=parts[index]),
            contenders=losers | winner,
            others=tuple(sorted(firsts - winner)),
        )

    def _competitors(
        self, parts: Mapping[int, Footprint], chosen: int, *, was_waiting: Waits
    ) -> tuple[frozenset[int], frozenset[int]]:
        """Return who got the row for which it waited, and who still waits for that and might have got it instead.

        Both are empty unless one actor got one row alone of which the move published a new version: waiters for other
        locks keep the order of their queue.
        """
        rows = {index: self._row_wanted(index) for index in was_waiting}
        got = [i for i in parts if i in was_waiting and self.state.current[i].operation.error is None]
        for winner in got:
            row = rows[winner]
            if not _publishes(parts[chosen], row) or [rows[i] for i in got].count(row) > 1:
                continue
            same = {i for i in self.state.waiting.keys() & was_waiting.keys() if rows[i] == row}
            # If a third transaction holds the row too, the loser could not have got it. The chosen one has committed.
            losers = frozenset(i for i in same if self.state.waiting[i] <= same | {winner, chosen})
            if losers:
                return frozenset({winner}), losers
        return frozenset(), frozenset()

    def _comes_too_late(self, losers: Collection[int], commit: Footprint) -> bool:
        """Whether one of them is refused the row in any case, which it does not know yet.

        At one snapshot it is refused once it looks at the row, unless the winner has the new version by then: a SELECT
        that locks waits for that one, too, and is refused afterwards.
        """
        sent = {i: self.state.current[i].operation for i in losers}
        return any(
            _publishes(commit, self._row_wanted(i)) and self.transaction(i, operation).at_one_snapshot(operation)
            for i, operation in sent.items()
        )

    def _row_wanted(self, actor: int) -> FootprintKey | None:
        operation = self.state.current[actor].operation
        return self.transaction(actor, operation).statement(operation).row_awaited

    def _note_unsteerable(self, parts: Mapping[int, Footprint], chosen: int, *, was_waiting: Waits) -> None:
        """Note that only the server decides the order; ``parts`` are the footprints of ended steps."""
        woken = {index: self.state.current[index] for index in parts if index in was_waiting}
        # Who waited for one alone, which has failed now, went on after that one.
        after = {(i, j) for i in woken for j in woken if was_waiting[j] == {i} and woken[i].operation.error is not None}
        pairs = (pair for pair in itertools.combinations(woken, 2) if not after & {pair, pair[::-1]})
        ends = [(chosen, woken), *((failed, (index,)) for failed, index in after)]
        self.trace.unsteerable += any(self._order_matters(woken[i], woken[j]) for i, j in pairs) or any(
            _refuses_by_chance(parts[ended], [parts[i] for i in let_go if not self._comes_too_late([i], parts[chosen])])
            for ended, let_go in ends
        )
        self.state.contended = self.state.contended or self.trace.unsteerable > 0

    def _order_matters(self, first: StepRecord, second: StepRecord) -> bool:
        """Whether it may matter which of two woken steps went on first."""
        if all(_does_nothing(step.operation) for step in (first, second)):
            return False
        prints = [self.transaction(woken.actor, woken.operation).waiting(woken.operation) for woken in (first, second)]
        return dependent(*prints)

    # Deadlocks

    def _note_deadlock(self, victim: int, operation: Operation) -> None:
        if operation.error is None or sqlstate_of(operation.error) != "40P01":
            return
        # Django raises an error of its own from the driver's, which alone has the server's detail.
        driver_error = operation.error if hasattr(operation.error, "diag") else operation.error.__cause__
        detail = getattr(getattr(driver_error, "diag", None), "message_detail", None) or ""
        by_pid = {step.operation.pid: index for index, step in self.state.current.items()}
        cycle = frozenset(by_pid[pid] for pid in map(int, re.findall(r"[Pp]rocess (\d+)", detail)) if pid in by_pid)
        for pid, index in by_pid.items():
            # Process numbers are different in every run, names are not.
            detail = re.sub(rf"\b[Pp]rocess {pid}\b", self.names[index], detail)
        self.trace.cycles.append((cycle | {victim}, victim, detail))


def _publishes(commit: Footprint, row: FootprintKey | None) -> bool:
    return row is not None and Event("publish", row) in commit


def _refuses_by_chance(ending: Footprint, woken: Collection[Footprint]) -> bool:
    """Whether the server alone decides if a waiter that a transaction's end wakes is refused.

    The server releases row locks a moment before it notes that a transaction was rolled back, or has written
    nothing. A quick waiter may still count it as one of the transactions that make the waiter a pivot, of which a
    third one has committed.
    """
    ends_without_writing = only({"ssi step"}, ending) and only({"release"}, ending) and not only({"publish"}, ending)
    return bool(ends_without_writing) and any(only({"ssi danger"}, waiter) for waiter in woken)


def _does_nothing(woken: Operation) -> bool:
    """Whether a step that has waited has changed nothing, in whichever order the waiting steps went on.

    At one snapshot all that waited for a writer fail with its COMMIT; else they find that the key exists now, or that
    the row does not.
    """
    if woken.error is not None:
        return sqlstate_of(woken.error) in {"40001", "23505", "23P01"}
    return woken.rows == 0
