"""People at the admin, without a browser."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission

from tests.support.factories import UserFactory, client_of
from tests.testapps.press.models import Article, Author


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
