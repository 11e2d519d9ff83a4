"""A row that remembers the highest token that wrote it, and refuses lower ones."""

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_lockstep.lab.pytest_plugin import RaceFixture
from django_lockstep.leases import StaleToken
from tests.testapps.press.models import Report, SignedNote, SignedReport

pytestmark = pytest.mark.django_db


@pytest.fixture
def report(db: None) -> Report:
    return Report.objects.create(text="new", fencing_token=5)


def stored(report: Report) -> tuple[str, int]:
    row = Report.objects.get(pk=report.pk)
    return row.text, row.fencing_token


@pytest.mark.parametrize(("token", "written"), [(4, False), (5, True), (6, True)])
def test_a_row_refuses_lower_tokens(report: Report, token: int, written: bool) -> None:
    assert Report.objects.update_if_token(report.pk, token, text="changed") is written
    assert stored(report) == (("changed", token) if written else ("new", 5))


def test_a_row_that_is_not_there_is_not_written() -> None:
    assert Report.objects.update_if_token(7, 1, text="changed") is False
    assert not Report.objects.exists()


def test_a_save_goes_by_the_instances_token(report: Report) -> None:
    paused = Report.objects.get(pk=report.pk)
    report.fencing_token, report.text = 6, "successor"
    report.save(update_fields=["text"])
    paused.text = "paused"
    with pytest.raises(StaleToken) as caught:
        paused.save()
    assert (caught.value.token, caught.value.actual, caught.value.pk) == (5, 6, report.pk)
    assert stored(report) == ("successor", 6)


def test_a_delete_does_too(report: Report) -> None:
    paused = Report.objects.get(pk=report.pk)
    report.update_if_token(6)
    with pytest.raises(StaleToken):
        paused.delete()
    report.delete()
    assert not Report.objects.exists()


@pytest.mark.parametrize("write", ["save", "delete"])
@pytest.mark.parametrize("read", [Report.objects.defer("fencing_token"), Report.objects.only("text")])
def test_an_instance_without_its_token_is_refused_before_any_sql(report: Report, read: Any, write: str) -> None:
    partial = read.get(pk=report.pk)
    Report.objects.update_if_token(report.pk, 6, text="successor")
    refused = pytest.raises(ValueError, match=r"Report \d+ was read without its 'fencing_token' \(only or defer\)")
    with CaptureQueriesContext(connection) as captured, refused:
        getattr(partial, write)()
    assert not captured.captured_queries
    assert stored(report) == ("successor", 6)


def test_an_instance_that_was_given_a_token_goes_by_it(report: Report) -> None:
    partial = Report.objects.only("text").get(pk=report.pk)
    partial.text, partial.fencing_token = "late", 4
    with pytest.raises(StaleToken):
        partial.save()
    partial.fencing_token = 6
    partial.save()
    assert stored(report) == ("late", 6)


# A row in two tables


Signed = SignedReport | SignedNote
in_two_tables = pytest.mark.parametrize("model", [SignedReport, SignedNote])
"""With the token in the table that is inherited from, and in the other."""


def signed(model: type[Signed], *, token: int) -> Signed:
    return model.objects.create(text="new", signer="ada", fencing_token=token)


def both(report: Signed) -> tuple[str, str, int]:
    """Return what both tables hold."""
    row = type(report).objects.get(pk=report.pk)
    return row.text, row.signer, row.fencing_token


def writes(token: int) -> Callable[[Signed], bool]:
    """Return an actor that puts its token into both tables."""
    return lambda report: type(report).objects.update_if_token(report.pk, token, text=token, signer=token)


def saves(report: Signed) -> bool:
    """Save the instance with the token that it was read with."""
    report.text = report.signer = str(report.fencing_token)
    try:
        report.save()
    except StaleToken:
        return False
    return True


@in_two_tables
@pytest.mark.parametrize(("token", "written"), [(4, False), (5, True), (6, True)])
def test_both_tables_are_written_or_none(db: None, model: type[Signed], token: int, written: bool) -> None:
    report = signed(model, token=5)
    assert report.update_if_token(token, text="changed", signer="bob") is written
    assert (report.text, report.signer, report.fencing_token) == both(report)
    assert both(report) == (("changed", "bob", token) if written else ("new", "ada", 5))


@in_two_tables
def test_a_parents_row_alone_is_not_written(db: None, model: type[Signed]) -> None:
    parents: Any = model._meta.pk.related_model
    parent = parents.objects.create(text="new")
    assert model.objects.update_if_token(parent.pk, 6, text="changed") is False
    parent.refresh_from_db()
    assert parent.text == "new"


@in_two_tables
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("paused", [writes(5), saves], ids=["update_if_token", "save"])
def test_a_paused_holder_undoes_nothing_of_its_successors_in_either_table(
    race: RaceFixture, model: type[Signed], paused: Callable[[Signed], bool]
) -> None:
    exploration = race(
        paused, writes(6), set_up=lambda: signed(model, token=5), invariant=lambda report: both(report) == ("6", "6", 6)
    )
    assert {(outcome.results["A"], outcome.results["B"]) for outcome in exploration.outcomes} == {
        ("True", "True"),
        ("False", "True"),
    }


@pytest.mark.django_db(transaction=True)
def test_a_condition_on_another_table_leaves_no_window_either(race: RaceFixture) -> None:
    def writes_if_signed(token: int) -> Callable[[Report], None]:
        @transaction.atomic
        def write(report: Report) -> None:
            Report.objects.filter(signedreport__signer="ada").update_if_token(report.pk, token, text=token)

        return write

    race(
        writes_if_signed(5),
        writes_if_signed(6),
        set_up=lambda: Report.objects.get(pk=signed(SignedReport, token=5).pk),
        invariant=lambda report: stored(report) == ("6", 6),
    )


@pytest.mark.parametrize("token", [0, True, "6", 2**63])
def test_what_is_no_token_is_named(report: Report, token: object) -> None:
    with pytest.raises(ValueError, match="token must be a positive integer"):
        report.update_if_token(token)  # type: ignore[arg-type]


def test_from_async_code(report: Report) -> None:
    async def story() -> list[bool]:
        return [
            await report.aupdate_if_token(6, text="changed"),
            await Report.objects.aupdate_if_token(report.pk, 5, text="late"),
        ]

    assert async_to_sync(story)() == [True, False]
