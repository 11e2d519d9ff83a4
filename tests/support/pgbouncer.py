"""PgBouncer in transaction mode in front of the test database: Debian's, where it is installed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from django.db import connection

from tests.support.sessions import until

_PORT = 6432
_SETTINGS = """
[databases]
* = host={host} port={port} user={user} {password}
[pgbouncer]
pool_mode = transaction
listen_addr =
listen_port = {own_port}
unix_socket_dir = {folder}
auth_type = any
default_pool_size = 4
ignore_startup_parameters = extra_float_digits, options
"""


@contextmanager
def pgbouncer() -> Iterator[str]:
    """Start one for the length of a block, and give the URL of the test database behind it."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    server = connection.get_connection_params()
    with tempfile.TemporaryDirectory(prefix="pgb-") as name:
        folder = Path(name)
        password = f"password={server['password']}" if server.get("password") else ""
        values = {"host": server["host"], "port": server.get("port") or 5432, "user": server["user"]}
        settings = folder / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(**values, password=password, own_port=_PORT, folder=folder))
        command = [program, "-q", str(settings)]
        if os.geteuid() == 0:
            # It refuses to run as root, and reaches the socket of the embedded server as that one's account alone.
            path = Path(server["host"])
            owner = path.owner() if path.is_absolute() else "nobody"
            shutil.chown(folder, owner)
            shutil.chown(settings, owner)
            command += ["-u", owner]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                until((folder / f".s.PGSQL.{_PORT}").exists, "PgBouncer")
                yield f"postgresql://{server['user']}@{quote(name, safe='')}:{_PORT}/{server['dbname']}"
            finally:
                process.terminate()
