"""The operations by GraphQL: each does what it does by Python and by HTTP."""

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from strawberry_django.management.commands import export_schema

from django_lockstep.editing import check_out, checks
from django_lockstep.editing.graphql.execution import schema
from django_lockstep.editing.models import Status
from tests.django_lockstep.editing.graphql.asking import (
    CHECK_IN,
    CHECK_OUT,
    EXTEND,
    OUT,
    STATUS,
    TABLES,
    TAKE_OVER,
    TRANSITION,
    Asker,
)
from tests.django_lockstep.editing.people import CLOSING, OPENING, Caller, held
from tests.support.pages import ROOT
from tests.testapps.press.models import Article, Author, Tag

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.editing.urls")]
LOCKED_AUTHOR = [{"table_name": "press.author", "record": "", "current_status": "locked"}]


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_example_of_the_documentation(editor: Asker) -> None:
    (opening,) = blocks("graphql", (ROOT / "docs" / "reference" / "editing-api.md").read_text("utf-8"))
    opened = editor.post(opening).json()["data"]["transition"]
    assert opened.pop("token")
    assert opened == {
        "lock_result": True,
        "fk_current_status": [{"table_name": "press.author", "current_status": "locked"}],
    }


def test_the_second_user_is_told_who_has_it_since_when_and_by_what(editor: Asker, rival: Asker) -> None:
    mine = editor.ask(TRANSITION, wanted={**OPENING, "note": "back at three"})
    refused = rival.ask(CHECK_OUT, table="press.Review")
    assert (refused["lock_result"], refused["current_status"], refused["token"]) == (False, "normal", None)
    assert refused["fk_current_status"] == LOCKED_AUTHOR
    assert (refused["editor"], refused["locked_by"], refused["since"]) == ("ada", "press.article", mine["since"])
    (hold,) = refused["must_end"]
    assert (hold["editor"], hold["locked_by"], hold["note"]) == ("ada", "press.article", "back at three")
    assert hold["holds"] == [{"table_name": "press.author"}]
    back = editor.ask(TRANSITION, wanted={**CLOSING, "token": mine["token"]})
    assert (back["lock_result"], back["current_status"], held()) == (True, "normal", set())


def test_both_apis_tell_the_same(editor: Asker) -> None:
    editor.ask(CHECK_OUT, table="press.article")
    by_http = Caller(editor.user).get("/tables/press.article").json()
    by_graphql = editor.ask(STATUS, table="press.article")
    by_graphql["holder"] = by_graphql.pop("editor")
    times = {"since", "expires_at", "must_end"}  # each API writes times in its own form of ISO 8601
    assert set(by_graphql) == set(by_http)
    assert [by_graphql[name] for name in by_http if name not in times] == [
        by_http[name] for name in by_http if name not in times
    ]
    assert [len(answer["must_end"]) for answer in (by_graphql, by_http)] == [1, 1]


def test_a_record_does_the_same(editor: Asker) -> None:
    author = Author.objects.create(name="Lovelace")
    out = editor.ask(CHECK_OUT, table="press.author", record=str(author.pk), options={"ttl": 60})
    assert (out["record"], out["locked_by"]) == (str(author.pk), f"press.author:{author.pk}")
    longer = editor.ask(EXTEND, table="press.author", record=str(author.pk), token=out["token"], ttl=600)
    assert longer["expires_at"] > out["expires_at"]
    assert editor.ask(OUT, table="press.author") == [
        {"table": "press.author", "record": str(author.pk), "editor": "ada"}
    ]
    back = editor.ask(CHECK_IN, table="press.author", record=str(author.pk), token=out["token"])
    assert (back["current_status"], held()) == ("normal", set())


def test_what_a_check_out_locks_is_an_option(editor: Asker) -> None:
    out = editor.ask(CHECK_OUT, table="press.article", options={"related": "none", "require_token": True})
    assert (out["lock_result"], out["fk_current_status"]) == (True, [])
    assert editor.fail(CHECK_IN, table="press.article")["code"] == "FORBIDDEN"
    assert editor.ask(CHECK_IN, table="press.article", token=out["token"])["lock_result"]


def test_taking_over(editor: Asker, rival: Asker) -> None:
    token = editor.ask(CHECK_OUT, table="press.article")["token"]
    assert rival.fail(TAKE_OVER, table="press.article")["code"] == "FORBIDDEN"
    rival.user.user_permissions.add(Permission.objects.get(codename="take_over_editlock"))
    assert rival.ask(TAKE_OVER, table="press.article")["lock_result"]
    assert "was taken over by bob" in editor.ask(STATUS, table="press.article", token=token)["lost"]
    lost = editor.fail(EXTEND, table="press.article", token=token)
    assert (lost["code"], lost["status"], lost["how"], lost["by"]) == ("CONFLICT", 409, "taken over", "bob")


def test_only_what_the_user_may_see_is_listed(editor: Asker, rival: Asker) -> None:
    check_out(Tag, rival.user)
    check_out(Article, rival.user)
    assert {status["table"] for status in editor.ask(TABLES)} == {"press.article", "press.author", "press.review"}
    assert editor.ask(OUT) == [{"table": "press.article", "record": "", "editor": "bob"}]


# The schema, as it is exported, and where it is mounted


EXPORTED = Path(checks.__file__).with_name("graphql") / "schema.graphql"


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
    arguments = [(kind, name, value) for kind, _, part in parts for name, value in getattr(part, "args", {}).items()]
    assert [f"{kind}.{name}" for kind, name, part in parts + arguments if not part.description] == []


def members(kind: Any) -> Any:
    return {**getattr(kind, "fields", {}), **getattr(kind, "values", {})}
