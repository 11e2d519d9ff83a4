"""A row that remembers the highest token that wrote it, and refuses lower ones."""

from collections.abc import Callable

import pytest
from asgiref.sync import async_to_sync

from accounts.leases import StaleToken
from tests.leases.reports.models import Report
from tests.sessions import Gate, Session, gated

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


def test_the_instance_has_what_was_written(report: Report) -> None:
    assert report.update_if_token(6, text="changed") is True
    assert (report.text, report.fencing_token) == stored(report) == ("changed", 6)
    assert report.update_if_token(5, text="late") is False
    assert (report.text, report.fencing_token) == ("changed", 6)


def test_a_save_goes_by_the_instances_token(report: Report) -> None:
    paused = Report.objects.get(pk=report.pk)
    report.fencing_token, report.text = 6, "successor"
    report.save(update_fields=["text"])
    paused.text = "paused"
    with pytest.raises(StaleToken) as caught:
        paused.save()
    assert (caught.value.token, caught.value.found, caught.value.pk) == (5, 6, report.pk)
    assert stored(report) == ("successor", 6)


def test_a_delete_does_too(report: Report) -> None:
    paused = Report.objects.get(pk=report.pk)
    report.update_if_token(6)
    with pytest.raises(StaleToken):
        paused.delete()
    report.delete()
    assert not Report.objects.exists()


def test_the_transaction_goes_on_after_a_refusal(report: Report) -> None:
    with pytest.raises(StaleToken):
        Report(pk=report.pk, text="copy", fencing_token=4).save()
    assert stored(report) == ("new", 5)


@pytest.mark.django_db(transaction=True)
def test_who_comes_between_look_and_write_waits(
    report: Report, other: Session, open_session: Callable[[], Session]
) -> None:
    gate = Gate("UPDATE")
    report.text = "first"
    first = other.start(gated, gate, report.save)
    gate.wait_until_reached()
    second = open_session()
    late = second.start(Report.objects.update_if_token, report.pk, 6, text="second")
    second.wait_until_blocked()
    gate.open()
    first.result(20)
    assert late.result(20) is True
    assert stored(report) == ("second", 6)


@pytest.mark.parametrize("token", [0, True, "6"])
def test_what_is_no_token_is_named(report: Report, token: object) -> None:
    with pytest.raises(ValueError, match="token must be a whole number of at least 1"):
        report.update_if_token(token)  # type: ignore[arg-type]


def test_from_async_code(report: Report) -> None:
    async def story() -> list[bool]:
        return [
            await report.aupdate_if_token(6, text="changed"),
            await Report.objects.aupdate_if_token(report.pk, 5, text="late"),
        ]

    assert async_to_sync(story)() == [True, False]
