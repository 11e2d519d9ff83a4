"""Clones of users, with what belongs to them."""

import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db import connection, models
from django.test import Client, RequestFactory
from django.test.utils import isolate_apps

from django_lockstep.lab.finder.confirm.clones import UserClone, clone_user, renamed, session_of, session_user
from django_lockstep.lab.finder.errors import CannotClone

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    return User.objects.create_user("customer", email="customer@example.org", password="secret")


@pytest.fixture
def club() -> Iterator[Any]:
    """Members, and what a project may have belong to them."""
    with isolate_apps("tests.testapps.shop"):

        class Base(models.Model):
            class Meta:
                abstract = True
                app_label = "shop"

        class Hall(Base):
            name = models.CharField(max_length=20)

        class Member(Base):
            name = models.CharField(max_length=8, unique=True)
            email = models.EmailField(unique=True, null=True)  # noqa: DJ001  # a project may
            code = models.UUIDField(unique=True, default=uuid.uuid4)
            halls = models.ManyToManyField(Hall)

        class Profile(Base):
            member = models.OneToOneField(Member, models.CASCADE, primary_key=True)
            motto = models.CharField(max_length=20)

        class Voucher(Base):
            # Made before the baskets that it refers to, for its model comes first.
            member = models.ForeignKey(Member, models.CASCADE, related_name="+")
            basket = models.OneToOneField("shop.Basket", models.CASCADE)

        class Basket(Base):
            owner = models.ForeignKey(Member, models.CASCADE, related_name="+")

        class Line(Base):
            basket = models.ForeignKey(Basket, models.CASCADE)
            hall = models.ForeignKey(Hall, models.CASCADE)

        class Friendship(Base):
            first = models.ForeignKey(Member, models.CASCADE, related_name="+")
            other = models.ForeignKey(Member, models.CASCADE, related_name="+")

        class Numbered(Base):
            member = models.ForeignKey(Member, models.CASCADE)
            number = models.IntegerField(unique=True)

        class Seat(Base):
            member = models.ForeignKey(Member, models.CASCADE)
            row = models.IntegerField()

            class Meta:
                app_label = "shop"
                constraints = [models.UniqueConstraint(fields=["row"], name="one_in_a_row")]

        class Patron(Member):
            class Meta:
                app_label = "shop"

        tables = [Hall, Member, Profile, Basket, Voucher, Line, Friendship, Numbered, Seat, Patron]
        for model in tables:
            model._meta.db_table = f"club_{model._meta.model_name}"
        Member.halls.through._meta.db_table = "club_member_halls"
        # Within the test's transaction: they are gone with it.
        with connection.schema_editor() as editor:
            for model in tables:
                editor.create_model(model)
        yield SimpleNamespace(**{model.__name__: model for model in tables})


def clone(member: Any) -> Any:
    return UserClone(member)


def test_what_belongs_to_a_member_is_copied_and_the_rest_is_shared(club: Any) -> None:
    ada, hall = club.Member.objects.create(name="Ada"), club.Hall.objects.create(name="Aula")
    ada.halls.add(hall)
    club.Profile.objects.create(member=ada, motto="Onwards")
    basket = club.Basket.objects.create(owner=ada)
    club.Line.objects.create(basket=basket, hall=hall)
    club.Voucher.objects.create(member=ada, basket=basket)

    other = clone(ada).user

    assert club.Profile.objects.get(member=other).motto == "Onwards"
    assert list(other.halls.all()) == [hall]
    (copied,) = club.Basket.objects.filter(owner=other)
    assert copied.pk != basket.pk
    assert club.Line.objects.get(basket=copied).hall == hall
    assert club.Voucher.objects.get(member=other).basket == copied
    assert club.Hall.objects.count() == 1
    assert (club.Member.objects.count(), club.Line.objects.count()) == (2, 2)


def test_a_text_that_is_cut_off_to_its_length_becomes_another_one() -> None:
    assert [renamed(text, 4) for text in ("abcd", "abc2")] == ["abc2", "abc3"]


def test_unique_texts_get_a_suffix_and_unique_keys_a_new_default(club: Any) -> None:
    long = club.Member.objects.create(name="Margaret", email="m@example.org")
    without = club.Member.objects.create(name="Grace")

    copy = clone(long)
    assert (copy.user.name, copy.user.email) == ("Margare2", "m2@example.org")
    assert copy.renamed == {"Margaret": "Margare2", "m@example.org": "m2@example.org"}
    assert copy.user.code != long.code
    copy = clone(without)
    assert (copy.user.name, copy.user.email) == ("Grace2", None)


