"""The sessions and steps of a spec for isolationtester, the order of the steps, and their SQL with literals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import Any

from psycopg import ClientCursor, ProgrammingError

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.driver.trace import StepRecord, Trace
from django_lockstep.lab.explorer.effects.catalog import quote_name
from django_lockstep.lab.explorer.effects.operations import TOKEN, Operation
from django_lockstep.lab.explorer.errors import NotWritable

SCHEMA = "race"
"""The schema that a spec creates for its tables, so that it can run in any database."""
_WORD = re.compile(r"[A-Za-z]\w*")
_CLOSES_CYCLE, _WAITS_IN_CYCLE, _NOT_A_VICTIM = "1ms", "3s", "100s"
"""``deadlock_timeout`` of a victim that closes the cycle, of one that waited before, and of all other sessions."""


@dataclass(slots=True)
class _Session:
    name: str
    setup: list[str] = field(default_factory=lambda: [f"SET search_path = {SCHEMA}"])
    steps: list[tuple[str, str]] = field(default_factory=list)


class Permutation:
    """The sessions and steps of a spec, in the order of the moves."""

    def __init__(self, trace: Trace, actors: tuple[str, ...], *, connection: Any) -> None:
        self.names: list[str] = []
        self._actors = actors
        self._connection = connection
        self._sessions: dict[tuple[int, str, int], _Session] = {}
        self._savepoints: dict[int, dict[str, str]] = {}
        self._order: list[str] = []
        self._deadlocks = bool(trace.cycles)
        victims = [step for step in trace.steps if _is_victim(step.operation)]
        for step in trace.steps:
            self._add(step)
            for victim in victims:
                if victim.ended == step.number:
                    # An empty step, which a session runs only when its last step has ended. No other session's step
                    # begins before, so that all find the victim's locks released, as in the run.
                    session = self._session(victim.actor, victim.operation)
                    self._step(session, f"{self.names[trace.steps.index(victim)]}_ended", "")
        self._mark_waits(trace.steps)

    def _add(self, step: StepRecord) -> None:
        operation: Operation = step.operation
        number = 1 + sum(name.startswith(ascii_lowercase[step.actor]) for name in self.names)
        try:
            savepoints = self._savepoints.setdefault(step.actor, {})
            sql = literal_sql(operation, self._connection, savepoints=savepoints)
        except NotWritable as error:
            raise NotWritable(f"Step {number} of {self._actors[step.actor]}: {error}") from error
        session = self._session(step.actor, operation)
        label = f"{ascii_lowercase[step.actor]}{number}"
        if not (operation.in_transaction or operation.autocommit):
            self._step(session, f"{label}_begin", f"BEGIN ISOLATION LEVEL {operation.isolation.upper()}")
        if _is_victim(operation):
            timeout = _CLOSES_CYCLE if step.ended == step.number else _WAITS_IN_CYCLE
            self._step(session, f"{label}_loses", f"SET deadlock_timeout = '{timeout}'")
        word = _WORD.search(sql)
        self.names.append(f"{label}_{word[0].lower() if word else 'step'}")
        self._step(session, self.names[-1], sql)

    def _session(self, actor: int, operation: Operation) -> _Session:
        """Return the session of the actor's connection; a connection that was reopened is another session."""
        key = (actor, operation.alias, operation.pid)
        if key not in self._sessions:
            earlier = sum(session_key[0] == actor for session_key in self._sessions)
            session = _Session(self._actors[actor] + (f" {earlier + 1}" if earlier else ""))
            # By default every session looks for a deadlock after a second, and whichever is first to look loses.
            if self._deadlocks:
                session.setup.append(f"SET deadlock_timeout = '{_NOT_A_VICTIM}'")
            if operation.isolation != "read committed":
                session.setup.append(f"SET default_transaction_isolation = '{operation.isolation}'")
            self._sessions[key] = session
        return self._sessions[key]

    def _step(self, session: _Session, name: str, sql: str) -> None:
        session.steps.append((name, sql))
        self._order.append(name)

    def _mark_waits(self, steps: list[StepRecord]) -> None:
        """Mark each step that waits with the step after which it may be reported as complete."""
        by_move = {step.number: name for step, name in zip(steps, self.names, strict=True)}
        marks: dict[str, str] = {}
        for step, name in zip(steps, self.names, strict=True):
            if step.ended is not None and step.ended != step.number:
                # A waiter that was let go on first has ended in a move without a statement.
                marks[name] = by_move[max(move for move in by_move if move <= step.ended)]
            elif step.waited_for or _is_victim(step.operation):
                marks[name] = "*"
        self._order = [f"{name}({marks[name]})" if name in marks else name for name in self._order]

    def parts(self, shown: dict[str, str]) -> Iterator[str]:
        """Yield the sessions, the one that shows the final state, and the permutation."""
        for session in [*self._sessions.values(), _Session("end", steps=list(shown.items()))]:
            lines = [f"session {quote_name(session.name)}", block("setup", "; ".join(session.setup), line=True)]
            lines += [block(f"step {name}", sql, line=True) for name, sql in session.steps]
            if session.steps:
                yield "\n".join(lines)
        yield "permutation\n    " + "\n    ".join([*self._order, *shown])


