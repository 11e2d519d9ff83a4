"""Forks of a test at a request: what they show, and that the test does not notice."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.sessions.base_session import AbstractBaseSession
from django.core import mail
from django.core.mail import send_mail
from django.core.signals import got_request_exception, request_finished, request_started
from django.db import close_old_connections, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.template import Context, Template
from django.test import Client, RequestFactory, override_settings
from django.test.signals import template_rendered
from django.test.utils import isolate_apps
from django.urls import path

from django_lockstep.lab.explorer import Exploration, NotExplorable
from django_lockstep.lab.finder.confirm.forks import Fork, RequestActor, not_compared
from django_lockstep.lab.finder.record.interception import intercept
from tests.testapps.seeded_shop.racing.models import Product

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_urls")]


def buy(request: HttpRequest, pk: int) -> HttpResponse:
    product = Product.objects.get(pk=pk)
    product.stock -= int(request.body)
    product.save()
    send_mail("Bought", product.name, None, ["shop@example.org"])
    return HttpResponse(Template("{{ name }}").render(Context({"name": product.name})))


def break_down(request: HttpRequest) -> HttpResponse:
    Product.objects.create(name="Broken")
    raise ValueError


urlpatterns = [path("buy/<int:pk>/", buy), path("break/", break_down)]


@pytest.fixture
def _urls() -> Iterator[None]:
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[]):
        yield


@pytest.fixture
def product() -> Product:
    return Product.objects.create(name="Kettle", stock=10)


@contextmanager
def forking() -> Iterator[list[tuple[Fork, Exploration]]]:
    """Explore each request with itself before it is sent."""
    forks: list[tuple[Fork, Exploration]] = []

    def on_request(handler: Any, environ: dict[str, Any], call_next: Any) -> Any:
        actor = RequestActor.of(environ, call_next)
        fork = Fork({"A": actor, "B": actor})
        forks.append((fork, fork.explore(seconds=20)))
        return call_next(environ)

    with intercept(on_request):
        yield forks


def test_a_race_is_found_and_the_test_goes_on(product: Product) -> None:
    outbox = mail.outbox
    with forking() as forks:
        response = Client().post(f"/buy/{product.pk}/", "3", content_type="text/plain")

    ((_, exploration),) = forks
    assert exploration.verdict == "broken", exploration.reason
    assert any("stock 7 instead of 4" in text for outcome in exploration.outcomes for text in outcome.differences)
    product.refresh_from_db()
    assert (response.status_code, response.content, product.stock) == (200, b"Kettle", 7)
    # The test's own records have only what it did.
    assert mail.outbox is outbox
    assert [message.body for message in outbox] == ["Kettle"]
    assert len(response.templates) == 1
    assert response.context["name"] == "Kettle"


def test_signals_have_the_receivers_that_they_had(product: Product) -> None:
    signals = (got_request_exception, request_finished, request_started, template_rendered)
    before = [{key for key, *_ in signal.receivers} for signal in signals]
    with forking():
        Client().post(f"/buy/{product.pk}/", "3", content_type="text/plain")

    assert [{key for key, *_ in signal.receivers} for signal in signals] == before
    for signal in (request_finished, request_started):
        assert signal.disconnect(close_old_connections)
        signal.connect(close_old_connections)


def test_a_view_that_raises() -> None:
    client = Client(raise_request_exception=False)
    with forking() as forks:
        response = client.get("/break/")

    ((_, exploration),) = forks
    assert exploration.verdict == "nothing found"
    assert {answer for end in exploration.outcomes for answer in end.results.values()} == {"status 500 ValueError"}
    assert response.exc_info[0] is ValueError  # type: ignore[attr-defined]
    assert Product.objects.count() == 1
    # In the test it is raised as without a fork.
    with forking() as forks, pytest.raises(ValueError, match="^$"):
        Client().get("/break/")
    assert len(forks) == 1


def test_a_schedule_is_repeated_with_the_values_read(product: Product) -> None:
    with forking() as forks:
        Client().post(f"/buy/{product.pk}/", "3", content_type="text/plain")
        ((fork, exploration),) = forks
        product.stock = 10
        product.save()
        assert exploration.failure
        run = fork.replay(exploration.failure.schedule)

    assert any(values.get("stock") == "10" for step in run.steps for values in step.values)
    product.refresh_from_db()
    assert product.stock == 10


def test_not_within_a_transaction(product: Product) -> None:
    with (
        forking() as forks,
        transaction.atomic(),
        pytest.raises(NotExplorable, match="opened a transaction around the request or call"),
    ):
        Client().post(f"/buy/{product.pk}/", "3", content_type="text/plain")

    assert forks == []
    assert not connection.in_atomic_block


def test_names_are_those_of_recordings() -> None:
    def named(environ: dict[str, Any]) -> str:
        return RequestActor.of(environ, lambda environ: HttpResponse()).name

    assert named(RequestFactory().post("/buy/3/").environ) == "POST buy/<int:pk>/"
    assert named(RequestFactory().get("/unknown/").environ) == ""


def test_an_actor_is_named_by_method_and_path_without_texts() -> None:
    def title(method: str, route: str, **kept: Any) -> str:
        environ = RequestFactory().generic(method, route).environ
        return RequestActor(environ, b"", lambda environ: HttpResponse(), **kept).title

    class Urls:
        urlpatterns = [path("users/<slug:name>/seats/<int:pk>/", buy)]

    with override_settings(ROOT_URLCONF=Urls):
        assert title("POST", "/users/ada/seats/7/") == "POST /users/…/seats/7/"
        assert title("POST", "/users/ada/seats/7/", is_copy=True) == "POST /users/…/seats/7/ by another user"
        assert title("GET", "/nowhere/") == "GET /nowhere/"


@isolate_apps("tests.testapps.shop")
def test_what_every_request_may_write_is_not_compared_in_models_of_the_project_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Visit(AbstractBaseSession):
        class Meta:
            app_label, db_table = "shop", "visits"

    class Person(AbstractBaseUser):
        class Meta:
            app_label, db_table = "shop", "people"

    columns = {"django_session.*", "django_admin_log.*", "auth_user.last_login"}
    assert set(not_compared()) == columns
    models = SimpleNamespace(get_models=lambda: [Visit, Person, Product])
    monkeypatch.setattr("django_lockstep.lab.finder.confirm.forks.apps", models)
    cache = {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "cached"}
    with override_settings(CACHES={"default": cache}):
        assert set(not_compared()) == {"visits.*", "cached.*", "django_admin_log.*", "people.last_login"}
