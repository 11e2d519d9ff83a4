"""Fixtures for stores on DynamoDB, on a free port of this machine: ministack, in a virtual environment of its own.

It needs other versions of some packages than the tests do. The first caller makes the environment, beside the folder of
the embedded PostgreSQL; all others wait for it and use it.
"""

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from bank.embedded.locks import holding
from django_lockstep.stores import get_store
from django_lockstep.stores.dynamodb.sightings import Sightings
from django_lockstep.stores.dynamodb.store import DynamoStore
from tests.support.pages import ROOT
from tests.support.processes import free_port, listens_on
from tests.support.sessions import PATIENCE

PACKAGE = "ministack==1.5.33"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_FOLDER = ROOT / ".ministack"
_INSTALL_SECONDS = 300.0


class ServerMissingError(Exception):
    """The server cannot be installed, as without a network; the message says why."""


@contextmanager
def dynamodb_server(folder: Path) -> Iterator[str]:
    """Start a server that keeps its data in memory, give its address, and end it.

    Raises `ServerMissingError`.
    """
    python, port = server_python(), free_port()
    environment = {
        **os.environ,
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "TMPDIR": str(folder),
        "LOG_LEVEL": "ERROR",
    }
    with (folder / "ministack.log").open("wb") as log:
        # -I: without the variables and folders that lead to packages of this environment.
        server = subprocess.Popen(
            [python, "-I", "-m", "ministack"], cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            _wait_until_up(server, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(PATIENCE)


def server_python(package: str = PACKAGE, parent: Path = _FOLDER) -> Path:
    """Return the Python of an environment that has this package, made now if there is none."""
    parent.mkdir(exist_ok=True)
    folder = parent / f"{package}-python{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    with holding(parent / "lock"):
        # Last of all the mark: an installation that was interrupted begins again.
        if not (mark := folder / "installed").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(folder))
            _run(str(python), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package)
            mark.touch()
    return python


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerMissingError(str(error)) from error
    if done.returncode:
        raise ServerMissingError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}")


def _wait_until_up(server: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + 3 * PATIENCE
    while time.monotonic() < until:
        if server.poll() is not None:
            raise RuntimeError(f"ministack ended with code {server.returncode}")
        if listens_on(port):
            return
        time.sleep(0.05)
    raise RuntimeError("ministack did not start")


# Fixtures for stores on DynamoDB: the server is started when the first test needs it, once in each process


_numbers = itertools.count()


@pytest.fixture(scope="session")
def dynamodb_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server for all tests of this process."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in CREDENTIALS.items():
            patch.setitem(os.environ, name, value)
        try:
            import boto3  # noqa: F401 - whether it is there

            url = stack.enter_context(dynamodb_server(tmp_path_factory.mktemp("dynamodb")))
        except (ImportError, ServerMissingError) as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"no DynamoDB: {error}")
        yield url


@pytest.fixture
def dynamodb_options(dynamodb_url: str) -> dict[str, Any]:
    """Options of a store whose table does not exist yet."""
    return {"TABLE": f"lockstep_{next(_numbers)}", "REGION": "us-east-1", "ENDPOINT_URL": dynamodb_url}


@pytest.fixture(scope="session")
def dynamodb_table(dynamodb_url: str) -> dict[str, Any]:
    """Options of a store whose table exists: it takes half a second to make one."""
    options = {"TABLE": "lockstep", "REGION": "us-east-1", "ENDPOINT_URL": dynamodb_url}
    assert DynamoStore.from_options("tested", options).create()
    return options


@pytest.fixture
def dynamodb(dynamodb_table: dict[str, Any], settings: Settings) -> Iterator[DynamoStore]:
    """A store with an empty table, under the name ``tested``."""
    settings.LOCKSTEP_STORES = {"tested": dynamodb_table}
    store = get_store("tested")
    assert isinstance(store, DynamoStore)
    store.sightings = Sightings()
    client = store.client
    yield store
    for item in client.scan(TableName=store.table)["Items"]:
        client.delete_item(TableName=store.table, Key={"pk": item["pk"]})
