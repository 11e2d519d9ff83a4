"""Runs of the lab's pages behind the servers that Django projects have, of one process and of several."""

import re
import subprocess
import sys
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from tests.bank.processes import environment
from tests.support.pages import ROOT
from tests.support.processes import free_port
from tests.support.sessions import PATIENCE, until

SERVERS = {
    "runserver": ["manage.py", "runserver", "--noreload", "127.0.0.1:{port}"],
    "gunicorn": ["-m", "gunicorn", "bank.wsgi", "--workers=2", "--threads=2", "--bind=127.0.0.1:{port}"],
    "uvicorn": ["-m", "uvicorn", "bank.asgi:application", "--workers=2", "--port={port}"],
}


class Server:
    """One that can be started again on its port."""

    def __init__(self, command: list[str], pgdata: Path) -> None:
        self._port = free_port()
        self._command = [sys.executable, *(part.format(port=self._port) for part in command)]
        self._env = environment(BANK_PGDATA=str(pgdata), DJANGO_DEBUG="1", BANK_DEMO="1")
        self._http = build_opener(HTTPCookieProcessor(CookieJar()))

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, cwd=ROOT, env=self._env, stderr=subprocess.DEVNULL)
        until(self._answers, "the server to answer", patience=3 * PATIENCE)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(2 * PATIENCE)  # gunicorn gives the requests in hand 30 seconds

    def _answers(self) -> bool:
        try:
            self.get("/lab/")
        except OSError:  # no connection, or none of its processes has come up to answer it
            return False
        return True

    def open(self, path: str, **data: str) -> Any:
        body = urlencode(data).encode() if data else None
        return self._http.open(f"http://127.0.0.1:{self._port}{path}", body, timeout=PATIENCE)

    def get(self, path: str) -> str:
        with self.open(path) as answer:
            return str(answer.read().decode())

    def post(self, path: str, **data: str) -> None:
        (token, *_) = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', self.get("/lab/"))
        self.open(path, csrfmiddlewaretoken=token, **data).close()


@pytest.fixture
def server(request: pytest.FixtureRequest, pgdata: Path) -> Iterator[Server]:
    server = Server(SERVERS[request.param], pgdata)
    server.start()
    yield server
    server.stop()


def processes_of_runs(pgdata: Path) -> list[str]:
    """Return the processes of runs on this database that are alive."""
    ours = f"BANK_PGDATA={pgdata}".encode()
    return [folder.name for folder in Path("/proc").iterdir() if folder.name.isdigit() and _runs(folder, ours)]


def _runs(process: Path, ours: bytes) -> bool:
    try:
        started = b"lab.pages.process" in (process / "cmdline").read_bytes()
        return started and ours in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended meanwhile
        return False


@pytest.mark.parametrize("server", ["uvicorn"], indirect=True)
def test_whichever_process_answers_it_is_seen_and_stopped(server: Server, pgdata: Path) -> None:
    server.post("/lab/runs/", all="1")
    until(lambda: bool(re.search(r"\(\d+ of \d+\): schedule \d", server.get("/lab/"))), "schedules", patience=60)
    line = r"<strong>\S+</strong> \(\d+ of \d+\): "
    assert re.match(line, server.get("/lab/runs/progress/"))
    (token,) = re.findall(r'name="token" value="(\w+)"', server.get("/lab/"))
    server.post("/lab/runs/stop/", token=token)
    until(lambda: "The last run was stopped" in server.get("/lab/"), "the run to end", patience=60)
    until(lambda: processes_of_runs(pgdata) == [], "its process to end", patience=60)


# One of a single process, and one of several, which it stops itself.
@pytest.mark.parametrize("server", ["runserver", "gunicorn"], indirect=True)
def test_a_server_that_was_started_again_knows_what_goes_on_or_how_it_ended(server: Server, pgdata: Path) -> None:
    server.post("/lab/runs/", all="1")
    # Verdicts of an earlier run are shown while this one starts; from the second race on there is one of this run.
    begun = re.compile(r"\((?!1 )\d+ of \d+\)")
    until(lambda: begun.search(server.get("/lab/")) is not None, "a race to end", patience=150)
    server.stop()
    assert processes_of_runs(pgdata) != []
    server.start()
    assert re.search(r"\(\d+ of \d+\)|The last run was stopped", server.get("/lab/"))
    assert re.search(r"verdict (holds|broken)", server.get("/lab/"))
    until(lambda: processes_of_runs(pgdata) == [], "the process to end, as nobody watches", patience=60)
