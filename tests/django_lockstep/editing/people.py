"""People at the admin, without a browser; programs at the HTTP API; and what is checked out."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db.models import F
from django.test import Client

from django_lockstep.editing.models import CheckOut, EditLock
from django_lockstep.editing.results import EditResult, TableStatus
from django_lockstep.editing.tokens import issue
from tests.support.factories import UserFactory, client_of
from tests.testapps.press.models import Article, Author

API = "/editing/api"

OPENING: dict[str, Any] = {
    "table": "press.Article",
    "current_status": "normal",
    "target_status": "editing",
    "fk_tables": ["press.Author"],
    "fk_current_status": ["normal"],
    "fk_target_status": ["locked"],
}
CLOSING: dict[str, Any] = {
    **OPENING,
    "current_status": "editing",
    "target_status": "normal",
    "fk_current_status": ["locked"],
    "fk_target_status": ["normal"],
}


def allow(user: Any, *names: str) -> Any:
    permissions = Permission.objects.filter(content_type__app_label="press", codename__in=names)
    assert len(permissions) == len(names)
    user.user_permissions.add(*permissions)
    return user


class Caller:
    """A program with a token."""

    def __init__(self, user: Any) -> None:
        self._client = Client(headers={"Authorization": f"Bearer {issue(user)}"})

    def post(self, path: str, **data: Any) -> Any:
        return self._client.post(f"{API}{path}", data, content_type="application/json")

    def get(self, path: str) -> Any:
        return self._client.get(f"{API}{path}")


class Person:
    """Somebody at the admin."""

    def __init__(self, name: str, *permissions: str) -> None:
        self.user = UserFactory.create(username=name, is_staff=True)
        press = Permission.objects.filter(content_type__app_label="press")
        self.user.user_permissions.add(*press, *Permission.objects.filter(codename__in=permissions))
        self.client = client_of(self.user)

    def opens(self, instance: Any) -> Any:
        return self.client.get(change(instance))

    def saves(self, page: Any, instance: Any, **values: Any) -> Any:
        return self.client.post(change(instance), {**filled(page), **values})


def filled(page: Any) -> dict[str, Any]:
    """Return what the page's form sends as it is."""
    form = page.context["adminform"].form
    data = {name: form[name].value() or "" for name in form.fields}
    for formset in page.context["inline_admin_formsets"]:
        counts = {"TOTAL": formset.formset.total_form_count(), "INITIAL": formset.formset.initial_form_count()}
        data |= {f"comment_set-{name}_FORMS": count for name, count in counts.items()}
    return {**data, "_edit_token": page.context["edit_lock"]["token"]}


def change(instance: Any) -> str:
    return f"/admin/press/{instance._meta.model_name}/{instance.pk}/change/"


@pytest.fixture
def ada() -> Person:
    return Person("ada")


@pytest.fixture
def bob() -> Person:
    return Person("bob")


@pytest.fixture
def article(db: None) -> Article:
    return Article.objects.create(title="Old", author=Author.objects.create(name="Lovelace"))


def fresh(instance: Any) -> Any:
    return type(instance).objects.get(pk=instance.pk)


def statuses(result: EditResult) -> dict[str, str]:
    """Return the statuses of what is referred to, by name."""
    return {f"{row.table_name}:{row.record}".rstrip(":"): row.current_status for row in result.fk_current_status}


def expire(*results: EditResult) -> None:
    """Let these check-outs expire by turning the database's rows back, instead of waiting."""
    for result in results:
        rows = CheckOut.objects.filter(model=result.table, object_pk=result.record, ended_at=None)
        rows.update(since=F("since") - timedelta(hours=2), expires_at=F("expires_at") - timedelta(hours=2))


def held() -> set[tuple[str, str, Any]]:
    """Return everything that anybody holds: what, how, and whose."""
    locks = EditLock.objects.select_related("check_out__editor")
    return {(str(lock), lock.status, lock.check_out.editor.get_username()) for lock in locks}


def table(name: str, status: str) -> TableStatus:
    return TableStatus(table_name=name, current_status=status)
