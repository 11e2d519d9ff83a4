"""With what requests and calls are raced, and that everything is put back afterwards."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock, patch

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.http import HttpResponse, HttpResponseRedirect
from django.test import Client, RequestFactory
from django.urls import path
from rest_framework.decorators import api_view
from rest_framework.test import APIClient

from django_lockstep.lab.explorer import ExplorerError, NotExplorable
from django_lockstep.lab.finder.confirm.clones import session_of, session_user
from django_lockstep.lab.finder.confirm.committed import DatabaseCopy
from django_lockstep.lab.finder.confirm.forks import Point, Points, RequestActor
from django_lockstep.lab.finder.confirm.pairings import (
    Earlier,
    copy_databases,
    put_back,
    with_another_user,
    with_earlier,
)
from django_lockstep.lab.finder.errors import CannotClone
from django_lockstep.lab.finder.record.interception import intercept
from tests.testapps.seeded_shop.racing.models import Order, Product, Shift

pytestmark = pytest.mark.django_db(transaction=True)


def database() -> Mapping[str, Any]:
    """Return the rows of all tables, and where all sequences are."""
    tables: dict[str, Any] = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT array_agg(t::text ORDER BY t::text) FROM "{table}" t')
            tables[table] = cursor.fetchone()[0]
        cursor.execute("SELECT sequencename, last_value FROM pg_sequences ORDER BY 1")
        return tables | dict(cursor.fetchall())


@pytest.fixture
def user() -> User:
    return User.objects.create_user("customer", password="secret")


def request_by(user: User | None, path: str = "/") -> RequestActor:
    client = Client()
    headers = {}
    if user is not None:
        client.force_login(user)
        headers["cookie"] = client.cookies.output(attrs=[], header="", sep=";").strip()
    return RequestActor.of(RequestFactory().get(path, headers=headers).environ, lambda environ: HttpResponse())


def test_in_a_transaction_of_the_test_nothing_is_copied() -> None:
    # Its locks would keep the tables from being put back.
    with transaction.atomic(), pytest.raises(NotExplorable, match="opened a transaction"), put_back():
        raise AssertionError("not reached")


def test_a_copy_that_cannot_be_put_back_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DatabaseCopy, "restore", Mock(side_effect=ExplorerError("held")))

    closes = patch.object(DatabaseCopy, "close", autospec=True, side_effect=DatabaseCopy.close)
    with closes as close, pytest.raises(ExplorerError, match="held"), put_back():
        pass

    close.assert_called_once()


def test_another_user_is_there_only_meanwhile(user: User) -> None:
    Shift.objects.create(doctor=user)
    request = request_by(user)
    before = database()
    with with_another_user(request) as fork:
        first, other = fork.actors.values()
        assert first == request
        assert isinstance(other, RequestActor)
        # So that of the two only one is interrupted.
        assert other == request
        assert request_by(user) != request
        clone = session_user(other.environ)
        assert isinstance(clone, User)
        assert clone.username == "customer2"
        assert Shift.objects.filter(doctor=clone).exists()
    assert database() == before


def test_a_request_without_a_user_has_no_other_one(user: User) -> None:
    before = database()
    with pytest.raises(CannotClone, match="the request has no user"), with_another_user(request_by(None)):
        pass
    assert database() == before


@pytest.mark.urls(f"{__name__}")
def test_a_user_whom_the_client_of_rest_framework_names_has_a_copy(user: User) -> None:
    answers: list[Any] = []

    def race(point: Point) -> None:
        assert isinstance(point.actor, RequestActor)
        with with_another_user(point.actor) as fork:
            answers.extend(actor(None).location for actor in fork.actors.values())

    before = database()
    client = APIClient()
    client.force_authenticate(user)
    with intercept(Points(race).on_request):
        client.post("/mine/")

    assert answers == ["/customer/", "/customer2/"]
    assert database() == before


@api_view(["POST"])  # type: ignore[untyped-decorator]
def mine(request: Any) -> HttpResponse:
    return HttpResponseRedirect(f"/{request.user.username}/")


urlpatterns = [path("mine/", mine)]


def test_rows_that_were_made_since_the_earlier_one_stay_and_all_else_is_undone_meanwhile(user: User) -> None:
    kettle = Product.objects.create(name="Kettle", stock=5)
    earlier = Earlier(Point(request_by(user), 0), copy_databases())
    order = Order.objects.create(product=Product.objects.create(name="Bread"), customer=user, quantity=1)
    earlier.before.note_new()
    kettle.stock = 3
    kettle.save()
    Order.objects.create(product=order.product, customer=user, quantity=2)
    Product.objects.create(name="Teapot")
    later = request_by(User.objects.create_user("other"))
    before = database()

    with with_earlier(earlier, later) as fork:
        assert set(Product.objects.values_list("name", "stock")) == {("Kettle", 5), ("Teapot", 0)}
        assert not Order.objects.exists()  # it would refer to a row of the earlier request
        assert set(User.objects.values_list("username", flat=True)) == {"customer", "other"}
        assert fork.actors == {"A": earlier.point.actor, "B": later}
        assert isinstance(earlier.point.actor, RequestActor)
        assert session_user(earlier.point.actor.environ) == user
        assert session_of(later.environ) is not None
        Product.objects.create(name="Saucer")
    earlier.before.close()

    assert database() == before
