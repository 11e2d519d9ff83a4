"""Requests moved from one test to another: keys, users, and what cannot be moved."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from io import BytesIO
from typing import Any, cast

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.handlers.wsgi import WSGIRequest
from django.db import transaction
from django.db.models import F
from django.db.models.signals import post_save
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.test import Client, RequestFactory, override_settings
from django.test.client import ClientHandler
from django.urls import path

from django_lockstep.lab.finder.confirm.clones import session_user
from django_lockstep.lab.finder.confirm.forks import RequestActor
from django_lockstep.lab.finder.confirm.pairings import with_moved
from django_lockstep.lab.finder.confirm.transplants import Captured, DryRun, for_another_object, in_other_order
from django_lockstep.lab.finder.errors import CannotClone
from django_lockstep.lab.finder.record.interception import Call
from tests.django_lockstep.lab.finder.builders import statements_tagged
from tests.testapps.seeded_shop.racing.models import Article, Order, Product

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_urls", "other_test")]


@transaction.atomic
def sell(request: HttpRequest, pk: int) -> HttpResponse:
    product = get_object_or_404(Product, pk=pk)
    if product.stock < 1:
        return HttpResponse(status=409)
    product.stock -= 1
    product.save()
    return HttpResponse()


def order(request: HttpRequest) -> HttpResponse:
    data = json.loads(request.body) if request.content_type == "application/json" else request.POST or request.GET
    product = get_object_or_404(Product, pk=data["product"])
    Product.objects.filter(pk=product.pk).update(stock=F("stock") - int(data["quantity"]))
    return HttpResponse()


@transaction.atomic
def take(request: HttpRequest) -> HttpResponse:
    """Take one of each product, in the order of the request."""
    for pk in [pk for _, pks in request.GET.lists() for pk in pks] or json.loads(request.body):
        Product.objects.filter(pk=pk).update(stock=F("stock") - 1)
    return HttpResponse()


@transaction.atomic
def book(request: HttpRequest, pk: int) -> HttpResponse:
    if Order.objects.filter(quantity=1).exists():
        return HttpResponse(status=409)
    Order.objects.create(product_id=pk, customer=User.objects.get(), quantity=1)
    return HttpResponse()


def look(request: HttpRequest, pk: int) -> HttpResponse:
    get_object_or_404(Product, pk=pk)
    return HttpResponse()


def read(request: HttpRequest, slug: str) -> HttpResponse:
    article = get_object_or_404(Article, slug=slug)
    article.views += 1
    article.save()
    return HttpResponse()


def recall(request: HttpRequest, pk: int) -> HttpResponse:
    user: Any = request.user
    may = user.is_staff and user.has_perm("auth.delete_user") and user.groups.filter(name="managers").exists()
    Product.objects.filter(pk=pk).update(stock=0)
    return HttpResponse(status=200 if may else 403)


urlpatterns = [
    path("products/<int:pk>/sell/", sell),
    path("products/<int:pk>/recall/", recall),
    path("orders/", order),
    path("take/", take),
    path("products/<int:pk>/book/", book),
    path("products/<int:pk>/look/", look),
    path("articles/<slug:slug>/", read),
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]


@pytest.fixture
def _urls() -> Iterator[None]:
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=MIDDLEWARE):
        yield


def request(address: str, data: Any = None, *, user: User | None = None, **options: Any) -> RequestActor:
    headers = {}
    if user is not None:
        client = Client()
        client.force_login(user)
        headers["cookie"] = client.cookies.output(attrs=[], header="", sep=";").strip()
    environ = RequestFactory().post(address, data, headers=headers, **options).environ
    return RequestActor.of(environ, ClientHandler(enforce_csrf_checks=False))


@pytest.fixture
def other_test() -> Product:
    """A product of another test, gone when a request on it has been captured."""
    return Product.objects.create(pk=7, name="Teapot", stock=50)


@pytest.fixture
def here() -> RequestActor:
    """A request on the product 3."""
    Product.objects.create(pk=3, name="Kettle", stock=5)
    return request("/products/3/sell/")


def moved(partner: RequestActor, here: RequestActor) -> RequestActor:
    captured = Captured.of(partner)
    Product.objects.exclude(pk=3).delete()
    return beside(captured, here)


def beside(captured: Captured, here: RequestActor) -> RequestActor:
    sent = captured.moved_to(here, DryRun.of(here))
    assert isinstance(sent, RequestActor)
    return sent


@pytest.mark.parametrize("tagging", [nullcontext, statements_tagged])
def test_the_key_in_a_path(here: RequestActor, tagging: Callable[[], AbstractContextManager[None]]) -> None:
    with tagging():
        assert moved(request("/products/7/sell/"), here).environ["PATH_INFO"] == "/products/3/sell/"


def fields(sent: RequestActor) -> dict[str, Any]:
    """Return product and quantity as the view sees them."""
    seen = WSGIRequest({**sent.environ, "wsgi.input": BytesIO(sent.body)})
    return (
        dict(json.loads(seen.body))
        if seen.content_type == "application/json"
        else {**seen.GET.dict(), **seen.POST.dict()}
    )


@pytest.mark.parametrize(
    "options",
    [
        {"data": {"product": 7, "quantity": 7}},
        {"data": "product=7&quantity=7", "content_type": "application/x-www-form-urlencoded"},
        {"query_params": {"product": 7, "quantity": 7}},
    ],
)
def test_a_field_that_is_named_like_the_model_and_not_an_amount(here: RequestActor, options: dict[str, Any]) -> None:
    assert fields(moved(request("/orders/", **options), here)) == {"product": "3", "quantity": "7"}


def test_json_keeps_its_types(here: RequestActor) -> None:
    data = {"product": 7, "quantity": 7, "price": 7.5, "gift": True, "tags": ["7", None]}
    sent = moved(request("/orders/", data, content_type="application/json"), here)

    assert fields(sent) == {"product": 3, "quantity": 7, "price": 7.5, "gift": True, "tags": ["7", None]}


def test_a_row_that_is_found_by_another_unique_column() -> None:
    Article.objects.create(slug="coffee", title="On coffee")
    captured = Captured.of(request("/articles/coffee/"))
    Article.objects.update(slug="tea")
    here = request("/articles/tea/")

    assert beside(captured, here).environ["PATH_INFO"] == "/articles/tea/"


def test_a_row_without_counterpart() -> None:
    captured = Captured.of(request("/products/7/sell/"))
    Article.objects.create(slug="tea", title="On tea")
    here = request("/articles/tea/")

    with pytest.raises(CannotClone, match="its row of racing_product has no counterpart here"):
        captured.moved_to(here, DryRun.of(here))


def refused(captured: Captured, here: RequestActor) -> str:
    with pytest.raises(CannotClone) as error, with_moved(captured.moved_to, here):
        pass
    return str(error.value)


def test_one_that_is_refused_here(here: RequestActor) -> None:
    captured = Captured.of(request("/products/7/sell/"))
    Product.objects.filter(pk=3).update(stock=0)

    assert refused(captured, here) == "alone it is answered with status 409 here"
    assert Product.objects.get(pk=3).stock == 0


def test_one_whose_path_leads_to_no_view_here(here: RequestActor) -> None:
    captured = Captured.of(request("/products/7/sell/"))

    with override_settings(ROOT_URLCONF="tests.testapps.seeded_club.urls"):
        assert refused(captured, here) == "its path leads to no view here"


# Users


@pytest.fixture
def manager() -> User:
    user = User.objects.create_user("manager", email="manager@example.org", is_staff=True)
    user.groups.add(Group.objects.create(name="managers"))
    user.user_permissions.add(Permission.objects.get(content_type__app_label="auth", codename="delete_user"))
    return user


def user_of(sent: RequestActor) -> User:
    user = session_user(sent.environ)
    assert isinstance(user, User)
    return user


def test_the_user_is_the_others_where_theirs_may_do_the_same(here: RequestActor) -> None:
    customer, other = User.objects.create_user("customer"), User.objects.create_user("other")
    by_customer = request("/products/3/sell/", user=customer)

    assert user_of(moved(request("/products/7/sell/", user=other), by_customer)) == customer
    assert session_user(moved(request("/products/3/sell/"), here).environ) is None


@pytest.mark.parametrize("anonymous", [True, False])
def test_a_user_who_may_more_is_copied(manager: User, here: RequestActor, anonymous: bool) -> None:
    captured = Captured.of(request("/products/7/recall/", user=manager))
    manager.delete()
    Group.objects.all().delete()
    place = here if anonymous else request("/products/3/sell/", user=User.objects.create_user("customer"))
    sent = beside(captured, place)

    assert sent(None).status == 200
    assert (user_of(sent).username, user_of(sent).email) == ("manager2", "manager@example.org")


@pytest.mark.parametrize("by_manager", [False, True])
def test_the_token_of_a_form_goes_with_its_cookie(manager: User, *, by_manager: bool) -> None:
    def checked(address: str, token: str, user: User) -> RequestActor:
        sent = request(address, {"csrfmiddlewaretoken": token}, user=user)
        sent.environ["HTTP_COOKIE"] += f"; csrftoken={token}"  # type: ignore[index]
        return RequestActor(sent.environ, sent.body, ClientHandler(enforce_csrf_checks=True))

    Product.objects.create(pk=3, name="Kettle", stock=5)
    customer = User.objects.create_user("customer")
    with override_settings(MIDDLEWARE=[*MIDDLEWARE, "django.middleware.csrf.CsrfViewMiddleware"]):
        here = checked("/products/3/sell/", "a" * 32, customer)
        captured = Captured.of(checked("/products/7/sell/", "b" * 32, manager if by_manager else customer))
        manager.delete()
        sent = beside(captured, here)

        assert (captured.trial.answer.status, sent(None).status) == (200, 200)
        assert user_of(sent).username == ("manager2" if by_manager else "customer")


def test_a_request_beside_a_call_is_sent_by_a_copy_of_its_user(manager: User) -> None:
    captured = Captured.of(request("/products/7/recall/", user=manager))
    manager.delete()

    sent = captured.moved_to(Call(cast("Any", user_of), (), {}, ()), captured.trial)

    assert isinstance(sent, RequestActor)
    assert (sent(None).status, user_of(sent).username) == (200, "manager2")


def test_a_copy_has_what_signals_create_for_a_user(manager: User, here: RequestActor) -> None:
    captured = Captured.of(request("/products/7/recall/", user=manager))
    manager.delete()

    def add_article(instance: User, created: bool, **kwargs: Any) -> None:
        if created:
            Article.objects.create(slug=instance.username)

    post_save.connect(add_article, sender=User)
    try:
        beside(captured, here)
    finally:
        post_save.disconnect(add_article, sender=User)
    assert Article.objects.get().slug == "manager2"


def test_a_copy_that_is_refused(here: RequestActor, manager: User) -> None:
    captured = Captured.of(request("/products/3/recall/", user=manager))
    manager.username = "manager2"
    manager.save()

    assert "a copy of its user was refused" in refused(captured, here)


# The same request for another object, of which one user may have but one.


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize("others", [[4], []])
def test_a_limit_over_several_objects_is_exceeded_by_requests_for_two_of_them(others: list[int]) -> None:
    Product.objects.exclude(pk__in=[3, *others]).delete()
    User.objects.create_user("ada")
    with with_moved(for_another_object, request("/products/3/book/")) as fork:
        exploration = fork.explore(seconds=20)

    first, second = (actor.environ["PATH_INFO"] for actor in fork.actors.values() if isinstance(actor, RequestActor))
    assert first == "/products/3/book/"
    assert second == "/products/4/book/" if others else second != first  # then of a copy
    assert exploration.verdict == "broken"


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize(
    ("address", "kept", "why"),
    [
        ("/take/?quantity=3", [3, 4], "names no row of a table that has another one"),
        ("/products/3/look/", [3, 4], "changes nothing here that the other one reads"),
        ("/products/3/sell/", [3, 4], "is answered with status 409 here"),
    ],
)
def test_other_requests_are_for_no_other_object(address: str, kept: list[int], why: str) -> None:
    Product.objects.exclude(pk__in=kept).delete()
    Product.objects.filter(pk=4).update(stock=0)
    with pytest.raises(CannotClone, match=why), with_moved(for_another_object, request(address)):
        pass


# The rows of one request in the other order.


@pytest.fixture
def products() -> None:
    Product.objects.bulk_create(Product(pk=pk, name="Kettle", stock=5) for pk in (3, 4))


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize(
    "basket",
    [
        lambda: request("/take/", json.dumps([3, 4]), content_type="application/json"),
        lambda: request("/take/?product=3&product=4"),
    ],
    ids=["a list", "a query"],
)
def test_rows_that_are_locked_in_the_order_of_the_request_are_a_deadlock(basket: Callable[[], RequestActor]) -> None:
    with with_moved(in_other_order, basket()) as fork:
        assert fork.explore(seconds=20).deadlocks


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize(
    ("only", "why"),
    [
        (lambda: request("/take/?product=3"), "locks no two rows of one table in turn here"),
        (lambda: request("/take/?quantity=3&quantity=4"), "does not name the rows of"),
    ],
)
def test_other_requests_have_no_other_order(only: Callable[[], RequestActor], why: str) -> None:
    with pytest.raises(CannotClone, match=why), with_moved(in_other_order, only()):
        pass