def test_rows_between_two_members_are_copied_for_one(club: Any) -> None:
    ada, grace = (club.Member.objects.create(name=name) for name in ("Ada", "Grace"))
    club.Friendship.objects.create(first=ada, other=grace)
    club.Friendship.objects.create(first=grace, other=ada)
    club.Friendship.objects.create(first=ada, other=ada)

    other = clone(ada).user

    friendships = club.Friendship.objects.order_by("pk").values_list("first", "other")[3:]
    assert sorted(friendships) == sorted([(other.pk, grace.pk), (grace.pk, other.pk), (other.pk, other.pk)])
    assert club.Member.objects.count() == 3


@pytest.mark.parametrize(
    ("model", "values", "reason"), [("Numbered", {"number": 7}, "must be unique"), ("Seat", {"row": 7}, "one_in_a_row")]
)
def test_what_must_be_unique_and_cannot_be_changed(club: Any, model: str, values: Any, reason: str) -> None:
    ada = club.Member.objects.create(name="Ada")
    getattr(club, model).objects.create(member=ada, **values)

    with pytest.raises(CannotClone, match=reason):
        clone(ada)
    assert club.Member.objects.count() == 1


def test_rows_in_two_tables_are_refused(club: Any) -> None:
    patron = club.Patron.objects.create(name="Ada")

    for member in (patron, club.Member.objects.get()):
        with pytest.raises(CannotClone, match="shop.Patron inherits from another table"):
            clone(member)


def test_very_many_rows_are_refused(club: Any) -> None:
    ada = club.Member.objects.create(name="Ada")
    club.Basket.objects.bulk_create(club.Basket(owner=ada) for _ in range(301))

    with pytest.raises(CannotClone, match="more than 300 rows belong to the user"):
        clone(ada)
    assert club.Basket.objects.count() == 301


# Requests


def environ_of(client: Client, **extra: str) -> dict[str, Any]:
    cookie = client.cookies.output(header="", sep=";").partition(";")[0].strip()
    return {**RequestFactory().get("/", headers={"cookie": f"theme=dark; {cookie}; sessionids=7"}).environ, **extra}


def test_the_request_of_the_clone_has_a_session_of_its_own(user: User, client: Client) -> None:
    client.force_login(user)
    client.session["basket"] = 3
    environ = environ_of(client, HTTP_AUTHORIZATION="Token customer", HTTP_X_USER="customer")

    cloned = clone_user(environ, user)

    session = session_of(cloned)
    other = get_user_model().objects.get(username="customer2")
    assert session[SESSION_KEY] == str(other.pk)
    assert session[HASH_SESSION_KEY] == other.get_session_auth_hash()
    assert session.session_key != session_of(environ).session_key
    assert Session.objects.count() == 2
    assert session_user(cloned) == other
    assert session_user(environ) == user
    assert (cloned["HTTP_AUTHORIZATION"], cloned["HTTP_X_USER"]) == ("Token customer2", "customer2")
    assert cloned["HTTP_COOKIE"].startswith("theme=dark; ")
    assert cloned["HTTP_COOKIE"].endswith("; sessionids=7")
    client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key
    assert client.delete("/racing/on-call/").status_code in {302, 404}


def test_requests_without_a_session_have_no_user(user: User) -> None:
    plain = RequestFactory().get("/").environ
    unknown = {**plain, "HTTP_COOKIE": f"{settings.SESSION_COOKIE_NAME}=unknown"}
    anonymous = SessionStore()
    anonymous["basket"] = 3
    anonymous.save()
    of_nobody = {**plain, "HTTP_COOKIE": f"{settings.SESSION_COOKIE_NAME}={anonymous.session_key}"}

    assert [session_user(environ) for environ in (plain, unknown, of_nobody)] == [None, None, None]
    assert session_of(plain) is session_of(unknown) is None
    assert session_of(of_nobody)["basket"] == 3


def test_django_webtest_names_the_user(user: User) -> None:
    environ = {**RequestFactory().get("/").environ, "WEBTEST_USER": "customer"}

    assert session_user(environ) == user
    assert clone_user(environ, user)["WEBTEST_USER"] == "customer2"
