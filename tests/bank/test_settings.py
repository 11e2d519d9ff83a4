"""The demo's settings: what the environment says, and what they do if it says nothing."""

import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bank.embedded import account, binaries
from bank.secret_key import read_or_create_key
from tests.bank.processes import User, changed, data_of, environment, server_is_gone, socket_of
from tests.support.pages import ROOT
from tests.support.processes import free_port, run

SETTINGS = """
import json
from bank.settings import DATABASES
print(json.dumps(DATABASES["default"], default=str))
"""
CONNECTION = """
import json
from bank.settings import DATABASES
from django.conf import settings
settings.configure(DATABASES=DATABASES)
import django
django.setup()
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SELECT current_database(), current_setting('data_directory'), inet_server_port()")
    print(json.dumps(cursor.fetchone()))
connection.close()
"""


def run_settings(program: str, **env: str) -> Any:
    """Return what a program of the bank's settings tells."""
    command = [sys.executable, "-W", "error", "-c", program]
    output = subprocess.run(command, cwd=ROOT, env=environment(**env), check=True, stdout=subprocess.PIPE).stdout
    return json.loads(output)


def test_it_wins_over_the_embedded_server() -> None:
    default = run_settings(SETTINGS, DATABASE_URL="postgresql://alice:secret@db.example.com:6543/shop")
    assert default["ENGINE"] == "django.db.backends.postgresql"
    assert (default["HOST"], default["PORT"], default["NAME"]) == ("db.example.com", 6543, "shop")
    assert (default["USER"], default["PASSWORD"]) == ("alice", "secret")


@pytest.mark.parametrize("url", [{}, {"DATABASE_URL": ""}])
def test_without_it_the_bank_brings_its_own_server(url: dict[str, str]) -> None:
    default = run_settings(SETTINGS, BANK_PGDATA="/somewhere/else", **url)
    assert (default["ENGINE"], default["PGDATA"]) == ("bank.embedded", "/somewhere/else")


def test_it_reaches_a_server_by_its_socket(pgdata: Path) -> None:
    with User(pgdata) as user:
        data = user.sql("SHOW data_directory")
        url = f"postgresql://postgres@/bank?host={socket_of(pgdata)}"
        assert run_settings(CONNECTION, DATABASE_URL=url) == ["bank", data, None]


@pytest.fixture
def port(pgdata: Path) -> Iterator[int]:
    """The port of 127.0.0.1 of a server that was started by hand in the folder of an embedded one."""
    with User(pgdata) as user:
        user.sql("SELECT 1")
    number = free_port()
    options = f"-c listen_addresses=127.0.0.1 -p {number} -k {data_of(pgdata)}"
    with changed(data_of(pgdata) / "pg_hba.conf", "local all all trust\nhost all all 127.0.0.1/32 trust\n"):
        pg_ctl(pgdata, "start", "-w", "-l", "by_hand.log", "-o", options)
        yield number
        pg_ctl(pgdata, "stop", "-w", "-m", "fast")


def pg_ctl(pgdata: Path, *command: str) -> None:
    """Start or stop a server by hand."""
    status = data_of(pgdata).stat()
    owner = account.Account(status.st_uid, status.st_gid)
    program = binaries.usable_by(owner) / "pg_ctl"
    done = account.run([program, *command], owner, cwd=data_of(pgdata), env={"PGDATA": str(data_of(pgdata))})
    assert done.returncode == 0, done.stderr


def test_it_reaches_a_server_on_the_network(pgdata: Path, port: int) -> None:
    data = str(data_of(pgdata))
    url = f"postgresql://postgres@127.0.0.1:{port}/bank"
    assert run_settings(CONNECTION, DATABASE_URL=url) == ["bank", data, port]
    with User(pgdata) as user:
        assert user.sql("SHOW port") == str(port), "an embedded user shares the server that it finds"
    assert server_is_gone(pgdata)
    assert run_settings(CONNECTION, DATABASE_URL=url) == ["bank", data, port], "and does not stop what it did not start"


# What the demo's settings do where the environment says nothing


SERVE = """
import bank.wsgi, django.urls
from django.conf import settings
from django.test import Client
def broken(request): raise ValueError("the page is broken")
settings.ROOT_URLCONF = __name__
urlpatterns = [django.urls.path("", broken)]
client = Client(raise_request_exception=False)
assert client.get("/", secure=True, headers={"host": "localhost"}).status_code == 500
"""


def test_all_processes_of_a_copy_have_one_key_that_only_their_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret_key"
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(read_or_create_key, [path] * 8))
    assert keys == {path.read_text()}
    assert len(path.read_text()) >= 50
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["secret_key"]


def test_a_key_that_cannot_be_kept_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert read_or_create_key(tmp_path / "file" / "secret_key") != read_or_create_key(tmp_path / "file" / "secret_key")
    assert "DJANGO_SECRET_KEY is not set" in caplog.text


@pytest.mark.parametrize("debug", ["0", "1"])
def test_an_error_of_a_page_leaves_its_traceback_on_stderr_once(debug: str) -> None:
    served = run("-c", SERVE, DJANGO_DEBUG=debug, DJANGO_SETTINGS_MODULE="bank.settings")
    assert served.returncode == 0, served.stderr
    assert served.stderr.count("ValueError: the page is broken") == 1
