"""Check-outs of tables: the story, with the results that it promises."""

import dataclasses
import json
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser

from django_lockstep.editing import (
    EditLockLost,
    acheck_in,
    acheck_out,
    aextend,
    astatus_of,
    atake_over,
    check_in,
    check_out,
    extend,
    plans,
    status_of,
    take_over,
)
from django_lockstep.editing.errors import NotTheEditor, TakeOverNotAllowed, UnknownRecord, UnknownTable, WrongToken
from django_lockstep.editing.models import CheckOut
from tests.django_lockstep.editing.people import expire, held, table
from tests.testapps.press.models import Article, Author, Review, Tag

pytestmark = pytest.mark.django_db


def test_a_table_is_taken_with_the_table_it_refers_to(ada: Any) -> None:
    result = check_out(Article, ada)
    assert (result.lock_result, result.current_status) == (True, "editing")
    assert result.fk_current_status == (table("press.author", "locked"),)
    assert (result.holder, result.must_end) == ("ada", ())
    assert held() == {("press.article", "editing", "ada"), ("press.author", "locked", "ada")}


def test_the_table_that_is_referred_to_is_refused_to_others(ada: Any, bob: Any) -> None:
    granted = check_out(Article, ada, note="new spelling")
    refused = check_out(Author, bob)
    assert (refused.lock_result, refused.current_status, refused.token) == (False, "locked", None)
    assert (refused.holder, refused.since, refused.expires_at) == ("ada", granted.since, granted.expires_at)
    (hold,) = refused.must_end
    assert (hold.locked_by, hold.editor, hold.note) == ("press.article", "ada", "new spelling")
    assert hold.holds == (table("press.author", "locked"),)


def test_a_table_that_refers_to_it_too_is_refused_and_stays_normal(ada: Any, bob: Any) -> None:
    check_out(Article, ada)
    before = held()
    refused = check_out(Review, bob)
    assert (refused.lock_result, refused.current_status, refused.holder) == (False, "normal", "ada")
    assert refused.fk_current_status == (table("press.author", "locked"),)
    assert held() == before


def test_shared_references_do_not_exclude_each_other(ada: Any, bob: Any) -> None:
    check_out(Article, ada, shared_references=True)
    assert check_out(Review, bob, shared_references=True).lock_result
    assert not check_out(Author, ada).lock_result
    assert check_in(Article, ada).fk_current_status == (table("press.author", "locked"),)
    assert [hold.locked_by for hold in check_out(Author, ada).must_end] == ["press.review"]
    check_in(Review, bob)
    assert check_out(Author, ada).lock_result


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True)])
def test_both_have_to_share(ada: Any, bob: Any, first: bool, second: bool) -> None:
    check_out(Article, ada, shared_references=first)
    assert not check_out(Review, bob, shared_references=second).lock_result


def test_two_tabs_of_one_person_are_told_apart(ada: Any) -> None:
    first = check_out(Article, ada)
    second = check_out(Article, ada)
    assert (second.lock_result, second.holder, second.token) == (False, "ada", None)
    assert take_over(Article, ada).lock_result
    with pytest.raises(EditLockLost, match="taken over by ada"):
        extend(Article, ada, token=first.token)


@pytest.mark.parametrize("operation", [extend, check_in])
def test_a_check_out_may_require_its_token_of_the_same_person_too(ada: Any, operation: Any) -> None:
    token = check_out(Article, ada, require_token=True).token
    with pytest.raises(WrongToken, match=r"press\.article requires its token"):
        operation(Article, ada)
    assert operation(Article, ada, token=token).lock_result


def test_the_status_tells_who_has_it(ada: Any) -> None:
    assert status_of(Article).current_status == "normal"
    granted = check_out(Article, ada)
    seen = status_of(Article)
    assert (seen.lock_result, seen.current_status, seen.holder, seen.token) == (False, "editing", "ada", None)
    assert status_of(Author).current_status == "locked"
    assert status_of(Article, token=granted.token).lock_result


def test_the_status_tells_who_lost_it_how(ada: Any, chief: Any) -> None:
    token = check_out(Article, ada).token
    take_over(Article, chief)
    seen = status_of(Article, token=token)
    assert (seen.lock_result, seen.holder) == (False, "chief")
    assert "was taken over by chief" in (seen.lost or "")
    assert status_of(Article, token="unknown").lost is None


# Expiry.


def test_an_expired_check_out_is_free_to_others(ada: Any, bob: Any) -> None:
    expire(check_out(Article, ada))
    assert status_of(Article).current_status == "normal"
    assert check_out(Review, bob).lock_result
    assert CheckOut.objects.get(editor=ada).ended_how == "expired"
    assert held() == {("press.review", "editing", "bob"), ("press.author", "locked", "bob")}


@pytest.mark.parametrize("operation", [extend, check_in])
def test_its_former_editor_is_told(ada: Any, operation: Any) -> None:
    lost = check_out(Article, ada)
    expire(lost)
    with pytest.raises(EditLockLost, match=r"press\.article expired") as caught:
        operation(Article, ada, token=lost.token)
    assert (caught.value.how, caught.value.by) == ("expired", "")


