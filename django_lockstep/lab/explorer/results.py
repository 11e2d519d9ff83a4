"""What an exploration found: plain frozen data that text, JSON and SVG only render."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from django_lockstep.lab.explorer.final_state import FinalState, as_text

__all__ = ["SCHEMA_VERSION", "Deadlock", "Exploration", "Outcome", "Raised", "Run", "Step", "Verdict"]

SCHEMA_VERSION = 2
"""Of `to_json`; rises when a reader of the old form would misread the new one."""

Verdict = Literal["holds", "broken", "vacuous", "incomplete", "nondeterministic", "stuck"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One statement of one actor, from its start to its end."""

    actor: str
    """Name of the actor."""
    begun: int
    """Number of the move, from 0, that sent it."""
    ended: int
    """Number of the move during which it ended; later than ``begun`` where it waited."""
    sql: str
    """The statement with placeholders."""
    params: str
    """Its parameters, in short."""
    arguments: tuple[str, ...] = ()
    """Its parameters one by one, as text; none where it was sent for several sets of them."""
    transaction: int | None = None
    """Which of the actor's transactions it belongs to, from 0; None where it was one by itself."""
    waited_for: tuple[str, ...] = ()
    """Actors that held what it waited for."""
    waited_on: str = ""
    """The lock it waited on: a row of a table where that is known."""
    woken_by: str | None = None
    """The actor whose move ended the wait."""
    sqlstate: str | None = None
    """SQLSTATE of the error it ended with, or the error's class where it has none."""
    rows: int | None = None
    """Rows returned or changed."""
    values: tuple[Mapping[str, str | None], ...] = ()
    """The first rows returned, in replayed runs."""
    source: str = ""
    """The line of the user's code that sent it, such as ``shows/booking.py:12``, where it is known."""
    constraint: str = ""
    """The constraint that refused it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """What an actor raised, for people."""

    type: str
    """The error's class."""
    message: str
    """What it says."""
    source: str
    """The innermost line of the user's code that it went through."""

    def __str__(self) -> str:
        text = f"{self.type}: {self.message}".rstrip(": ")
        return f"{text} (at {self.source})" if self.source else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlock:
    """A cycle of waiting actors that the server broke."""

    actors: tuple[str, ...]
    """Who waited in a circle."""
    victim: str
    """Whose transaction the server ended."""
    detail: str
    """The cycle in the server's words, with actors for process numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One schedule from its beginning to its end."""

    schedule: str
    """Who moved at each step, as letters."""
    preemptions: int
    """How often an actor that could have gone on was interrupted."""
    steps: tuple[Step, ...]
    """Every statement, in the order of their beginnings."""
    errors: Mapping[str, str]
    """What actors raised, by name: SQLSTATE, or the class of errors that have none."""
    results: Mapping[str, str]
    """What actors returned, by name, where it is a plain value."""
    state: FinalState
    """The end: what ``observe`` returned, as text, or the rows of each table that is changed."""
    holds: bool
    """Whether the end is right."""
    reason: str = ""
    """Why it is not."""
    deadlocks: tuple[Deadlock, ...] = ()
    """Deadlocks on the way."""
    unsteerable: int = 0
    """Moves that woke several actors whose order only the server knows."""
    raised: Mapping[str, Raised] = field(default_factory=dict)
    """What actors raised, with messages and lines of code."""

    @property
    def end(self) -> str:
        """The state in a line."""
        return as_text(self.state)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    def to_json(self) -> str:
        """Return the run as JSON with the schema's version."""
        return json.dumps(self.to_dict(), indent=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One way to end, however many schedules lead there."""

    errors: Mapping[str, str]
    """What actors raised, by name."""
    results: Mapping[str, str]
    """What actors returned, by name."""
    state: FinalState
    """What ``observe`` returned, or the rows of the tables changed."""
    holds: bool
    """Whether it is right."""
    count: int
    """Schedules run that ended so."""
    schedule: str
    """The simplest of them."""
    reason: str = ""
    """Why it is not right."""

    @property
    def end(self) -> str:
        """The state in a line."""
        return as_text(self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """What came of exploring a scenario."""

    verdict: Verdict
    """``holds`` only if every interleaving, up to the order of independent steps, was run and ended right.

    Where ``rests`` is not 0: every fair one, in which nobody asks for a lock or polls again and again while nobody else
    moves.
    """
    reason: str
    """The verdict in a sentence."""
    actors: tuple[str, ...]
    """Names of the actors; letters of schedules count them."""
    schedules: int
    """Schedules run to their end."""
    redundant: int
    """Schedules given up midway, because equivalent ones had been run."""
    unsteerable: int
    """Moves whose order of woken actors was left to the server although it may matter."""
    yields: int
    """How often an actor that was refused the same lock twice, polls or sleeps had to let another one go first."""
    left: int
    """Branches known and not taken; each may lead to more."""
    outcomes: tuple[Outcome, ...]
    """Every distinct end, the wrong ones first, then by how many schedules lead there."""
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

    @property
    def ok(self) -> bool:
        """Whether the verdict is ``holds``."""
        return self.verdict == "holds"

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    def to_json(self) -> str:
        """Return the exploration as JSON with the schema's version."""
        return json.dumps(self.to_dict(), indent=2)
