"""What is released: wheel, sdist, metadata, and the names that users may rely on."""

import importlib
import json
import re
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import PathDistribution
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.installed.building import ROOT, Distributions, build, require_success, run

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return build(tmp_path_factory.getbasetemp() / "dist")


@pytest.fixture(scope="module")
def wheel(built: Distributions) -> dict[str, bytes]:
    """The wheel's files by name."""
    with zipfile.ZipFile(built.wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def sdist(built: Distributions) -> dict[str, bytes]:
    """The sdist's files by name, without the folder that all are in."""
    with tarfile.open(built.sdist) as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name.partition("/")[2]: file.read() for name, file in files.items() if file}


@pytest.fixture(scope="module")
def metadata(built: Distributions) -> PathDistribution:
    name, version, *_ = built.wheel.name.split("-")
    return PathDistribution(zipfile.Path(built.wheel, f"{name}-{version}.dist-info/"))


def of_package(names: dict[str, bytes]) -> set[str]:
    return {name for name in names if name.startswith("accounts/")}


def classified(prefix: str) -> list[str]:
    """Return the versions that the classifiers name, in their order."""
    found = [re.fullmatch(rf"{prefix} :: (\d+\.\d+)", classifier) for classifier in PROJECT["classifiers"]]
    return [match[1] for match in found if match]


# Contents.


def test_the_wheel_holds_the_package_and_nothing_else(wheel: dict[str, bytes], sdist: dict[str, bytes]) -> None:
    info = {name for name in wheel if name.partition("/")[0].endswith(".dist-info")}
    assert of_package(wheel) == of_package(sdist) == set(wheel) - info


def test_every_file_of_the_package_is_released(sdist: dict[str, bytes]) -> None:
    files = [path for path in (ROOT / "accounts").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.relative_to(ROOT).as_posix() for path in files} == of_package(sdist)


@pytest.mark.parametrize("name", ["py.typed", "migrations/0001_initial.py", "management/commands/reconcile.py"])
def test_what_no_import_would_miss_is_there(wheel: dict[str, bytes], name: str) -> None:
    assert f"accounts/{name}" in wheel


def test_the_sdist_is_the_repository(sdist: dict[str, bytes]) -> None:
    listed = run(["git", "ls-files"], cwd=ROOT)
    if listed.returncode:
        pytest.skip(f"this is no git checkout: {listed.stderr.strip()}")
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    assert tracked - set(sdist) == set()


def test_what_users_read_first_is_in_the_sdist(sdist: dict[str, bytes]) -> None:
    assert {"README.md", "LICENSE", "pyproject.toml", "PKG-INFO", "manage.py", "tests/conftest.py"} <= set(sdist)


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_no_file_names_a_path_of_this_machine(kind: str, request: pytest.FixtureRequest) -> None:
    here = "|".join(re.escape(str(path)) for path in {ROOT, Path.home()} if path.name)
    files: dict[str, bytes] = request.getfixturevalue(kind)
    pattern = re.compile(rf"(?:{here})/\w".encode())
    assert {name: match[0] for name, text in files.items() if (match := pattern.search(text))} == {}


# Metadata.


def test_the_metadata_says_what_it_is(metadata: PathDistribution) -> None:
    said = metadata.metadata
    assert (said["Name"], said["Version"]) == ("django-lockstep", PROJECT["version"])
    assert (said["License-Expression"], said["License-File"]) == ("MIT", "LICENSE")
    assert said["Requires-Python"] == ">=3.11"


def test_the_readme_is_its_description(metadata: PathDistribution) -> None:
    assert metadata.metadata["Description-Content-Type"] == "text/markdown"
    assert (metadata.read_text("METADATA") or "").endswith("\n\n" + (ROOT / "README.md").read_text())


def test_it_needs_what_it_imports(metadata: PathDistribution) -> None:
    requires = {need.name: str(need.marker or "") for need in map(Requirement, metadata.requires or [])}
    extras = {
        "rich": "lab",
        "matplotlib": "plot",
        "django-ninja": "api",
        "djangorestframework": "drf",
        "django-htmx": "pages",
    }
    always = dict.fromkeys(["django", "django-concurrency", "psycopg"], "")
    assert requires == {**always, **{name: f'extra == "{extra}"' for name, extra in extras.items()}}
    assert set(metadata.metadata.get_all("Provides-Extra") or []) == set(extras.values())


def test_the_classifiers_agree_with_what_it_requires(metadata: PathDistribution) -> None:
    (django,) = (need for need in map(Requirement, metadata.requires or []) if need.name == "django")
    for versions, required in (
        (classified("Programming Language :: Python"), metadata.metadata["Requires-Python"]),
        (classified("Framework :: Django"), str(django.specifier)),
    ):
        assert required == f">={versions[0]}"
        assert versions == sorted(versions, key=Version)


def test_the_environment_is_one_of_those_it_names() -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert python in classified("Programming Language :: Python")


# Names.

LOCKING = """
    AddVersionGuard ConcurrencyError DeadlockDetected FieldConflict LockNotAvailable Merge RetriesExhausted
    SerializationFailure StaleVersionError VersionField VersionedManager VersionedModel VersionedQuerySet lock_row
    lock_rows merge_fields retry_on_conflict retrying transaction translated_errors
"""

LEASES = """
    FencedManager FencedModel FencedQuerySet Holder LeaseError LeaseHandle LeaseLost LeaseNotAcquired LeaseTimedOut
    StaleToken exclusive guard lease
"""


EDITING = """
    AddEditGuard EditLockLost EditLocked EditLockedModel EditResult EditingError announce check_in check_out extend
    fence status_of take_over writing
"""


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("django_lockstep.locking", LOCKING),
        ("django_lockstep.leases", LEASES),
        ("django_lockstep.editing", EDITING),
        ("accounts.strategies", "STRATEGIES Strategy"),
        ("accounts.abstract", "AbstractAccount AbstractEntry"),
    ],
)
def test_the_public_names_are_these(module: str, names: str) -> None:
    imported = importlib.import_module(module)
    assert imported.__all__ == names.split() == sorted(imported.__all__)
    assert all(hasattr(imported, name) for name in imported.__all__)


# The matrix.


def test_nox_runs_the_tests_on_all_that_the_classifiers_name() -> None:
    pytest.importorskip("nox", reason="nox is not installed")
    listed = require_success(run([sys.executable, "-m", "nox", "--list", "--json"], cwd=ROOT))
    sessions = [session for session in json.loads(listed) if session["name"] == "tests"]
    wanted = product(classified("Programming Language :: Python"), classified("Framework :: Django"))
    assert {(session["python"], session["call_spec"]["django"]) for session in sessions} == {
        # Django 6 needs Python 3.12.
        (python, django)
        for python, django in wanted
        if Version(django) < Version("6") or Version(python) >= Version("3.12")
    }
