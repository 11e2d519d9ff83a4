"""An exploration session: runs a scenario on a database that is put back each time, and judges how it ended."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from django.db import DatabaseError, connections
from django.db.backends.base.base import NO_DB_ALIAS, BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.driver.controller import Controller
from django_lockstep.lab.explorer.driver.environment import RowCaches, SetupMonitor, describe_leftovers
from django_lockstep.lab.explorer.driver.server import Server
from django_lockstep.lab.explorer.driver.trace import StepRecord, Trace
from django_lockstep.lab.explorer.errors import (
    ExplorerError,
    Nondeterminism,
    NotExplorable,
    Overtaken,
    RestartSearch,
    TooManySteps,
)
from django_lockstep.lab.explorer.options import STEP_TIMEOUT, Options
from django_lockstep.lab.explorer.oracle import Oracle, RunResult, describe_error, error_name, plain_results
from django_lockstep.lab.explorer.requests import keep_signal_receivers
from django_lockstep.lab.explorer.results import Deadlock, Run
from django_lockstep.lab.explorer.search.branches import Schedule
from django_lockstep.lab.explorer.search.schedules import Follow, write_schedule
from django_lockstep.lab.explorer.steps import Masker, build_raised, build_steps
from django_lockstep.lab.explorer.tables.databases import (
    require_committed_data,
    require_connections,
    require_disposable,
)
from django_lockstep.lab.explorer.tables.final_state import StateRow, label_text
from django_lockstep.lab.explorer.watches import Watch
from django_lockstep.lab.scenario import Scenario
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import joined

_Result = TypeVar("_Result")


Learned = frozenset[tuple[str, ...]]
"""What runs have shown of the code under test, and other sessions have to know: facts, each with a word for what first.

