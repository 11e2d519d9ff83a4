"""The schema, as it is exported, and where it is mounted."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from strawberry_django.management.commands import export_schema

from django_lockstep.editing import checks
from django_lockstep.editing.graphql.execution import schema
from django_lockstep.editing.models import Status

EXPORTED = Path(checks.__file__).with_name("graphql") / "schema.graphql"
pytestmark = pytest.mark.urls("tests.django_lockstep.editing.urls")


def test_the_exported_schema_is_that_of_the_code() -> None:
    printed = StringIO()
    # By its class: as an app of the demo it would be loaded by every command, which takes as long as all the rest.
    call_command(export_schema.Command(), "django_lockstep.editing.graphql.execution", stdout=printed)
    assert printed.getvalue() == EXPORTED.read_text()


def test_the_statuses_are_those_of_the_table() -> None:
    assert list(members(schema._schema.type_map["Status"])) == Status.values


def test_everything_is_described() -> None:
    kinds = [kind for name, kind in schema._schema.type_map.items() if not name.startswith("__")]
    parts = [(kind, name, part) for kind in kinds for name, part in members(kind).items()]
    arguments = [(kind, name, each) for kind, _, part in parts for name, each in getattr(part, "args", {}).items()]
    assert [f"{kind}.{name}" for kind, name, part in parts + arguments if not part.description] == []


def members(kind: Any) -> Any:
    return {**getattr(kind, "fields", {}), **getattr(kind, "values", {})}


def test_a_project_that_mounts_it_without_the_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.check_graphql(None) == []
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    (message,) = checks.check_graphql(None)
    assert (message.id, message.hint) == ("lockstep.E061", "Install django-lockstep[graphql].")


@pytest.mark.urls("tests.django_lockstep.admin.urls")
def test_one_that_does_not_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    assert checks.check_graphql(None) == []
