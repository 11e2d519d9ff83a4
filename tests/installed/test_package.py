"""What is released: wheels, sdists, metadata, and the names that users may rely on."""

import json
import re
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import astuple
from importlib.metadata import PathDistribution
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.installed.building import PACKAGES, SOURCES, Distribution, build, require_success, run
from tests.support.pages import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LIBRARY, LAB, SHOWCASE = SOURCES


@pytest.fixture(scope="module", params=SOURCES)
def name(request: pytest.FixtureRequest) -> str:
    """Each distribution's name."""
    return str(request.param)


@pytest.fixture(scope="module")
def built(name: str, tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return build(name, tmp_path_factory)


@pytest.fixture(scope="module")
def wheel(built: Distribution) -> dict[str, bytes]:
    """The wheel's files by name."""
    with zipfile.ZipFile(built.wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def sdist(built: Distribution) -> dict[str, bytes]:
    """The sdist's files by name, without the folder that all are in."""
    with tarfile.open(built.sdist) as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name.partition("/")[2]: file.read() for name, file in files.items() if file}


@pytest.fixture(scope="module")
def metadata(built: Distribution) -> PathDistribution:
    name, version, *_ = built.wheel.name.split("-")
    return PathDistribution(zipfile.Path(built.wheel, f"{name}-{version}.dist-info/"))


def requirements(metadata: PathDistribution) -> dict[str, str]:
    """Return the requirements, each with the condition under which it is one."""
    needs = [Requirement(text) for text in metadata.requires or []]
    markers = {need: str(need.marker or "") for need in needs}
    for need in needs:
        need.marker = None
    return {str(need): marker for need, marker in markers.items()}


def classified(prefix: str) -> list[str]:
    """Return the versions that the classifiers name, in their order."""
    matches = [re.fullmatch(rf"{prefix} :: (\d+\.\d+)", classifier) for classifier in PROJECT["classifiers"]]
    return [match[1] for match in matches if match]


def extra(name: str) -> str:
    return f'extra == "{name}"'


# Contents.


def test_the_wheel_holds_every_file_of_its_package_and_nothing_else(name: str, wheel: dict[str, bytes]) -> None:
    files = [path for path in (ROOT / PACKAGES[name]).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    package = {path.relative_to(ROOT).as_posix() for path in files}
    if name == LIBRARY:
        package = {path for path in package if not path.startswith("django_lockstep/lab/")}
    info = {file for file in wheel if file.partition("/")[0].endswith(".dist-info")}
    describing = {f"{PACKAGES[name]}/{file}" for file in ("LICENSE", "README.md", "pyproject.toml")}
    assert set(wheel) - info == package - describing


def test_the_license_is_in_every_wheel_and_sdist(wheel: dict[str, bytes], sdist: dict[str, bytes]) -> None:
    (text_in_wheel,) = (text for name, text in wheel.items() if name.endswith(".dist-info/licenses/LICENSE"))
    assert text_in_wheel == sdist["LICENSE"] == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("name", [LIBRARY], indirect=True)
def test_the_librarys_sdist_is_the_repository(sdist: dict[str, bytes]) -> None:
    listed = run(["git", "ls-files"], cwd=ROOT)
    if listed.returncode:
        pytest.skip(f"this is not a git checkout: {listed.stderr.strip()}")
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    assert tracked - set(sdist) == set()


def test_what_users_read_first_is_in_the_sdist(sdist: dict[str, bytes]) -> None:
    assert {"README.md", "LICENSE", "PKG-INFO", "pyproject.toml"} <= set(sdist)


def test_no_file_names_a_path_of_this_machine(wheel: dict[str, bytes], sdist: dict[str, bytes]) -> None:
    here = "|".join(re.escape(str(path)) for path in {ROOT, Path.home()} if path.name)
    pattern = re.compile(rf"(?:{here})/\w".encode())
    files = {**wheel, **sdist}
    assert {name: match[0] for name, text in files.items() if (match := pattern.search(text))} == {}


# Metadata.


def test_the_package_index_would_take_it(built: Distribution) -> None:
    pytest.importorskip("twine", reason="twine is not installed")
    require_success(run([sys.executable, "-m", "twine", "check", "--strict", *map(str, astuple(built))], cwd=ROOT))


def test_the_metadata_says_what_it_is(name: str, metadata: PathDistribution) -> None:
    said = metadata.metadata
    assert said["Name"] == name
    assert (said["License-Expression"], said["License-File"]) == ("MIT", "LICENSE")
    assert {url.partition(",")[0] for url in said.get_all("Project-URL") or []} == {"Changelog", "Issues", "Repository"}


def test_all_have_the_same_version_python_and_django(metadata: PathDistribution) -> None:
    said = metadata.metadata
    assert (said["Version"], said["Requires-Python"]) == (PROJECT["version"], PROJECT["requires-python"])
    shared = re.compile(r"Programming Language|Framework :: Django")
    assert list(filter(shared.match, said.get_all("Classifier") or [])) == list(
        filter(shared.match, PROJECT["classifiers"])
    )


def test_the_readme_is_its_description(name: str, metadata: PathDistribution) -> None:
    assert metadata.metadata["Description-Content-Type"] == "text/markdown"
    readme = (SOURCES[name] / "README.md").read_text()
    assert (metadata.read_text("METADATA") or "").endswith("\n\n" + readme)


def test_it_needs_what_it_imports(name: str, metadata: PathDistribution) -> None:
    needs = {
        # Which build of psycopg, [binary] or [c], is the project's choice.
        LIBRARY: {
            "django>=5.2": "",
            "psycopg>=3.2": "",
            "django-ninja>=1.7": extra("api"),
            "djangorestframework>=3.16": extra("drf"),
            "boto3>=1.34": extra("dynamodb"),
            "strawberry-graphql-django>=0.93": extra("graphql"),
        },
        LAB: {
            f"django-lockstep=={PROJECT['version']}": "",
            "pygments>=2.17": "",
            "rich>=13": "",
            "sqlglot>=28": "",
            "distributed>=2025.2": extra("cluster"),
            "django-htmx>=1.29": extra("pages"),
            "matplotlib>=3.9": extra("plot"),
        },
        SHOWCASE: {
            f"django-lockstep=={PROJECT['version']}": "",
            "django-concurrency>=2.8": extra("concurrency"),
            "django-lockstep[dynamodb]": extra("dynamodb"),
            f"django-lockstep-lab=={PROJECT['version']}": extra("lab"),
            f"django-lockstep-lab[plot]=={PROJECT['version']}": extra("plot"),
        },
    }
    assert requirements(metadata) == needs[name]


def test_the_lab_alone_brings_the_pytest_plugin(name: str, metadata: PathDistribution) -> None:
    plugins = {(entry.group, entry.name, entry.value) for entry in metadata.entry_points}
    assert plugins == ({("pytest11", "race", "django_lockstep.lab.pytest_plugin")} if name == LAB else set())


def test_the_classifiers_agree_with_what_it_requires() -> None:
    (django,) = (need for need in map(Requirement, PROJECT["dependencies"]) if need.name == "django")
    for versions, required in (
        (classified("Programming Language :: Python"), PROJECT["requires-python"]),
        (classified("Framework :: Django"), str(django.specifier)),
    ):
        assert required == f">={versions[0]}"
        assert versions == sorted(versions, key=Version)


# The matrix.


def test_nox_runs_the_tests_on_all_that_the_classifiers_name() -> None:
    pytest.importorskip("nox", reason="nox is not installed")
    listed = require_success(run([sys.executable, "-m", "nox", "--list", "--json"], cwd=ROOT))
    sessions = [session for session in json.loads(listed) if session["name"] == "tests"]
    versions = product(classified("Programming Language :: Python"), classified("Framework :: Django"))
    assert {(session["python"], session["call_spec"]["django"]) for session in sessions} == {
        # Django 6 needs Python 3.12.
        (python, django)
        for python, django in versions
        if Version(django) < Version("6") or Version(python) >= Version("3.12")
    }
