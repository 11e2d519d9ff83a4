"""The app's system checks, its settings, and its housekeeping."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, models
from django.db.models import F
from django.test.utils import isolate_apps

from django_lockstep.editing import EditLockedModel, check_in, check_out, status_of
from django_lockstep.editing.checks import check_databases, check_middleware, check_order_of_bases
from django_lockstep.editing.conf import check_settings
from django_lockstep.editing.models import CheckOut
from tests.django_lockstep.editing.people import expire, held
from tests.testapps.press.models import Article, Author

MIDDLEWARE = "django_lockstep.editing.writers.EditLockMiddleware"
AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"


def ids(messages: list[Any]) -> list[str]:
    return [message.id for message in messages]


def test_a_base_that_saves_first_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with isolate_apps("tests.testapps.press"):

        class Stubborn(models.Model):
            class Meta:
                abstract = True

            def save(self, *args: Any, **kwargs: Any) -> None:
                """Do not ask."""

        class Late(Stubborn, EditLockedModel):
            class Meta:
                app_label = "press"

    monkeypatch.setattr("django_lockstep.editing.checks.apps.get_models", lambda: [Late])
    (message,) = check_order_of_bases(None)
    assert (message.id, message.msg) == (
        "lockstep.E021",
        "press.Late inherits EditLockedModel after Stubborn, whose save() runs first.",
    )


def test_a_database_without_guards_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(connections["default"]), "vendor", "mysql")
    assert ids(check_databases(None, databases=["default"])) == ["lockstep.W021"]


@pytest.mark.parametrize(
    ("order", "messages"),
    [([MIDDLEWARE, AUTHENTICATION], ["lockstep.E022"]), ([AUTHENTICATION, MIDDLEWARE], []), ([], [])],
)
def test_the_middleware_needs_to_know_the_user(settings: Any, order: list[str], messages: list[str]) -> None:
    settings.MIDDLEWARE = order
    assert ids(check_middleware(None)) == messages


DURATIONS = ["EDIT_TTL", "EDIT_IDLE", "EDIT_HISTORY", "EDIT_API_TOKEN_AGE", "EDIT_API_MAX_TTL"]


@pytest.mark.parametrize(
    ("name", "value", "check"),
    [
        *((name, "soon", "lockstep.E023") for name in DURATIONS),
        *(("EDIT_API_MAX_DEPTH", value, "lockstep.E060") for value in (-1, True, "3")),
    ],
)
def test_a_setting_that_is_no_duration_or_number_is_named(settings: Any, name: str, value: object, check: str) -> None:
    setattr(settings, f"LOCKSTEP_{name}", value)
    (message,) = check_settings(None)
    assert (message.id, f"LOCKSTEP_{name} must be" in message.msg) == (check, True)
    assert message.msg.endswith(f"not {value!r}")


@pytest.mark.django_db
def test_the_time_to_live_is_a_setting(settings: Any, ada: Any) -> None:
    settings.LOCKSTEP_EDIT_TTL = timedelta(minutes=2)
    result = check_out(Article, ada)
    assert result.since
    assert result.expires_at
    assert timedelta(minutes=1.9) < result.expires_at - result.since < timedelta(minutes=2.1)


@pytest.mark.django_db
def test_purging_ends_what_expired_and_deletes_what_is_old(ada: Any, capsys: pytest.CaptureFixture[str]) -> None:
    check_out(Author, ada)
    check_in(Author, ada)
    expire(check_out(Article, ada))
    CheckOut.objects.filter(model="press.author").update(ended_at=F("ended_at") - timedelta(days=91))
    call_command("purge_check_outs")
    assert capsys.readouterr().out == "Expired check-outs ended: 1; old check-outs deleted: 1\n"
    assert [row.ended_how for row in CheckOut.objects.all()] == ["expired"]
    assert held() == set()


@pytest.mark.django_db
def test_purging_leaves_what_lasts(ada: Any) -> None:
    check_out(Article, ada)
    call_command("purge_check_outs", verbosity=0)
    assert status_of(Article).current_status == "editing"
