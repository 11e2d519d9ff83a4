"""The surroundings of a run: the database as it was, the scenario's set-up on it, and what the end is worth."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from accounts.lab.explorer.controller import Chooser, Controller, Trace
from accounts.lab.explorer.errors import NotExplorable
from accounts.lab.explorer.hooks import Hooks
from accounts.lab.explorer.operations import Operation
from accounts.lab.explorer.results import Deadlock, Run, Step
from accounts.lab.explorer.schedules import Follow, write_schedule
from accounts.lab.explorer.search import Move
from accounts.lab.explorer.server import Server
from accounts.lab.explorer.sql import understood
from accounts.lab.scenario import Scenario
from accounts.locking.errors import sqlstate_of

__all__ = ["Stage", "stage"]

_PLAIN = (bool, int, Decimal, type(None))


class Stage:
    """Runs a scenario under one schedule after another; made by `stage`."""

    def __init__(self, scenario: Scenario, *, database: str, patience: float, victim: str) -> None:
        self.scenario = scenario
        self._database = database
        self._servers: dict[tuple[str, ...], Server] = {}
        self._serial: dict[frozenset[str], set[str]] = {}
        self.detailed = False
        self.server(database)
        self.names = tuple(scenario.actors)
        self.controller = Controller(self.names, server=self.server, patience=patience, victim=victim)

    def server(self, alias: str) -> Server:
        """Return the view of the alias's database from outside; aliases of one database share it."""
        settings = connections[alias].settings_dict
        identity = tuple(str(settings[part]) for part in ("HOST", "PORT", "NAME"))
        if identity not in self._servers:
            self._servers[identity] = Server(alias)
        return self._servers[identity]

    def play(
        self,
        chooser: Chooser,
        *,
        expected: Trace | None = None,
        record: Callable[[Move], None] = lambda move: None,
    ) -> tuple[Any, Trace]:
        """Put everything back, set up, and run the actors; return what the set-up made, and what happened."""
        self.reset()
        made = self.scenario.set_up()
        functions = list(self.scenario.actors.values())
        return made, self.controller.run(functions, made, chooser=chooser, expected=expected, record=record)

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
            steps=tuple(_steps(trace, self.names)),
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
        """Keep from now on what statements return, and on which rows they wait."""
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
def _watched(place: Stage) -> Iterator[None]:
    """Copy tables before the main thread writes them, which sets up, and let it not wait for the disk."""
    with ExitStack() as stack:
        for wrapper in connections.all():
            if wrapper.vendor == "postgresql":
                wrapper.ensure_connection()
                hooks = Hooks(wrapper, _Watch(place.server(wrapper.alias)))
                stack.callback(hooks.remove)
                before = hooks.setting("synchronous_commit")
                hooks.send_aside("SET synchronous_commit = off")
                stack.callback(hooks.send_aside, f"SET synchronous_commit = {before}")
        yield


class _Watch:
    """A gate that stops nobody."""

    detailed = False

    def __init__(self, server: Server) -> None:
        self._server = server

    def before(self, operation: Operation) -> None:
        """Copy what is about to be written for the first time."""
        catalog = self._server.catalog
        statement = understood(operation, catalog)
        if statement.kind == "UNKNOWN":
            self._server.save(catalog.ordinary())
        self._server.save(name for table, _ in statement.writes for name in catalog.changed_with(table))

    def after(self, operation: Operation) -> None:
        """Do nothing."""


@contextmanager
def stage(scenario: Scenario, *, database: str, patience: float, victim: str) -> Iterator[Stage]:
    """Open what runs need, and leave nothing behind: no connection, lock, thread or row.

    Raises `NotExplorable` inside a transaction and on other databases than PostgreSQL.
    """
    _require_committed_data(connections[database])
    with ExitStack() as stack:
        place = Stage(scenario, database=database, patience=patience, victim=victim)
        actors = {actor.thread: actor for actor in place.controller.actors}

        def connected(sender: Any, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
            actor = actors.get(threading.current_thread())
            if actor is not None and connection.vendor == "postgresql":
                actor.connected(connection)

        connection_created.connect(connected, weak=False)
        stack.callback(_close_servers, place)
        stack.callback(connection_created.disconnect, connected)
        stack.callback(place.reset)
        stack.callback(place.controller.close)
        stack.enter_context(_watched(place))
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
    for begun in trace.steps:
        operation = begun.operation
        yield Step(
            actor=names[begun.actor],
            begun=begun.number,
            ended=len(trace.moves) - 1 if begun.ended is None else begun.ended,
            sql=operation.template,
            params="" if operation.params in (None, (), []) else str(operation.params),
            waited_for=tuple(names[index] for index in begun.waited_for),
            waited_on=begun.waited_on,
            woken_by=None if begun.woken_by is None else names[begun.woken_by],
            sqlstate=None if operation.error is None else _error_name(operation.error),
            rows=operation.rows,
            values=operation.values,
        )
