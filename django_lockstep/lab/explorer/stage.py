"""The surroundings of a run: the database as it was, the scenario's set-up on it, and what the end is worth."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.controller import Chooser, Controller
from django_lockstep.lab.explorer.databases import require_disposable
from django_lockstep.lab.explorer.errors import Nondeterminism, NotExplorable
from django_lockstep.lab.explorer.results import Deadlock, Run, Step
from django_lockstep.lab.explorer.schedules import Follow, write_schedule
from django_lockstep.lab.explorer.search import Move
from django_lockstep.lab.explorer.server import Server
from django_lockstep.lab.explorer.trace import Trace
from django_lockstep.lab.explorer.watch import Watch
from django_lockstep.lab.scenario import Scenario

__all__ = ["PATIENCE", "Stage", "stage"]

PATIENCE = 10.0
"""Seconds that one step may take without waiting for another actor."""

_PLAIN = (bool, int, Decimal, type(None))


class Stage:
    """Runs a scenario under one schedule after another; made by `stage`."""

    def __init__(self, scenario: Scenario, *, database: str, patience: float, victim: str) -> None:
        self.scenario = scenario
        self._database = database
        self._servers: dict[tuple[str, ...], Server] = {}
        self._by_alias: dict[str, Server] = {}
        self._serial: dict[frozenset[str], set[str]] = {}
        self._detailed = False
        self.names = tuple(scenario.actors)
        self.controller = Controller(self.names, server=self.server, patience=patience, victim=victim)
        self.watch: Watch | None = None
        self._actors = {actor.thread: actor for actor in self.controller.actors}
        self._thread = threading.current_thread()
        self._known = frozenset(threading.enumerate())
        self._strangers: list[str] = []

    def connected(self, sender: Any, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        """Put hooks into a connection that was just opened; note one whose statements cannot be scheduled."""
        thread = threading.current_thread()
        if connection.vendor != "postgresql":
            return
        own = connections[connection.alias] is connection
        if thread in self._actors and own:
            self._actors[thread].connected(connection)
        elif thread not in self._known or thread in self._actors:
            self._strangers.append(f"Thread {thread.name!r} opened a connection to {connection.alias!r} of its own")
        elif thread is self._thread and own and self.watch is not None:
            self.watch.connected(connection)

    def server(self, alias: str) -> Server:
        """Return the view of the alias's database from outside; aliases of one database share it."""
        if alias not in self._by_alias:
            settings = connections[alias].settings_dict
            identity = tuple(str(settings[part]) for part in ("HOST", "PORT", "NAME"))
            if identity not in self._servers:
                self._servers[identity] = Server(alias)
            self._by_alias[alias] = self._servers[identity]
        return self._by_alias[alias]

    def play(
        self,
        chooser: Chooser,
        *,
        expected: Trace | None = None,
        record: Callable[[Move], None] = lambda move: None,
        in_turn: bool = False,
    ) -> tuple[Any, Trace]:
        """Put everything back, set up, and run the actors; return what the set-up made, and what happened.

        Raises as `Controller.run` does.
        """
        self.reset()
        made = self.scenario.set_up()
        functions = list(self.scenario.actors.values())
        trace = self.controller.run(functions, made, chooser=chooser, expected=expected, record=record, in_turn=in_turn)
        if self._strangers:
            raise Nondeterminism(f"{self._strangers[0]}, so that its statements are not scheduled")
        return made, trace

    def reset(self) -> None:
        """Put back every table that was written."""
        for server in self._servers.values():
            server.reset()

    def judged(self, made: Any, trace: Trace) -> Run:
        """Return the ended run with its end compared with what has to hold."""
        errors, results = self._errors(), self._results()
        state = self._state(made)
        reason = self._objection(made, state, errors)
        return Run(
            schedule=write_schedule(trace.actors),
            preemptions=trace.preemptions,
            steps=tuple(_steps(trace, self.names)) if reason or self._detailed else (),
            errors=errors,
            results=results,
            state=state,
            holds=not reason,
            reason=reason,
            deadlocks=tuple(
                Deadlock(actors=tuple(self.names[i] for i in sorted(cycle)), victim=self.names[victim], detail=detail)
                for cycle, victim, detail in trace.cycles
            ),
            unsteerable=trace.unsteerable,
        )

    def keep_values(self) -> None:
        """Keep from now on what statements return, on which rows they wait, and the steps of runs that end right."""
        self._detailed = True
        for actor in self.controller.actors:
            actor.detailed = True

    def _errors(self) -> dict[str, str]:
        return {actor.name: _error_name(actor.error) for actor in self.controller.actors if actor.error is not None}

    def _results(self) -> dict[str, str]:
        return {
            actor.name: str(actor.result)
            for actor in self.controller.actors
            if actor.error is None and actor.result is not None and isinstance(actor.result, _PLAIN)
        }

    def _state(self, made: Any) -> str:
        if self.scenario.observe is not None:
            return str(self.scenario.observe(made))
        return "; ".join(server.content() for server in self._servers.values())

    def _objection(self, made: Any, state: str, errors: Mapping[str, str]) -> str:
        """Return what is wrong with the end, or nothing."""
        if self.scenario.invariant is None:
            return self._serial_objection(state, errors)
        try:
            return "" if self.scenario.invariant(made) else f"The invariant does not hold; the end is {state}"
        except AssertionError as error:
            return f"The invariant does not hold: {error}"

    def _serial_objection(self, state: str, errors: Mapping[str, str]) -> str:
        succeeded = frozenset(self.names).difference(errors)
        if succeeded not in self._serial:
            self._serial[succeeded] = set(self._serial_ends(succeeded))
        if state in self._serial[succeeded]:
            return ""
        who = ", ".join(sorted(succeeded)) or "nobody"
        return f"No order of {who}, one after the other, ends like this: {state}"

    def _serial_ends(self, names: frozenset[str]) -> Iterator[str]:
        """Yield the ends that the actors reach when each runs alone, in every order."""
        everyone = list(self.scenario.actors.values())
        indexes = [index for index, name in enumerate(self.names) if name in names]
        for order in itertools.permutations(indexes):
            self.reset()
            made = self.scenario.set_up()
            for index in order:
                alone = [function if i == index else _idle for i, function in enumerate(everyone)]
                self.controller.run(alone, made, chooser=Follow(()))
            yield self._state(made)


