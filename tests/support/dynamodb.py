"""Fixtures for stores on DynamoDB, on a free port of this machine: ministack, in a virtual environment of its own.

It needs other versions of some packages than the tests do. The first caller makes the environment, beside the folder of
the embedded PostgreSQL; all others wait for it and use it.
"""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from bank.embedded.locks import holding
from django_lockstep.stores.conf import get_store
from django_lockstep.stores.dynamodb.sightings import Sightings
from django_lockstep.stores.dynamodb.store import DynamoStore
from tests.support.pages import ROOT
from tests.support.processes import free_port, listens_on
from tests.support.sessions import PATIENCE, until

PACKAGE = "ministack==1.5.33"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_FOLDER = ROOT / ".ministack"
_INSTALL_SECONDS = 300.0


@contextmanager
def _server(python: Path, folder: Path) -> Iterator[str]:
    """Start a server that keeps its data in memory, give its address, and end it."""
    port = free_port()
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
            until(lambda: server.poll() is not None or listens_on(port), "ministack", patience=3 * PATIENCE)
            assert server.poll() is None, f"ministack ended with code {server.returncode}"
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(PATIENCE)


def _server_python() -> Path:
    """Return the Python of an environment that has the package, made now if there is none."""
    _FOLDER.mkdir(exist_ok=True)
    folder = _FOLDER / f"{PACKAGE}-python{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    with holding(_FOLDER / "lock"):
        # Last of all the mark: an installation that was interrupted begins again.
        if not (mark := folder / "installed").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(folder))
            _run(str(python), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE)
            mark.touch()
    return python


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, timeout=_INSTALL_SECONDS, check=True)


# Fixtures for stores on DynamoDB: the server is started when the first test needs it, once in each process


_numbers = itertools.count()


@pytest.fixture(scope="session")
def dynamodb_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server for all tests of this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setitem(os.environ, name, value)
        try:
            import boto3  # noqa: F401 - whether it is there

            python = _server_python()
        except (ImportError, OSError, subprocess.SubprocessError) as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"no DynamoDB: {error}")  # as without a network
        with _server(python, tmp_path_factory.mktemp("dynamodb")) as url:
            yield url


@pytest.fixture
def dynamodb_options(dynamodb_url: str) -> dict[str, Any]:
    """Options of a store whose table does not exist yet."""
    return {"TABLE": f"lockstep_{next(_numbers)}", "REGION": "us-east-1", "ENDPOINT_URL": dynamodb_url}


@pytest.fixture(scope="session")
def dynamodb_table(dynamodb_url: str) -> dict[str, Any]:
    """Options of a store whose table exists: it takes half a second to make one."""
    options = {"TABLE": "lockstep", "REGION": "us-east-1", "ENDPOINT_URL": dynamodb_url}
    assert DynamoStore("tested", options).create()
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
