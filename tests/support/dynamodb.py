"""A DynamoDB server for tests: ministack, on a free port of this machine."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.sessions import PATIENCE

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def dynamodb_server(folder: Path) -> Iterator[str]:
    """Start a server that keeps its data in memory, give its address, and end it."""
    port = _free_port()
    environment = {
        **os.environ,
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "TMPDIR": str(folder),
        "LOG_LEVEL": "ERROR",
    }
    with (folder / "ministack.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "ministack"], cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            _wait_until_up(server, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(PATIENCE)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_up(server: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + 3 * PATIENCE
    while time.monotonic() < until:
        if server.poll() is not None:
            raise RuntimeError(f"ministack ended with code {server.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("ministack did not start")
