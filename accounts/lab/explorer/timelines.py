"""A run as a timeline in plain text: a column for each actor, a line for each event."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import shorten

from accounts.lab.explorer.explanations import explain, table_of
from accounts.lab.explorer.results import Run, Step

__all__ = ["short", "timeline"]

_WIDTH = 44


def timeline(run: Run, *, width: int = _WIDTH) -> str:
    """Return the run as text: what each actor sent, read and waited for, and who ended the wait.

    ``width`` is each actor's column in characters. Values and waited-for rows show in runs that `replay` made.
    """
    names = list(dict.fromkeys(step.actor for step in run.steps))
    lines = [f"schedule {run.schedule}, {'right' if run.holds else 'WRONG'}"]
    lines.append("step  " + "".join(name.ljust(width) for name in names).rstrip())
    lines.append("----  " + "".join(("-" * (width - 2)).ljust(width) for _ in names).rstrip())
    for move in range(max((step.ended for step in run.steps), default=-1) + 1):
        for actor, text in _events(run, move):
            cell = shorten(text, width - 2, placeholder="…").ljust(width)
            lines.append(f"{move + 1:4}  {' ' * (width * names.index(actor))}{cell}".rstrip())
    lines.append("")
    lines += [f"{name} raised {error}" for name, error in run.errors.items()]
    lines.append(f"end: {run.state}")
    if not run.holds:
        lines += [run.reason, explain(run)]
    return "\n".join(lines)


def _events(run: Run, move: int) -> Iterator[tuple[str, str]]:
    """Yield what happened in one move: the step that began, and the waiting ones that ended with it."""
    for step in run.steps:
        if step.begun == move:
            yield step.actor, short(step) + ("" if step.waited_for else _came_of(step))
            if step.waited_for:
                yield step.actor, f"… waits for {', '.join(step.waited_for)}" + _on(step)
        elif step.ended == move:
            by = f" by {step.woken_by}" if step.woken_by and step.woken_by != step.actor else ""
            yield step.actor, f"… woken{by}{_came_of(step)}"


def _on(step: Step) -> str:
    return f" on {step.waited_on}" if step.waited_on else ""


def short(step: Step) -> str:
    """Return the statement in a few words: its verb, its table and its parameters."""
    word = step.sql.partition(" ")[0].upper()
    if word not in {"SELECT", "INSERT", "UPDATE", "DELETE"}:
        return step.sql
    locking = step.sql.upper().rpartition(" FOR ")[2] if word == "SELECT" and " FOR " in step.sql.upper() else ""
    return f"{word} {table_of(step)}{' FOR ' + locking if locking else ''} {step.params}".rstrip()


def _came_of(step: Step) -> str:
    if step.sqlstate is not None:
        return f" -> error {step.sqlstate}"
    if step.values:
        return " -> " + ", ".join(f"{name}={value}" for name, value in step.values[0].items())
    return f" -> {step.rows} rows" if step.rows is not None else ""