def _is_victim(operation: Operation) -> bool:
    return operation.error is not None and sqlstate_of(operation.error) == "40P01"


def block(head: str, sql: str, *, line: bool = False) -> str:
    """Return a block of a spec; ``line``: in one line."""
    text = escape_braces(sql)
    return f"{head} {{ {text}; }}" if line else f"{head}\n{{\n{text};\n}}"


# Operations as SQL with literals.

_IN_SMALL_LETTERS = "set|reset|show|lock|savepoint|release|rollback|start transaction|discard|listen|notify|table"
"""First words of statements that may consist of words only."""
_PROTOCOL = re.compile(
    rf"(?!(?:{_IN_SMALL_LETTERS})\b)[a-z_ ]+|CLOSE|COPY\b.*|FETCH (?:SELECT|WITH|VALUES|TABLE)\b.*", re.DOTALL
)
"""How the hooks name round trips without a statement of their own: FETCH, COPY, transaction blocks of the driver."""
_BY_ITSELF = frozenset({"abort", "begin", "commit", "end", "rollback"})
_SAVEPOINT = re.compile(r'"?(s\d+_x\d+)"?')


def literal_sql(operation: Operation, connection: Any, *, savepoints: dict[str, str]) -> str:
    """Return what the operation sent as SQL that needs no parameters; several statements where it sent several.

    ``connection`` is the driver's, whose adapters write the values. ``savepoints`` collects short names for the
    generated ones. Raises `NotWritable` for what was not sent as a statement.
    """
    sql = operation.sql.strip().rstrip(";")
    if _PROTOCOL.fullmatch(sql) and sql not in _BY_ITSELF:
        raise NotWritable(f"{sql!r} went over the wire without a statement of its own (server-side cursor, COPY)")
    sets = operation.params if operation.many else [operation.params]
    try:
        # The driver's own adapters, so that values are written as they were sent.
        texts = [ClientCursor(connection).mogrify(sql, params) for params in sets]
    except ProgrammingError as error:
        raise NotWritable(f"{sql!r} has parameters that cannot be written as literals: {error}") from error

    def short(savepoint: re.Match[str]) -> str:
        return savepoints.setdefault(savepoint[1], f"sp{len(savepoints) + 1}")

    return "; ".join(_SAVEPOINT.sub(short, text) for text in texts)


def escape_braces(sql: str) -> str:
    """Return the SQL without closing braces, which end a block of a spec and cannot be escaped there."""
    return TOKEN.sub(_without_brace, sql) if "}" in sql else sql


def _without_brace(match: re.Match[str]) -> str:
    token = match[0]
    if "}" not in token:
        return token
    if match["name"]:
        return "U&" + token.replace("\\", "\\\\").replace("}", "\\007D")
    if match["escaped"]:
        return token.replace("}", "\\x7D")
    text = match["body"].replace("'", "''") if match["dollar"] else token[1:-1]
    return "E'" + text.replace("\\", "\\\\").replace("}", "\\x7D") + "'"
