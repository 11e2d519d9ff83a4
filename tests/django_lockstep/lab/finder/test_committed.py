"""Tests that commit, and after which everything is as it was."""

import unittest
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import LiveServerTestCase, TestCase, TransactionTestCase

from django_lockstep.lab.explorer import NotExplorable
from django_lockstep.lab.explorer.effects.catalog import Catalog
from django_lockstep.lab.finder.confirm.committed import DatabaseCopy, committed_tests, copied_databases
from tests.django_lockstep.lab.finder.test_pairings import database
from tests.support.sessions import Session
from tests.testapps.seeded_shop.racing.models import Product

pytestmark = pytest.mark.django_db(transaction=True)


def names() -> list[str]:
    return list(Product.objects.order_by("name").values_list("name", flat=True))


def seen_by_others() -> list[str]:
    other = Session()
    try:
        return other.run(names)
    finally:
        other.close()


@pytest.fixture(autouse=True)
def _everything_is_put_back() -> Iterator[None]:
    Product.objects.create(name="There before", stock=1)
    before = database()
    with committed_tests():
        yield
    assert database() == before


def run(test: type[unittest.TestCase]) -> list[str]:
    """Run the class's tests as a project's runner would, and return what went wrong."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(test).run(result)
    return [text for _, text in (*result.errors, *result.failures)]


class Plain(TestCase):
    __test__ = False  # pytest: `run` does it

    product: Product

    @classmethod
    def setUpTestData(cls) -> None:
        cls.product = Product.objects.create(name="Of the class")

    def setUp(self) -> None:
        Product.objects.create(name="Of the test")

    def change(self) -> None:
        self.product.name = "Renamed"
        self.product.save()
        Product.objects.filter(name="There before").delete()

    def test_a_change(self) -> None:
        self.assertEqual(seen_by_others(), ["Of the class", "Of the test", "There before"])
        self.assertFalse(connection.in_atomic_block)
        self.change()
        self.assertEqual(seen_by_others(), ["Of the test", "Renamed"])

    def test_the_same_change_again(self) -> None:
        self.test_a_change()


class Committing(TransactionTestCase):
    __test__ = False  # pytest: `run` does it

    serialized_rollback = True
    reset_sequences = True

    def test_a_change(self) -> None:
        # Rows that are there when the tests begin, such as those of migrations, stay.
        self.assertEqual(seen_by_others(), ["There before"])
        Product.objects.all().delete()
        Product.objects.create(name="Of the test")

    def test_the_same_change_again(self) -> None:
        self.test_a_change()


class Served(LiveServerTestCase):
    __test__ = False  # pytest: `run` does it

    def test_it(self) -> None:
        self.assertTrue(self.live_server_url.startswith("http://"))
        Product.objects.create(name="Of the test")


@pytest.mark.parametrize("test", [Plain, Committing, Served])
def test_what_tests_find_and_leave(test: type[unittest.TestCase]) -> None:
    assert run(test) == []
    assert names() == ["There before"]


class Failing(TestCase):
    __test__ = False  # pytest: `run` does it

    def test_an_error(self) -> None:
        Product.objects.create(name="Of the test")
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("no SQL")

    def test_a_failure(self) -> None:
        Product.objects.create(name="Of the test")
        self.fail()


def test_a_test_that_fails_leaves_nothing() -> None:
    error, failure = sorted(run(Failing), key=len, reverse=True)

    assert "ProgrammingError: syntax error" in error
    assert "AssertionError: None" in failure


@pytest.mark.parametrize("base", [TestCase, TransactionTestCase])
def test_a_test_whose_fixtures_fail_leaves_nothing(base: Any) -> None:
    class Broken(base):  # type: ignore[misc]
        fixtures = ["there-is-no-such-fixture"]

        def test_it(self) -> None:
            """Not reached."""

    (message,) = run(Broken)
    assert "there-is-no-such-fixture" in message


def test_only_databases_of_tests_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    assert copied_databases() == ["default"]

    monkeypatch.setitem(connection.settings_dict, "NAME", "shop")
    assert copied_databases() == []
    with pytest.raises(NotExplorable, match="neither a test database nor a scratch database"):
        DatabaseCopy(["default"])


def test_a_copy_that_is_closed_leaves_no_tables_behind() -> None:
    copy = DatabaseCopy(["default"])
    Product.objects.create(name="New")
    copy.restore()
    copy.close()
    copy.close()

    assert names() == ["There before"]
    with pytest.raises(DatabaseError), connection.cursor() as cursor:
        cursor.execute("TABLE pg_temp.racing_product")


def test_the_copies_of_others_are_no_change_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    first = DatabaseCopy(["default"])
    # Reading the catalog of a whole project takes longer than many a race.
    monkeypatch.setattr(Catalog, "load", lambda cursor: pytest.fail("It was read again."))

    second = DatabaseCopy(["default"])

    second.close()
    first.close()
