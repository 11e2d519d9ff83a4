"""Edit locks on MariaDB: the tables can be made, and check-outs are what they are elsewhere.

Runs where the server's programs and the driver mysqlclient are to be had.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ROOT
from tests.support.sessions import until

PROGRAMS = ("mariadb-install-db", "mariadbd", "mariadb-admin")
MISSING = [name for name in PROGRAMS if not shutil.which(name)]
MISSING += [] if importlib.util.find_spec("MySQLdb") else ["mysqlclient"]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"MariaDB cannot be had: {', '.join(MISSING)} not installed")

HERE = "tests/django_lockstep/editing"


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[str]:
    """A server of the test's own, which listens to nobody else."""
    data, socket = tmp_path / "data", str(tmp_path / "socket")
    options = ["--no-defaults", f"--datadir={data}", f"--user={os.environ.get('USER') or 'root'}"]
    initialize = ["mariadb-install-db", *options, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(initialize, check=True, capture_output=True)
    server = subprocess.Popen(
        ["mariadbd", *options, f"--socket={socket}", "--skip-networking", f"--log-error={tmp_path / 'log'}"]
    )
    ping = ["mariadb-admin", "--no-defaults", f"--socket={socket}", "--user=root", "ping"]
    try:
        until(lambda: subprocess.run(ping, capture_output=True, check=False).returncode == 0, "MariaDB")
        yield socket
    finally:
        server.terminate()
        server.wait(60)


def test_tables_are_made_and_check_outs_exclude_each_other(socket: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--create-db"]
    chosen = [
        "--ds",
        f"{HERE.replace('/', '.')}.mariadb_settings",
        f"{HERE}/test_check_out.py",
        f"{HERE}/test_closure.py",
    ]
    env = {**os.environ, "MARIADB_SOCKET": socket}
    done = subprocess.run([*command, *chosen], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
