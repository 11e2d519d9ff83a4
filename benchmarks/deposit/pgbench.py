"""Contenders that are pgbench scripts: the server's speed at the same work, with hardly any cost of a client."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from bank.embedded import binaries
from benchmarks.contest import Cell
from benchmarks.cpu import server_seconds
from benchmarks.deposit.rows import AMOUNT, check, reset_accounts
from benchmarks.deposit.sql import BATCH, ENTRY, LOCK, ONE_STATEMENT, UPDATE, WRITE, fill_template
from benchmarks.figures import Sample, build_sample
from django_lockstep.lab.simulator.tally import Tally

BATCH_SIZE = 100
"""Deposits in a batch."""
_GRACE = 60
"""Seconds that pgbench may take in addition to its ``--time``."""


class PgbenchError(Exception):
    """Pgbench failed, or its output could not be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pgbench:
    """A script that pgbench runs, with prepared statements."""

    name: str
    """The name in reports."""
    lines: tuple[str, ...]
    """The script's statements as templates of `benchmarks.deposit.sql`; ``\\gset`` takes what a SELECT returned."""
    size: int = 1
    """Deposits in one transaction."""
    with_entries: bool = True
    """Whether it writes entries."""

    def obstacle(self, cell: Cell) -> str | None:
        """Return why it cannot run; None if it can."""
        return None if _program() else "pgbench is not installed"

    def run(self, cell: Cell, *, seconds: int) -> Sample:
        """Run the script on fresh rows. Raises `PgbenchError`."""
        reset_accounts(cell.rows)
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "script.sql")
            script.write_text("\n".join(self.script()) + "\n")
            server, client = server_seconds(connection), _children_seconds()
            output = _output(self._command(script, cell=cell, seconds=seconds), folder=Path(folder), seconds=seconds)
            client, server_after = _children_seconds() - client, server_seconds(connection)
            parts = tallies(line for log in Path(folder).glob("log.*") for line in log.read_text().splitlines())
        reported = processed(output)
        # Two accounts of the same run: a log that is cut short would make percentiles of a part.
        if reported != sum(part.succeeded for part in parts):
            raise PgbenchError(f"pgbench tells of {reported} transactions and logs another number")
        books = check(rows=cell.rows, reported=reported * self.size, with_entries=self.with_entries)
        return build_sample(
            parts,
            size=self.size,
            retries=False,
            client_cpu=client,
            server_cpu=None if server is None or server_after is None else server_after - server,
            verdict=books.verdict,
        )

    def script(self) -> list[str]:
        """Return the script's lines."""
        drawn = f"ARRAY(SELECT 1 + floor(random() * :rows)::bigint FROM generate_series(1, {self.size}))"
        names = {name: f":{name}" for name in ("account", "balance", "version")}
        statements = [fill_template(line, amount=str(AMOUNT), accounts=drawn, **names) for line in self.lines]
        ends = [line if line.endswith("\\gset") else line + ";" for line in statements]
        return ["\\set account random(1, :rows)", *ends]

    def _command(self, script: Path, *, cell: Cell, seconds: int) -> list[str]:
        # More threads than processors would compete with the server.
        threads = min(cell.workers, os.cpu_count() or 1)
        return [
            *(str(_program()), "--no-vacuum", "--protocol=prepared", f"--file={script}", f"--define=rows={cell.rows}"),
            *(f"--time={seconds}", f"--client={cell.workers}", f"--jobs={threads}", "--log", "--log-prefix=log"),
        ]


SCRIPTS = (
    Pgbench(name="pgbench:update", lines=(UPDATE,), with_entries=False),
    Pgbench(name="pgbench:one-statement", lines=(ONE_STATEMENT,)),
    Pgbench(name="pgbench:lock", lines=("BEGIN", LOCK + " \\gset", WRITE, ENTRY, "COMMIT")),
    Pgbench(name="pgbench:batch", lines=(BATCH,), size=BATCH_SIZE),
)

_PROCESSED = re.compile(r"^number of transactions actually processed: (\d+)", re.MULTILINE)


def processed(output: str) -> int:
    """Return the number of transactions that pgbench reports. Raises `PgbenchError`."""
    match = _PROCESSED.search(output)
    if not match:
        raise PgbenchError(f"pgbench did not say how much it has done:\n{output}")
    return int(match[1])


def tallies(lines: Iterable[str]) -> list[Tally]:
    """Return a tally for each client from the lines of pgbench's log.

    A line is: client, transaction, microseconds it took, script, second and microsecond of its end.
    """
    clients: dict[str, Tally] = {}
    for line in lines:
        client, _, took, _, second, microsecond = line.split()[:6]
        tally = clients.setdefault(client, Tally())
        end, latency = (int(second) * 1_000_000 + int(microsecond)) * 1000, int(took) * 1000
        tally.started = min(tally.started or end, end - latency)
        tally.ended = max(tally.ended, end)
        tally.succeeded += 1
        tally.latencies.record(latency)
    return list(clients.values())


def _program() -> Path | None:
    # The embedded server's own first: another version's may measure differently.
    try:
        return binaries.installed() / "pgbench"
    except ImproperlyConfigured:
        path = shutil.which("pgbench")
        return Path(path) if path else None


def _output(command: list[str], *, folder: Path, seconds: int) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - PostgreSQL's own program
            command,
            cwd=folder,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds + _GRACE,
        )
    except subprocess.TimeoutExpired as error:
        raise PgbenchError("pgbench did not end") from error
    if done.returncode:
        raise PgbenchError(done.stderr.strip())
    return done.stdout


def _environment() -> Mapping[str, str]:
    """Return libpq's variables for Django's database, so that the password is not on the command line."""
    params: dict[str, Any] = connection.get_connection_params()
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    variables = {variable: str(params[name]) for name, variable in names.items() if params.get(name)}
    if params.get("options"):
        variables["PGOPTIONS"] = str(params["options"])
    return {**os.environ, **variables}


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
