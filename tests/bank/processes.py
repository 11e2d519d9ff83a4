"""Processes that use an embedded server, as the tests hold them, and what is to be seen of the server."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType

from bank.embedded import folder, locks
from tests.support.processes import Program

STARTED = "SELECT pg_postmaster_start_time()"


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a program under test: the caller's, less what chooses settings and databases."""
    chosen = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "BANK_PGDATA")
    return {name: value for name, value in os.environ.items() if name not in chosen} | changes


class User(Program, AbstractContextManager["User"]):
    """A process that runs one of ``tests.bank.programs``; it ends with its block, and is killed if the test fails."""

    def __init__(self, pgdata: Path, program: str = "user", **env: str) -> None:
        command = ("-W", "error", "-m", "tests.bank.programs", program, str(pgdata))
        super().__init__(*command, env=environment(**env))

    def __exit__(self, error: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if error is None and self.process.poll() is None:
            self.end()
        else:
            self.process.kill()
            self.process.communicate()

    def value(self) -> str:
        """Wait for the next answer, which must be a value."""
        answer = self.answer()
        assert "value" in answer, answer
        return str(answer["value"])

    def sql(self, statement: str) -> str:
        """Return the first value of the statement's answer."""
        self.send(statement)
        return self.value()

    def error(self, statement: str = "SELECT 1") -> str:
        """Return the name and the text of the error that the statement ends in."""
        self.send(statement)
        answer = self.answer()
        return f"{answer['error']}: {answer['message']}"

    def end(self) -> None:
        """Let the process end as programs do, and wait until it and its children have."""
        output, _ = self.process.communicate()
        assert self.process.returncode == 0, output

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send the process a signal and wait for its end."""
        self.process.send_signal(number)
        self.process.wait()


def data_of(pgdata: Path) -> Path:
    """Return where the data is: there, or in root's folder where the server's account cannot reach there."""
    return pgdata if (pgdata / "PG_VERSION").exists() else folder.fallback_folder(pgdata)


@contextmanager
def changed(file: Path, text: str) -> Iterator[None]:
    """Give one of the data folder's files another text for the length of a block."""
    before = file.read_text()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_text(before)


@contextmanager
def moved(pgdata: Path, folder: Path) -> Iterator[Path]:
    """Have the data of a server that does not run in another folder for the length of a block."""
    with User(pgdata) as user:
        user.sql("SELECT 1")
        user.end()
    here, there = data_of(pgdata), folder / "pgdata"
    folder.mkdir()
    subprocess.run(["mv", here, there], check=True)
    try:
        yield there
    finally:
        subprocess.run(["mv", there, here], check=True)


def lock_is_free(pgdata: Path, name: str) -> bool:
    """Whether no process holds any of the folder's locks."""
    return locks.is_free(pgdata.with_name(pgdata.name + ".locks") / name)


def server_is_gone(pgdata: Path) -> bool:
    """Tell whether no process of the folder's server is left."""
    return lock_is_free(pgdata, "server")


def wait_for_servers_end(pgdata: Path) -> None:
    """Wait until no process of the folder's server is left."""
    locks.release(locks.take(pgdata.with_name(pgdata.name + ".locks") / "server"))


def postmaster(pgdata: Path) -> int:
    """Return the process id of the folder's server."""
    return int((data_of(pgdata) / "postmaster.pid").read_text().splitlines()[0])


def socket_of(pgdata: Path) -> Path:
    """Return the socket's folder of the folder's server."""
    return Path((data_of(pgdata) / "postmaster.pid").read_text().splitlines()[4])