``ignored`` columns, ``polling`` statements of loops; of tables and statements ``catalog``, an alias, a fact there.
"""


class ExplorationSession:
    """Runs a scenario under one schedule after another; fixture by `exploration_session`."""

    def __init__(self, scenario: Scenario, options: Options) -> None:
        self.scenario = scenario
        self.options = options
        self.oracle = Oracle(scenario, ignore=options.ignore, raises=options.raises, run_serially=self._run_serially)
        self.caches: RowCaches
        self.marks_keys = True
        """Whether keys of new rows are like no other number; not where a run is to be told with its numbers."""
        self._identity = _identity(connections[options.database])
        self._servers: dict[tuple[str, ...], Server] = {}
        self._by_alias: dict[str, Server] = {}
        self._detailed = False
        self._leftovers = ""
        self.names = tuple(scenario.actors)
        self.controller = Controller(
            self.names,
            server=self.server,
            # Connecting is not a step, and may take longer than one; it comes before any verdict.
            step_timeout=max(options.step_timeout, STEP_TIMEOUT),
            max_steps=options.max_steps,
        )
        self.monitor: SetupMonitor
        self._actors = {actor.thread: actor for actor in self.controller.actors}
        self._thread = threading.current_thread()
        self._known = frozenset(threading.enumerate())
        self._refused: list[ExplorerError] = []
        """Why sessions that were opened keep the race from being explored."""

    def connected(self, sender: Any, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        """Install hooks on a connection that was just opened; note one whose statements cannot be scheduled."""
        thread = threading.current_thread()
        # Connections without a database make and drop databases.
        if connection.vendor != "postgresql" or (connection.alias == NO_DB_ALIAS and thread is self._thread):
            return
        if (server := self._servers.get(_identity(connection))) is not None:
            server.sessions.note_opened(connection.connection.info.backend_pid)
        # Code can also open connections of its own, by `connections[alias].copy()` for one, which then are not steered.
        own = connections[connection.alias] is connection
        if thread in self._actors and own:
            try:
                self._require_disposable(connection)
            except NotExplorable as error:
                connection.close()
                self._refused.append(error)  # the code under test may catch it
                raise
            self._actors[thread].connected(connection)
        # A thread that the code under test has started, or a second connection of an actor: its statements pass no
        # gate.
        elif thread not in self._known or thread in self._actors:
            opened = f"Thread {thread.name!r} opened its own connection to {connection.alias!r}"
            self._refused.append(Nondeterminism(f"{opened}, so that its statements are not scheduled"))
        elif thread is self._thread and own and hasattr(self, "monitor"):
            self.monitor.connected(connection)

    def _require_disposable(self, connection: BaseDatabaseWrapper) -> None:
        """Raise `NotExplorable` for a database whose rows may be needed: what is confirmed is one database."""
        is_confirmed = self.options.database_is_mine and _identity(connection) == self._identity
        if not is_confirmed:
            require_disposable(connection)

    def server(self, alias: str) -> Server:
        """Return the explorer's `Server` for the alias; aliases of one database share it."""
        if alias not in self._by_alias:
            identity = _identity(connections[alias])
            if identity not in self._servers:
                self._servers[identity] = Server(alias)
            self._by_alias[alias] = self._servers[identity]
        return self._by_alias[alias]

    def play(
        self,
        schedule: Schedule,
        *,
        expected: Trace | None = None,
        in_turn: bool = False,
    ) -> tuple[Any, Trace]:
        """Put everything back, set up, and run the actors; return what ``set_up`` returned, and the trace.

        Raises as `Controller.run` does.
        """
        learned = self.learned_facts
        if expected is not None and expected.learned_facts != learned:
            expected = None  # the footprints of its steps were incomplete
        fixture = self.set_up()
        functions = list(self.scenario.actors.values())
        try:
            trace = self.controller.run(functions, fixture, schedule=schedule, expected=expected, in_turn=in_turn)
        except Nondeterminism as error:
            # What a statement touches is compared as well: it may have been learned in this run that it is more.
            if self.learned_facts > learned and not isinstance(error, Overtaken):
                raise RestartSearch from None
            raise
        trace.learned_facts = learned
        if self._refused:
            raise self._refused[0]
        for actor in self.controller.actors:
            if isinstance(actor.error, NotExplorable):
                raise actor.error
        return fixture, trace

    def run_until_stable(self, attempt: Callable[[], _Result]) -> _Result:
        """Call ``attempt`` again as long as it raises `RestartSearch`, and return its result."""
        while True:
            try:
                return attempt()
            except RestartSearch:
                self.controller.abandon()

    def set_up(self) -> Any:
        """Put everything back, and return what the scenario's ``set_up`` returns."""
        _for_servers(self, Server.put_back)
        self.caches.restore()
        self.monitor.before_actors = True
        try:
            with self._naming_holders("set_up"):
                fixture = self.scenario.set_up()
        finally:
            self.monitor.before_actors = False
        # Not before: rows of the set-up have the keys that they would have anyway, and the same in every run.
        for server in self.servers if self.marks_keys else ():
            server.tables.mark_keys()
        # After set_up, which may have cleared them.
        self._leftovers = describe_leftovers()
        return fixture

    @contextmanager
    def _naming_holders(self, code: str) -> Iterator[None]:
        """Raise `ExplorerError` with who may hold the lock for which this code of the scenario has waited too long."""
        try:
            yield
        except DatabaseError as error:
            if sqlstate_of(error) != "55P03":
                raise
            holders = {server.holders() for server in self.servers}
            raise ExplorerError(
                f"The scenario's {code} waited {self.options.step_timeout:g} s for a lock, or was refused one, and no "
                f"actor was running: {describe_error(error)}. {'. '.join(holders)}"
            ) from error

    def warm_up(self) -> tuple[RunResult, Trace]:
        """Run the actors one after the other, to fill caches as in a process that has run for a while."""
        fixture, trace = self.play(Follow(()))
        return self.result(fixture, trace), trace

    @property
    def servers(self) -> Sequence[Server]:
        """The explorer's sessions on all databases that were used."""
        return list(self._servers.values())

    @property
    def learned_facts(self) -> int:
        """How many facts on which footprints depend runs have shown."""
        return sum(len(server.catalog.learned) for server in self.servers)

    @property
    def learned(self) -> Learned:
        """What runs have shown until now."""
        discoveries = [("catalog", server.alias, *fact) for server in self.servers for fact in server.catalog.learned]
        ignored = (("ignored", column) for column in self.oracle.not_compared)
        return frozenset([*discoveries, *ignored, *(("polling", template) for template in self.controller.polling)])

    def learn(self, learned: Learned) -> None:
        """Take over what another session's runs have shown; earlier runs of this one may be invalid then."""
        self.oracle.ignore([name for kind, name, *_ in learned if kind == "ignored"])
        self.controller.polling.update(name for kind, name, *_ in learned if kind == "polling")
        for kind, alias, *fact in learned:
            if kind == "catalog":
                self.server(alias).catalog.learn(*fact)

    def result(self, fixture: Any, trace: Trace) -> RunResult:
        """Return the result of the run that was just played."""
        actors = self.controller.actors
        result = self._run_result(
            fixture,
            trace.steps,
            results={actor.name: actor.result for actor in actors if actor.error is None},
            errors={actor.name: actor.error for actor in actors if actor.error is not None},
        )
        # To an invariant that is given keys of new rows, the order of the numbers may matter.
        texts = plain_results(result.results).values()
        if self.scenario.judges_results and any(label_text(text, result.labels) != text for text in texts):
            for server in self.servers:
                server.catalog.note("read", None)
        return result

    def judge(self, end: RunResult, trace: Trace) -> Run:
        """Return the run as a `Run`, with the verdict on its result."""
        leftovers = self._leftovers  # the judging of an end may run actors
        with self._naming_holders("invariant"):
            objection = self.oracle.objection(end)
        deadlocked = self._deadlocked(trace)
        reason = objection.text or deadlocked
        if reason and leftovers:
            reason = joined([reason, leftovers], ". ")
        masker = Masker()
        detailed = bool(reason) or self._detailed
        steps = build_steps(trace, self.names, masker) if detailed else ()
        comparable = self.oracle.comparable(end)
        masker.mask_state(objection.expected)
        state = masker.mask_state(comparable.state)
        return Run(
            schedule=write_schedule(trace.actors),
            preemptions=trace.preemptions,
            steps=steps,
            errors={name: error_name(error) for name, error in end.errors.items()},
            results={name: masker.mask(text) for name, text in comparable.results.items()},
            state=state,
            holds=not reason,
            reason=masker.mask(reason),
            differences=tuple(map(masker.mask, (*objection.differences, *filter(None, [deadlocked])))),
            deadlocks=tuple(
                Deadlock(actors=tuple(self.names[i] for i in sorted(cycle)), victim=self.names[victim], detail=detail)
                for cycle, victim, detail in trace.cycles
            ),
            unsteerable=trace.unsteerable,
            raised=build_raised(end.errors, masker) if detailed else {},
        )

    def _deadlocked(self, trace: Trace) -> str:
        """Return what is wrong if deadlocks are not allowed and there was one; otherwise nothing."""
        if not (self.options.no_deadlock and trace.cycles):
            return ""
        cycle, victim, _detail = trace.cycles[0]
        actors = ", ".join(self.names[index] for index in sorted(cycle))
        return _(
            "Deadlock of {actors}, in which the server ended the transaction of {actor}",
            actors=actors,
            actor=self.names[victim],
        )

    def keep_values(self) -> None:
        """From now on keep the values read, the rows waited for, and the steps of runs that end right."""
        self._detailed = True
        for actor in self.controller.actors:
            actor.detailed = True

    @contextmanager
    def watching(self, trace: Trace) -> Iterator[Watch]:
        """In the block, note after each move which rows of the tables that this run has written are seen, and locks."""
        watch = Watch(self.controller.actors, run=trace, servers=self._by_alias)
        self.controller.look = watch.look
        try:
            yield watch
        finally:
            self.controller.look = None

    def _run_result(
        self,
        fixture: Any,
        steps: Iterable[StepRecord],
        *,
        results: Mapping[str, Any],
        errors: Mapping[str, BaseException],
    ) -> RunResult:
        makers: dict[str, dict[int, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
        for step in steps:
            if table := step.operation.numbered_in:
                alias = self.server(step.operation.alias).alias
                makers[alias][table].update(dict.fromkeys(step.operation.numbered, self.names[step.actor]))
        state: dict[str, Sequence[StateRow]] = {}
        labels: dict[str, str] = {}
        observe = self.scenario.observe
        for server in self.servers:
            if observe is not None and server.alias not in makers:
                continue
            changed, labels_there = server.tables.changed_rows(makers[server.alias])
            labels |= labels_there
            prefix = "" if server.alias == self.options.database else f"{server.alias}."
            state |= {f"{prefix}{table}": rows for table, rows in changed.items()}
        if observe is None:
            return RunResult(fixture=fixture, state=state, results=results, errors=errors, labels=labels)
        with self._naming_holders("observe"):
            text = str(observe(fixture))
        return RunResult(fixture=fixture, state=text, results=results, errors=errors, labels=labels)

    def _run_serially(self, order: Sequence[int]) -> RunResult | None:
        """Run the actors with these indexes one after the other; None where one does not end by itself."""
        fixture = self.set_up()
        steps: list[StepRecord] = []
        results: dict[str, Any] = {}
        errors: dict[str, BaseException] = {}
        for index in order:
            # The others idle instead of being left out, so that serial runs take the same path as races do.
            functions = [function if i == index else _idle for i, function in enumerate(self.scenario.actors.values())]
            # Without the time limit: what a run is compared with has to be known.
            deadline, self.controller.deadline = self.controller.deadline, None
            try:
                trace = self.controller.run(functions, fixture, schedule=Follow(()))
            except TooManySteps:
                self.controller.abandon()
                return None
            finally:
                self.controller.deadline = deadline
            actor = self.controller.actors[index]
            if actor.error is not None:
                errors[actor.name] = actor.error
            else:
                results[actor.name] = actor.result
            steps += trace.steps
        results = {name: results[name] for name in self.names if name in results}
        return self._run_result(fixture, steps, results=results, errors=errors)


@contextmanager
def exploration_session(scenario: Scenario, options: Options) -> Iterator[ExplorationSession]:
    """Open an `ExplorationSession`; at its end no lock and no row is left.

    Raises `NotExplorable` inside a transaction, on databases other than PostgreSQL, on one whose rows may be needed,
    while another explorer is running, and for a pool that is too small.
    """
    database = options.database
    require_committed_data(connections[database])
    if not options.database_is_mine:
        require_disposable(connections[database])
    require_connections(connections[database], actors=len(scenario.actors))
    if scenario.prepare is not None:
        scenario.prepare()
    with ExitStack() as stack:
        session = ExplorationSession(scenario, options)
        # The order matters: callbacks run in reverse, so actors are unwound, then tables are put back, then sessions
        # closed.
        stack.callback(_for_servers, session, Server.close)
        stack.enter_context(keep_signal_receivers())
        connection_created.connect(session.connected, weak=False)
        stack.callback(connection_created.disconnect, session.connected)
        stack.callback(_for_servers, session, Server.put_back)
        stack.callback(session.controller.close)
        stack.callback(_for_servers, session, Server.end_interrupted)
        # The server's own sessions are opened while the actors connect.
        await_actors = session.controller.connect(database)
        session.server(database)
        session.monitor = SetupMonitor(
            session.server, require_disposable=session._require_disposable, lock_timeout=options.step_timeout
        )
        stack.callback(session.monitor.close)
        await_actors()
        # From here on every session that Django did not open counts as untracked.
        _for_servers(session, lambda server: server.sessions.mark_known())
        session.controller.monitor.step_timeout = options.step_timeout
        session.caches = RowCaches(database, session.server(database).catalog)
        stack.callback(session.caches.close)
        yield session


def _identity(connection: BaseDatabaseWrapper) -> tuple[str, ...]:
    # Not the alias: two aliases may lead to one database, whose tables are copied and put back once.
    return tuple(str(connection.settings_dict[part]) for part in ("HOST", "PORT", "NAME"))


def _for_servers(session: ExplorationSession, action: Callable[[Server], None]) -> None:
    for server in session.servers:
        action(server)


def _idle(fixture: Any) -> None:
    """Do nothing, instead of an actor that does not take part."""