def test_extending_lasts_from_now(ada: Any) -> None:
    before = check_out(Article, ada, ttl=60)
    after = extend(Article, ada, token=before.token, ttl=timedelta(hours=1))
    assert before.expires_at
    assert after.expires_at
    assert after.expires_at - before.expires_at > timedelta(minutes=58)
    assert (after.lock_result, after.current_status, after.token) == (True, "editing", None)


@pytest.mark.parametrize("ttl", [0, -1, timedelta(0), "60", True, 1e12, timedelta.max])
def test_a_wrong_time_to_live_is_refused(ada: Any, ttl: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="ttl must be"):
        check_out(Article, ada, ttl=ttl)
    assert held() == set()


@pytest.mark.parametrize("note", [None, 7, "\0", "\ud800", "x" * 201])
@pytest.mark.parametrize("operation", [check_out, take_over])
def test_a_note_that_cannot_be_stored_is_refused(ada: Any, operation: Any, note: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="note must"):
        operation(Article, ada, note=note)
    assert held() == set()


@pytest.mark.parametrize("slug", ["a\0", "\ud800"])
@pytest.mark.parametrize("operation", [check_out, check_in, extend, status_of])
def test_a_key_that_cannot_be_stored_is_that_of_no_record(ada: Any, operation: Any, slug: str) -> None:
    options = () if operation is status_of else (ada,)
    with pytest.raises(UnknownRecord, match="cannot be a primary key"):
        operation(Tag(slug=slug), *options)


# Taking over.


def test_taking_over_ends_what_is_in_the_way(ada: Any, bob: Any, chief: Any) -> None:
    lost = check_out(Article, ada, shared_references=True)
    check_out(Review, bob, shared_references=True)
    assert take_over(Author, chief).lock_result
    assert held() == {("press.author", "editing", "chief")}
    with pytest.raises(EditLockLost) as caught:
        check_in(Article, ada, token=lost.token)
    assert (caught.value.how, caught.value.by) == ("taken over", "chief")
    ended = CheckOut.objects.get(editor=ada)
    assert (ended.ended_by, ended.ended_how, ended.ended_at is None) == (chief, "taken over", False)


def test_taking_over_needs_the_permission(ada: Any, bob: Any) -> None:
    check_out(Article, ada)
    before = held()
    with pytest.raises(TakeOverNotAllowed, match=r"lockstep_editing\.take_over_editlock"):
        take_over(Article, bob)
    assert held() == before
    assert take_over(Tag, bob).lock_result, "what is free needs none"


# Wrong use.


@pytest.mark.parametrize("name", ["press.nothing", "nothing", "press.article.x", ""])
def test_an_unknown_table_is_an_error(ada: Any, name: str) -> None:
    with pytest.raises(UnknownTable, match="There is no table"):
        check_out(name, ada)


@pytest.mark.parametrize("operation", [check_in, extend])
def test_somebody_else_or_a_wrong_token_is_an_error(ada: Any, bob: Any, operation: Any) -> None:
    token = check_out(Article, ada).token
    before = held()
    for editor, passed, error in [(bob, None, NotTheEditor), (bob, token, NotTheEditor), (ada, "x", WrongToken)]:
        with pytest.raises(error):
            operation(Article, editor, token=passed)
    assert held() == before


def test_nobody_checks_out_nothing() -> None:
    with pytest.raises(NotTheEditor):
        check_out(Article, AnonymousUser())


@pytest.mark.parametrize(
    "wrong", [{"related": "all"}, {"related": ("references",)}, {"related": None}, {"depth": -1}, {"depth": "2"}]
)
def test_an_unknown_option_is_an_error(ada: Any, wrong: Any) -> None:
    with pytest.raises(ValueError, match="must be|is 'references' or 'none'"):
        check_out(Article, ada, **wrong)


def test_a_record_whose_key_is_too_long_to_be_stored_is_refused(ada: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "LONGEST_KEY", 3)
    with pytest.raises(UnknownRecord, match="has a key of 4 characters"):
        check_out(Tag.objects.create(slug="long"), ada)
    assert check_out(Tag.objects.create(slug="ok"), ada).lock_result


# The result.


def test_the_result_is_frozen_and_json_of_the_same_shape(ada: Any) -> None:
    result = check_out(Article, ada)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.lock_result = False  # type: ignore[misc]
    told = json.loads(json.dumps(result.as_json()))
    assert list(told) == [field.name for field in dataclasses.fields(result)]
    assert told["fk_current_status"] == [{"table_name": "press.author", "current_status": "locked", "record": ""}]
    assert result.since is not None
    assert told["since"] == result.since.isoformat()


def test_the_token_is_kept_as_its_digest_alone(ada: Any) -> None:
    token = check_out(Article, ada).token
    assert token
    assert token not in str(CheckOut.objects.values_list().get())
    assert token not in json.dumps(status_of(Article, token=token).as_json())


def test_each_has_an_asynchronous_twin(ada: Any, bob: Any, chief: Any) -> None:
    async def story() -> list[Any]:
        first = await acheck_out(Article, ada)
        return [
            (await acheck_out(Article, bob)).lock_result,
            (await aextend(Article, ada, token=first.token)).expires_at > first.expires_at,  # type: ignore[operator]
            (await atake_over(Article, chief)).lock_result,
            (await astatus_of(Article)).holder,
            (await acheck_in(Article, chief)).current_status,
        ]

    assert async_to_sync(story)() == [False, True, True, "chief", "normal"]
