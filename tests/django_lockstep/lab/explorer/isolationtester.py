"""PostgreSQL's own isolationtester, from the wheel of the embedded server: runs a spec, and what it printed."""

import os
import re
import subprocess
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from psycopg.conninfo import make_conninfo

from bank.embedded.binaries import installed
from django_lockstep.lab.explorer.spec.permutations import SCHEMA
from django_lockstep.lab.explorer.spec.specs import Spec


def program() -> Path:
    """Return the program, or skip the test where the server does not come from the wheel."""
    try:
        return installed().parent / "lib/postgresql/pgxs/src/test/isolation/isolationtester"
    except ImproperlyConfigured as error:
        pytest.skip(f"isolationtester is not here: {error}")


@dataclass
class Seen:
    """What isolationtester saw of one step."""

    waited: bool = False
    place: int = -1
    """Its place among the completions."""
    error: str = ""
    rows: list[list[str]] = field(default_factory=list)
    """What it returned, as text."""


def printed(spec: str) -> str:
    """Run the spec on the test database and return what the program printed."""
    keys = {"dbname", "host", "port", "user", "password"}
    chosen = {key: value for key, value in connection.get_connection_params().items() if key in keys}
    with connection.cursor() as cursor:
        cursor.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")  # of a spec that was interrupted
    libraries = str(program().parents[6])
    done = subprocess.run(
        [program(), make_conninfo(**chosen)],
        input=spec,
        env={**os.environ, "LD_LIBRARY_PATH": libraries, "PGISOLATIONTIMEOUT": "20"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{spec}"
    return done.stdout


def seen(output: str) -> dict[str, Seen]:
    """Return what happened to each step, by name."""
    steps: dict[str, Seen] = {}
    for place, part in enumerate(re.split(r"^step ", output, flags=re.MULTILINE)[1:]):
        step = steps.setdefault(part.partition(":")[0], Seen())
        if part.rstrip().endswith("<waiting ...>"):
            step.waited = True
        else:
            step.place = place
            step.error = "".join(re.findall(r"^ERROR:  (.*)$", part, re.MULTILINE))
            step.rows = _rows(part.splitlines())
    return steps


def _rows(lines: list[str]) -> list[list[str]]:
    ruler = next((number for number, line in enumerate(lines) if re.fullmatch(r"[-+]+", line)), len(lines))
    end = next((number for number, line in enumerate(lines) if re.fullmatch(r"\(\d+ rows?\)", line)), len(lines))
    return [[cell.strip() for cell in line.split("|")] for line in lines[ruler + 1 : end]]


_BOOLEANS = {"True": "t", "False": "f"}
_MESSAGES = {
    "22003": "numeric field overflow",
    "23503": "violates foreign key constraint",
    "23505": "duplicate key value violates unique constraint",
    "25P02": "current transaction is aborted",
    "40001": "could not serialize access",
    "40P01": "deadlock detected",
    "55P03": "could not obtain lock",
}


def disagreements(spec: Spec) -> Iterator[str]:
    """Run the spec and yield what came out otherwise than in the lab: waits, their ends, errors, rows."""
    theirs = seen(printed(spec.text))
    closing = {step.ended for step in spec.run.steps if step.sqlstate == "40P01"}
    for name, ours in zip(spec.steps, spec.run.steps, strict=True):
        it = theirs[name]
        # Whoever closes a circle waits until the server has found it, which the lab does not call a wait.
        if it.waited != bool(ours.waited_for) and ours.begun not in closing:
            yield f"{name}: waited for {ours.waited_for} in the lab, and {it.waited}"
        if (not it.error) != (ours.sqlstate is None) or _MESSAGES.get(ours.sqlstate or "", "") not in it.error:
            yield f"{name}: {ours.sqlstate} in the lab, and {it.error!r}"
        values = [[_BOOLEANS.get(value or "", (value or "").strip()) for value in row.values()] for row in ours.values]
        if values != it.rows[: len(values)] or (
            ours.sql.startswith("SELECT") and ours.rows not in (None, len(it.rows))
        ):
            yield f"{name}: {values} in the lab, and {it.rows}"
    completed = sorted(zip(spec.steps, spec.run.steps, strict=True), key=lambda pair: theirs[pair[0]].place)
    moves = [step.ended for _, step in completed]
    if moves != sorted(moves):
        yield f"order of completion: {moves}"
    for name, sql in spec.ends.items():
        if theirs[name].rows != (held := literal_eval(str(spec.run.state))[sql]):
            yield f"{sql}: {held} in the lab, and {theirs[name].rows}"


def tables(*names: str) -> dict[str, list[list[str]]]:
    """Return what the tables hold, as text, by the statements that a spec shows it with."""
    held = {}
    for name in names:
        sql = f'SELECT * FROM "{name}" ORDER BY "id"'
        with connection.cursor() as cursor:
            cursor.execute(sql)
            result = cursor.cursor.pgresult
            rows = range(result.ntuples)
            held[sql] = [
                [(result.get_value(r, c) or b"").decode().strip() for c in range(result.nfields)] for r in rows
            ]
    return held