@contextmanager
def stage(
    scenario: Scenario, *, database: str, patience: float, victim: str, database_is_mine: bool
) -> Iterator[Stage]:
    """Open what runs need, and leave nothing behind: no connection, lock, thread or row.

    Raises `NotExplorable` inside a transaction, on other databases than PostgreSQL, on one whose rows somebody may
    need, and where another explorer is at work.
    """
    _require_committed_data(connections[database])
    if not database_is_mine:
        require_disposable(database)
    with ExitStack() as stack:
        # A step's patience is not for connecting, which is no step and comes before any verdict.
        place = Stage(scenario, database=database, patience=max(patience, PATIENCE), victim=victim)
        stack.callback(_close_servers, place)
        connection_created.connect(place.connected, weak=False)
        stack.callback(connection_created.disconnect, place.connected)
        stack.callback(place.reset)
        stack.callback(place.controller.close)
        await_actors = place.controller.connect(database)
        place.server(database)
        place.watch = Watch(place.server)
        stack.callback(place.watch.close)
        await_actors()
        place.controller.patience = patience
        yield place


def _close_servers(place: Stage) -> None:
    for server in place._servers.values():
        server.close()


def _require_committed_data(connection: BaseDatabaseWrapper) -> None:
    if connection.vendor != "postgresql":
        raise NotExplorable(f"The explorer needs PostgreSQL; database {connection.alias!r} is {connection.vendor}")
    if connection.in_atomic_block:
        raise NotExplorable(
            f"A transaction is open on database {connection.alias!r}, so that other connections would not see the rows "
            "of the set-up. In pytest use @pytest.mark.django_db(transaction=True), in Django's own tests "
            "TransactionTestCase."
        )


def _idle(made: Any) -> None:
    """Do nothing, in place of an actor that does not take part."""


def _error_name(error: BaseException) -> str:
    return sqlstate_of(error) or type(error).__name__


def _steps(trace: Trace, names: tuple[str, ...]) -> Iterator[Step]:
    blocks: dict[tuple[int, str], int] = {}
    counts: Counter[int] = Counter()
    for begun in trace.steps:
        operation = begun.operation
        connection = (begun.actor, operation.alias)
        if connection not in blocks and (operation.in_transaction or not operation.ends_idle):
            blocks[connection] = counts[begun.actor]
            counts[begun.actor] += 1
        transaction = blocks.get(connection)
        if operation.ends_idle:
            blocks.pop(connection, None)
        yield Step(
            actor=names[begun.actor],
            begun=begun.number,
            ended=len(trace.moves) - 1 if begun.ended is None else begun.ended,
            sql=operation.template,
            params="" if operation.params in (None, (), []) else str(operation.params),
            arguments=operation.arguments,
            transaction=transaction,
            waited_for=tuple(names[index] for index in begun.waited_for),
            waited_on=begun.waited_on,
            woken_by=None if begun.woken_by is None else names[begun.woken_by],
            sqlstate=None if operation.error is None else _error_name(operation.error),
            rows=operation.rows,
            values=operation.values,
        )
