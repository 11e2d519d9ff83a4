"""`AddEditGuard`: writers outside Django obey as well."""

from typing import Any

import pytest
from django.db import InternalError, OperationalError, transaction
from django.db.utils import NotSupportedError

from django_lockstep.editing import EditLocked, check_in, check_out, require_editable, writing
from django_lockstep.errors import sqlstate_of
from django_lockstep.locking import isolated_transaction
from tests.django_lockstep.editing.people import expire
from tests.support.sessions import Session, query
from tests.testapps.press.models import Author, Cell, Review

pytestmark = pytest.mark.django_db


@pytest.fixture
def review() -> Review:
    return Review.objects.create(author=Author.objects.create(), text="Old")


def sql(*statements: str) -> None:
    """Write as psql would, in one transaction."""
    with transaction.atomic():
        for statement in statements:
            query(statement)


WRITES = {
    "update": "UPDATE press_review SET text = 'New'",
    "delete": "DELETE FROM press_review",
    "new key": "UPDATE press_review SET id = id + 1",
}


@pytest.mark.parametrize("whole_table", [False, True])
@pytest.mark.parametrize("statement", WRITES.values(), ids=WRITES)
def test_sql_cannot_write_what_somebody_has(ada: Any, review: Review, statement: str, whole_table: bool) -> None:
    check_out(Review if whole_table else review, ada)
    with pytest.raises(OperationalError, match=r"press\.review.* is checked out until") as caught:
        sql(statement)
    assert sqlstate_of(caught.value) == "55006"
    assert query("SELECT text FROM press_review") == "Old"


def test_new_rows_need_the_table_only(ada: Any, review: Review) -> None:
    insert = f"INSERT INTO press_review (text, author_id) VALUES ('', {review.author_id})"
    check_out(review, ada)
    sql(insert)
    check_in(review, ada)
    check_out(Review, ada)
    with pytest.raises(OperationalError):
        sql(insert)
    assert query("SELECT count(*) FROM press_review") == 2


def test_the_token_lets_its_owner_pass(ada: Any, review: Review) -> None:
    token = check_out(review, ada).token
    sql(f"SELECT set_config('lockstep.edit_token', '{token}', true)", WRITES["update"])
    assert query("SELECT text FROM press_review") == "New"
    with pytest.raises(OperationalError):
        sql("SELECT set_config('lockstep.edit_token', 'another', true)", WRITES["update"])


@pytest.mark.parametrize("known", ["editor_id::text", "digest", "pass_digest"])
def test_what_the_database_knows_lets_nobody_pass(ada: Any, review: Review, known: str) -> None:
    check_out(review, ada)
    setting = f"SELECT set_config('lockstep.edit_token', (SELECT {known} FROM lockstep_editing_checkout), true)"
    with pytest.raises(OperationalError):
        sql(setting, WRITES["update"])


def test_an_editor_without_a_token_passes_checked_write(ada: Any, review: Review) -> None:
    others = Review.objects.create(author=review.author)
    check_out(review, ada, related="none")
    check_out(others, ada, related="none")
    with transaction.atomic(), writing(ada):
        require_editable(Review, [review.pk, others.pk])
        Review.objects.update(text="New")
    assert set(Review.objects.values_list("text", flat=True)) == {"New"}


def test_an_expired_check_out_keeps_nobody_out(ada: Any, review: Review) -> None:
    expire(check_out(review, ada))
    sql(WRITES["update"])


def test_a_key_of_two_columns_is_the_same_in_sql(ada: Any) -> None:
    cell = Cell.objects.create(row='ä "1"', column=3)
    check_out(cell, ada)
    with pytest.raises(OperationalError):
        sql("UPDATE press_cell SET text = 'New'")


def test_saves_of_who_has_it_pass_both(ada: Any, review: Review) -> None:
    token = check_out(review, ada).token or ""
    for said in ({"token": token}, {}):
        review.text += "!"
        with writing(ada, **said):
            review.save()
    with pytest.raises(EditLocked):
        review.save()


def test_a_writer_is_forgotten_by_the_next_guarded_write(ada: Any, review: Review) -> None:
    token = check_out(review, ada, related="none").token or ""
    with transaction.atomic():
        with writing(ada, token=token):
            review.save()
        Author.objects.create()
        with pytest.raises(OperationalError), transaction.atomic():
            Review.objects.update(text="New")


@pytest.mark.django_db(transaction=True)
def test_it_waits_for_a_check_out_under_way(ada: Any, review: Review, other: Session) -> None:
    with transaction.atomic():
        check_out(review, ada)
        answer = other.start(sql, WRITES["update"])
        other.wait_until_blocked()
    assert isinstance(answer.exception(20), OperationalError)


@pytest.mark.django_db(transaction=True)
def test_other_isolation_levels_are_refused(review: Review) -> None:
    with pytest.raises(NotSupportedError, match="READ COMMITTED"), isolated_transaction(isolation_level="serializable"):
        review.save()
    with (
        pytest.raises((NotSupportedError, InternalError), match="READ COMMITTED"),
        isolated_transaction(isolation_level="repeatable read"),
    ):
        Review.objects.update(text="New")
