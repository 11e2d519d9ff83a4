"""A base class of another package has options of its own for save() and delete(), as Wagtail's pages have."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, models
from django.test.utils import isolate_apps

from django_lockstep.leases import FencedModel
from django_lockstep.locking import VersionedModel, ignore_versions

pytestmark = pytest.mark.django_db


class Page(models.Model):
    """Cleans before it saves, unless it is told not to."""

    calls: list[Any]
    title = models.CharField(max_length=5)

    class Meta:
        abstract = True
        app_label = "shop"

    def save(self, *args: Any, clean: bool = True, **kwargs: Any) -> None:
        self.calls.append(("save", clean, kwargs.get("update_fields")))
        super().save(*args, **kwargs)

    def delete(self, *args: Any, user: Any = None, **kwargs: Any) -> Any:
        self.calls.append(("delete", user, kwargs))
        return super().delete(*args, **kwargs)


@pytest.fixture(params=[VersionedModel, FencedModel])
def page(request: pytest.FixtureRequest) -> Iterator[Any]:
    with isolate_apps("tests.testapps.shop"):
        names = {"__module__": __name__, "calls": [], "Meta": type("Meta", (), {"app_label": "shop"})}
        model = type("Leaf", (request.param, Page), names)
        with connection.schema_editor() as editor:
            editor.create_model(model)
        yield model(title="a")


def test_they_reach_it(page: Any) -> None:
    page.save(clean=False)
    page.title = "b"
    page.save(clean=False)
    page.title = "c"
    page.save(update_fields=["title"])
    page.delete(user="ada")
    assert [call[:2] for call in page.calls] == [
        ("save", False),
        ("save", False),
        ("save", True),
        ("delete", "ada"),
    ]
    assert "title" in page.calls[2][2]
    assert page.calls[3][2] == {}  # some hand all to QuerySet.delete(), which knows neither using nor keep_parents


def test_they_reach_it_where_versions_are_ignored(page: Any) -> None:
    page.save()
    with ignore_versions(type(page)):
        page.save(clean=False)
    assert page.calls[1][1] is False


def test_an_option_that_no_class_has_is_an_error(page: Any) -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match="typo"):
            page.save(typo=1)
        page.save()
    with pytest.raises(TypeError, match="typo"):
        page.delete(typo=1)
