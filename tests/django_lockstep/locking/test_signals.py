"""What receivers of ``pre_save`` and ``post_save`` see of a versioned model, and what they can do."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections, models
from django.db.models.signals import ModelSignal, post_save, pre_save
from django.test.utils import CaptureQueriesContext, isolate_apps

from django_lockstep.leases import FencedModel
from django_lockstep.locking import StaleVersionError, VersionedModel, ignore_versions
from tests.django_lockstep.locking.looks import fresh
from tests.testapps.shop.models import BoxSeat, Seat

pytestmark = pytest.mark.django_db

Listen = Callable[[ModelSignal, Callable[[Any], None]], None]


@pytest.fixture(params=[Seat, BoxSeat])
def seat(db: None, request: pytest.FixtureRequest) -> Any:
    return request.param.objects.create()


@pytest.fixture
def listen(seat: Any) -> Iterator[Listen]:
    """Connect a function that is given the signal's instance."""
    connected: list[tuple[ModelSignal, Any]] = []

    def connect(signal: ModelSignal, function: Callable[[Any], None]) -> None:
        def receive(instance: Any, **options: Any) -> None:
            function(instance)

        signal.connect(receive, sender=type(seat), weak=False)
        connected.append((signal, receive))

    yield connect
    for signal, receive in connected:
        signal.disconnect(receive, sender=type(seat))


def test_a_save_without_a_change_is_heard_and_writes_nothing(seat: Any, listen: Listen) -> None:
    heard: list[tuple[str, int]] = []
    listen(pre_save, lambda instance: heard.append(("pre_save", instance.version)))
    listen(post_save, lambda instance: heard.append(("post_save", instance.version)))
    with CaptureQueriesContext(connections["default"]) as sent:
        seat.save()
    assert heard == [("pre_save", 1), ("post_save", 1)]
    assert not [entry["sql"] for entry in sent if entry["sql"].startswith("UPDATE")]
    assert fresh(seat).version == 1


def test_what_a_receiver_of_pre_save_changes_is_written(seat: Any, listen: Listen) -> None:
    listen(pre_save, lambda instance: setattr(instance, "guest", "Ada"))
    seat.save()
    assert (fresh(seat).guest, fresh(seat).version, seat.version) == ("Ada", 2, 2)
    seat.save()
    assert (fresh(seat).version, seat.version) == (2, 2)


def test_a_save_that_was_refused_is_not_heard(seat: Any, listen: Listen) -> None:
    heard: list[int] = []
    stale = fresh(seat)
    assert seat.update_if_unchanged(guest="Ada")
    listen(post_save, lambda instance: heard.append(instance.version))
    stale.guest = "Bob"
    with pytest.raises(StaleVersionError):
        stale.save()
    stale.guest = ""  # as it was read
    with pytest.raises(StaleVersionError):
        stale.save()
    assert not heard


def test_a_receiver_that_saves_the_instance_itself_is_counted_once_each(seat: Any, listen: Listen) -> None:
    def save_again(instance: Any) -> None:
        if not instance.row.endswith("!"):
            instance.row += "!"
            instance.save()

    listen(post_save, save_again)
    seat.guest = "Ada"
    seat.save()
    assert (fresh(seat).guest, fresh(seat).row, fresh(seat).version, seat.version) == ("Ada", "A!", 3, 3)


# Saves that are asked for more than Django's


def test_force_write_raises_the_version_without_a_change(seat: Any) -> None:
    stale = fresh(seat)
    seat.save(force_write=True)
    assert (fresh(seat).version, seat.version) == (2, 2)
    with pytest.raises(StaleVersionError):
        stale.save(force_write=True)


def test_force_write_of_some_fields_writes_these(seat: Any) -> None:
    seat.guest = "Ada"
    seat.save(force_write=True, update_fields=["row"])
    assert (fresh(seat).guest, fresh(seat).version) == ("", 2)


def test_options_are_given_by_name(seat: Any) -> None:
    with pytest.raises(TypeError, match="positional"):
        seat.save(False, True)


# A base class of another package has options of its own for save() and delete(), as Wagtail's pages have


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
