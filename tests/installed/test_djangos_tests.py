"""Django's own tests pass where every query set is a `CompiledQuerySet`."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import django
import pytest

from tests.installed.conftest import Databases
from tests.support.processes import ROOT, foreign_environment

pytestmark = pytest.mark.installed

LABELS = "basic bulk_create custom_managers defer delete expressions from_db_value get_or_create lookup m2m_regress "
LABELS += "many_to_one model_inheritance null_fk prefetch_related queries select_for_update signals update"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests of the Django that is installed: they are in its source distribution alone."""
    folder, version = tmp_path_factory.mktemp("sources"), django.get_version()
    options = ["--no-deps", "--no-binary", ":all:", "--dest", str(folder)]
    download = [sys.executable, "-m", "pip", "download", "--quiet", *options, f"django=={version}"]
    outcome = subprocess.run(download, capture_output=True, text=True, check=False)
    if outcome.returncode:
        pytest.skip(f"Django's sources cannot be had: {outcome.stderr.splitlines()[-1]}")
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4
        archive.extractall(folder, **safely)  # noqa: S202
    return folder / f"django-{version}" / "tests"


def test_they_pass(sources: Path, make_database: Databases) -> None:
    server = make_database("djangos")
    command = [sys.executable, "-W", "ignore", "runtests.py", "--settings=tests.support.compiled_everywhere"]
    outcome = subprocess.run(
        [*command, "--noinput", "--parallel=1", *LABELS.split()],
        cwd=sources,
        env=foreign_environment(DJANGOS_SERVER=json.dumps(server), PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout[-3000:] + outcome.stderr[-3000:]
    assert "OK" in outcome.stderr
