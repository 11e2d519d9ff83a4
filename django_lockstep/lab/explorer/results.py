"""Results of explorations: plain frozen data, which text, JSON and SVG only render."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from django_lockstep.lab.explorer.tables.final_state import FinalState, describe_state
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import joined

SCHEMA_VERSION = 3
"""Of `to_json`; incremented when a reader of the old form would misread the new one."""

Verdict = Literal["holds", "nothing found", "broken", "missed", "vacuous", "incomplete", "nondeterministic", "stuck"]


class Data:
    """A result that can be written as JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}  # type: ignore[call-overload]

    def to_json(self) -> str:
        """Return it as JSON with the schema's version."""
        return json.dumps(self.to_dict(), indent=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of one actor, from its start to its end: whatever goes to the server.

    Steps are statements of the ORM and of cursors of Django or the driver, ``executemany()``, COPY, each FETCH of
    ``iterator()``, statements to other database aliases and of ``on_commit()`` callbacks, COMMIT, ROLLBACK and
    savepoints. BEGIN is not a step: it goes with the first statement, and takes neither a lock nor a snapshot.
    """

    actor: str
    """The actor's name."""
    begun: int
    """Number of the move, from 0, that sent it."""
    ended: int
    """Number of the move during which it ended; later than ``begun`` where it waited."""
    sql: str
    """The statement with placeholders."""
    params: str
    """Its parameters, as text."""
    arguments: tuple[str, ...] = ()
    """Its parameters one by one, as text; none where it was sent for several sets of them."""
    transaction: int | None = None
    """Number of the actor's transaction, from 0; None for a statement outside of a transaction."""
    waited_for: tuple[str, ...] = ()
    """Actors that it waited for."""
    waited_on: str = ""
    """The lock that it waited for: a row of a table where that is known."""
    woken_by: str | None = None
    """The actor whose move ended the wait."""
    sqlstate: str | None = None
    """SQLSTATE of the error that it ended with, or the error's class."""
    rows: int | None = None
    """Rows returned or changed."""
    values: tuple[Mapping[str, str | None], ...] = ()
    """The first rows returned, in replayed runs."""
    source: str = ""
    """The line of the user's code that sent it, such as ``shows/booking.py:12``, where it is known."""
    constraint: str = ""
    """The constraint that refused it."""
    shared: bool = True
    """Whether another actor touches what it writes or locks, or writes or locks what it reads, as far as is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An error that an actor raised, with its message and line of code."""

    type: str
    """The error's class."""
    message: str
    """Its message."""
    source: str
    """The innermost line of the user's code that it went through."""

    def __str__(self) -> str:
        text = f"{self.type}: {self.message}".rstrip(": ")
        return f"{text} (at {self.source})" if self.source else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlock:
    """A cycle of waiting actors that the server broke."""

    actors: tuple[str, ...]
    """The actors in the cycle."""
    victim: str
    """The actor whose transaction the server ended."""
    detail: str
    """The server's description of the cycle, with actors' names instead of process numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRows:
    """What is seen of a table between two moves: the columns that change in the run, after the first one."""

    move: int
    """Number of the move, from 0, after which it is seen; -1 before the first one."""
    actor: str
    """Whose open transaction sees it; empty for what is committed, which all others see."""
    table: str
    """The table's name."""
    rows: tuple[Mapping[str, str | None], ...]
    """Its first rows, by the primary key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLock:
    """A lock that an actor holds between two moves, as the server has it."""

    move: int
    """Number of the move, from 0, after which it is held; -1 before the first one."""
    actor: str
    """Whose session holds it."""
    what: str
    """The row by its table and primary key, the table, or the advisory lock's key."""
    strength: str
    """Of a row, as its clause in SELECT: ``FOR KEY SHARE``. Of a table, as LOCK TABLE names it: ``SHARE``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """How a run ended, and by which schedule."""

    schedule: str
    """The actor that moved at each step, as letters."""
    errors: Mapping[str, str]
    """What actors raised, by name: SQLSTATE, or the class of errors that have none."""
    results: Mapping[str, str]
    """What actors returned, by name, where it is a plain value."""
    state: FinalState
    """The final state: what ``observe`` returned, as text, or the rows of each changed table."""
    holds: bool
    """Whether the run ended right."""
    reason: str = ""
    """Why it did not."""
    differences: tuple[str, ...] = ()
    """Without an invariant, how it differs from the nearest serial end, such as ``shop_seat: price 1 instead of 2``;
    and the deadlock, where none is allowed."""

    @property
    def end(self) -> str:
        """The state in a line."""
        return describe_state(self.state)

    @property
    def in_words(self) -> str:
        """How it ended, in a line: errors, state, and what is wrong with them."""
        errors = [_("{actor} raised {error}", actor=name, error=error) for name, error in self.errors.items()]
        return joined([*errors, self.end, self.reason or _("right")], "; ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(RunEnding, Data):
    """One run of a scenario under one schedule."""

    preemptions: int
    """How often an actor that could have gone on was interrupted."""
    steps: tuple[Step, ...]
    """Every statement, in the order in which they were sent."""
    deadlocks: tuple[Deadlock, ...] = ()
    """Deadlocks in the run."""
    unsteerable: int = 0
    """Moves that woke several actors whose order only the server knows."""
    raised: Mapping[str, Raised] = field(default_factory=dict)
    """What actors raised, with messages and lines of code."""
    seen: tuple[SeenRows, ...] = ()
    """Which rows are seen after each move, where that was asked for."""
    held: tuple[HeldLock, ...] = ()
    """Which locks are held after each move, where that was asked for; not those of rows that are not committed yet."""

    def __hash__(self) -> int:
        return hash(self.schedule)  # its other parts have no hash; what is told of a run is worked out once


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(RunEnding):
    """One way in which runs ended, whatever number of schedules led to it: how the simplest of them did."""

    count: int
    """How many schedules ended so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration(Data):
    """The result of exploring a scenario."""

    verdict: Verdict
    """``holds`` only if every interleaving, up to the order of independent steps, was run and ended right;
    ``nothing found`` if all schedules of a directed search did; ``missed`` if a random walk ended as no schedule of the
    reduced search does, so that the reduction is wrong about this race.

    If ``yields`` is not 0: every fair one, in which no actor asks for a lock or polls again and again while no other
    one moves.
    """
    reason: str
    """The verdict in a sentence."""
    actors: tuple[str, ...]
    """Names of the actors, in the order of their letters in schedules."""
    schedules: int
    """Schedules run to their end."""
    redundant: int
    """Schedules abandoned midway, because equivalent ones had been run."""
    unsteerable: int
    """Moves whose order of woken actors was left to the server although it may matter."""
    yields: int
    """How often an actor that was refused the same lock twice or polls had to yield to another one."""
    left: int
    """Branches known and not taken; each may lead to more."""
    outcomes: tuple[Outcome, ...]
    """Every distinct outcome, the wrong ones first, then by number of schedules."""
    deadlocks: int
    """Runs with at least one deadlock."""
    errors: Mapping[str, int]
    """Errors that statements ended with, by SQLSTATE, over all runs; retried ones included."""
    waits: Mapping[str, int]
    """Statements that waited for another actor, by their first word, over all runs."""
    seconds: float
    """Time taken."""
    opaque: tuple[str, ...] = ()
    """What in the schema made statements depend on everything, such as ``table a: its trigger t calls audit()``."""
    failure: Run | None = None
    """The simplest wrong run, replayed with the values read."""
    not_compared: tuple[str, ...] = ()
    """Columns, such as ``auth_user.password``, that differ when the same schedule is run again, and those to ignore."""
    directed: bool = False
    """Whether only schedules around writes were run."""
    audited: int = 0
    """Random walks beside the search that have ended as one of its schedules."""
    missed: str = ""
    """The outcome that a reduced search has missed, in words; empty if there is none."""
    not_explored: str = ""
    """What no schedule shows because it comes within one statement, such as a deadlock; empty if there is nothing."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """Each schedule that was run to its end, with the position of its outcome."""

    @property
    def ok(self) -> bool:
        """Whether the verdict is ``holds``."""
        return self.verdict == "holds"

    @property
    def passed(self) -> bool:
        """Whether the search came to its end and found nothing wrong; less than `ok` if it was directed."""
        return self.verdict in ("holds", "nothing found")
