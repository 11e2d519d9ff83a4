"""The workflows of GitHub and the hooks of pre-commit, which nothing here can run, say what they should."""

import json
import re
import tomllib
from itertools import product
from typing import Any

import pytest
import yaml

from tests.support.pages import ROOT

MOST_JOBS = 12
"""On a push."""


def loaded(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def classified(name: str) -> list[str]:
    """Return the versions that the classifiers name."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    return re.findall(rf"^{name} :: (\d+\.\d+)$", "\n".join(classifiers), re.MULTILINE)


VERSIONS = {
    "python": classified("Programming Language :: Python"),
    "django": classified("Framework :: Django"),
    "postgresql": ["15", "16", "17", "18"],
}


@pytest.fixture(scope="module")
def on_a_push() -> dict[str, Any]:
    workflow: dict[str, Any] = loaded(".github/workflows/tests.yml")
    return dict(workflow["jobs"])


@pytest.fixture(scope="module")
def matrix() -> dict[str, Any]:
    """The job that each combination of versions is."""
    workflow: dict[str, Any] = loaded(".github/workflows/matrix.yml")
    return dict(workflow["jobs"]["tests"])


def versions(job: dict[str, Any]) -> dict[str, list[str]]:
    """Return the versions that a job hands to the matrix."""
    assert job["uses"] == "./.github/workflows/matrix.yml"
    return {axis: json.loads(values) for axis, values in job["with"].items()}


def combinations(axes: dict[str, list[str]]) -> list[tuple[str, ...]]:
    return [job for job in product(*axes.values()) if not (job[0] < "3.12" and job[1] >= "6")]


def test_one_job_is_what_ci_runs(on_a_push: dict[str, Any]) -> None:
    assert ".ci/run" in [step.get("run") for step in on_a_push["ci"]["steps"]]


def test_a_push_tests_the_oldest_and_the_newest_versions(on_a_push: dict[str, Any]) -> None:
    assert versions(on_a_push["ends"]) == {axis: [every[0], every[-1]] for axis, every in VERSIONS.items()}


def test_a_push_has_few_jobs(on_a_push: dict[str, Any]) -> None:
    sessions = on_a_push["chores"]["strategy"]["matrix"]["sessions"]
    assert len(on_a_push) - 2 + len(sessions) + len(combinations(versions(on_a_push["ends"]))) <= MOST_JOBS


def test_the_chores_are_those_of_nox(on_a_push: dict[str, Any]) -> None:
    sessions = " ".join(on_a_push["chores"]["strategy"]["matrix"]["sessions"]).split()
    defined = re.findall(r"^@nox\.session\ndef (\w+)", (ROOT / "noxfile.py").read_text(), re.MULTILINE)
    assert sorted(sessions) == sorted(defined)


def test_every_version_is_tested_at_night() -> None:
    assert versions(loaded(".github/workflows/nightly.yml")["jobs"]["matrix"]) == VERSIONS


def test_the_matrix_leaves_out_what_cannot_be_installed(matrix: dict[str, Any]) -> None:
    impossible = [
        pair for pair in product(VERSIONS["python"], VERSIONS["django"]) if pair[0] < "3.12" and pair[1] >= "6"
    ]
    assert [(pair["python"], pair["django"]) for pair in matrix["strategy"]["matrix"]["exclude"]] == impossible


def test_its_tests_run_on_the_service(matrix: dict[str, Any]) -> None:
    service = matrix["services"]["postgresql"]
    assert service["image"] == "postgres:${{ matrix.postgresql }}"
    assert (
        f":{service['env']['POSTGRES_PASSWORD']}@localhost:{service['ports'][0].partition(':')[0]}/"
        in (matrix["env"]["DATABASE_URL"])
    )
    assert matrix["steps"][-1] == {"run": "pytest"}


def test_pre_commit_runs_tools_that_the_dependency_groups_pin() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    pinned = {line.partition("==")[0] for group in groups.values() for line in group if isinstance(line, str)}
    (repository,) = loaded(".pre-commit-config.yaml")["repos"]
    tools = {hook["entry"].split()[0].replace("lint-imports", "import-linter") for hook in repository["hooks"]}
    assert repository["repo"] == "local"
    assert tools <= pinned
