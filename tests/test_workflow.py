"""The workflow of GitHub and the hooks of pre-commit, which nothing here can run, say what they should."""

import re
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent


def loaded(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def classified(name: str) -> list[str]:
    """Return the versions that the classifiers name."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    return re.findall(rf"^{name} :: (\d+\.\d+)$", "\n".join(classifiers), re.MULTILINE)


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    workflow: dict[str, Any] = loaded(".github/workflows/tests.yml")
    return dict(workflow["jobs"])


def test_one_job_is_what_ci_runs(jobs: dict[str, Any]) -> None:
    assert ".ci/run" in [step.get("run") for step in jobs["ci"]["steps"]]


def test_the_matrix_has_every_version_that_the_classifiers_name(jobs: dict[str, Any]) -> None:
    matrix = jobs["matrix"]["strategy"]["matrix"]
    assert (matrix["python"], matrix["django"]) == (
        classified("Programming Language :: Python"),
        classified("Framework :: Django"),
    )
    assert matrix["postgresql"] == ["14", "15", "16", "17", "18"]


def test_it_leaves_out_what_cannot_be_installed(jobs: dict[str, Any]) -> None:
    matrix = jobs["matrix"]["strategy"]["matrix"]
    impossible = [pair for pair in product(matrix["python"], matrix["django"]) if pair[0] < "3.12" and pair[1] >= "6"]
    assert [(pair["python"], pair["django"]) for pair in matrix["exclude"]] == impossible


def test_its_tests_run_on_the_service(jobs: dict[str, Any]) -> None:
    job = jobs["matrix"]
    service = job["services"]["postgresql"]
    assert service["image"] == "postgres:${{ matrix.postgresql }}"
    assert (
        f":{service['env']['POSTGRES_PASSWORD']}@localhost:{service['ports'][0].partition(':')[0]}/"
        in (job["env"]["DATABASE_URL"])
    )
    assert job["steps"][-1] == {"run": "pytest"}


def test_pre_commit_runs_tools_that_the_dependency_groups_pin() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    pinned = {line.partition("==")[0] for group in groups.values() for line in group if isinstance(line, str)}
    (repository,) = loaded(".pre-commit-config.yaml")["repos"]
    tools = {hook["entry"].split()[0].replace("lint-imports", "import-linter") for hook in repository["hooks"]}
    assert repository["repo"] == "local"
    assert tools <= pinned
