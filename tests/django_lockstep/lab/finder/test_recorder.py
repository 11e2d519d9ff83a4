"""What is recorded while a test's body runs: units, their transactions, the rows that they read."""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection, transaction
from django.db.transaction import Atomic
from django.test import Client, override_settings
from django.test.client import ClientHandler
from django.test.utils import CaptureQueriesContext

from django_lockstep.lab.finder.derive.derivation import find_candidates
from django_lockstep.lab.finder.record.fingerprints import Fingerprints
from django_lockstep.lab.finder.record.recorder import Recorder
from django_lockstep.lab.finder.record.recording import Recording, RecordingWriter, Unit, read_recording
from django_lockstep.lab.finder.record.stack import CodeMap
from tests.django_lockstep.lab.finder.builders import statements_tagged
from tests.testapps.shop import office
from tests.testapps.shop.models import PlainSeat

PLAIN = Fingerprints(None)

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)


class Tape:
    """Records what a test does inside of it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def __call__(self) -> Iterator["Tape"]:
        recorder = Recorder(RecordingWriter(self._path), code=CodeMap(), fingerprints=PLAIN)
        with recorder.installed():
            recorder.begin_test("test_it")
            try:
                yield self
            finally:
                recorder.end_test()

    @property
    def recording(self) -> Recording:
        return read_recording(self._path)

    @property
    def units(self) -> tuple[Unit, ...]:
        return self.recording.writers


@pytest.fixture
def tape(tmp_path: Path) -> Tape:
    return Tape(tmp_path / "recording.jsonl")


@pytest.fixture
def seat() -> PlainSeat:
    return PlainSeat.objects.create(price=10, guest="Ada")


@pytest.fixture(autouse=True)
def _urls() -> Iterator[None]:
    with override_settings(ROOT_URLCONF="tests.testapps.shop.office"):
        yield


def verbs(unit: Unit) -> list[str]:
    return [statement.sql.split()[0] for statement in unit.statements]


# Units.


def test_a_request_is_a_unit_with_its_route_and_its_input(tape: Tape, seat: PlainSeat) -> None:
    with tape():
        Client().post(f"/seats/{seat.pk}/raise/?x=query", {"amount": "2.50"})

    (unit,) = tape.units
    assert (unit.test, unit.kind, unit.name, unit.number) == ("test_it", "request", "POST seats/<int:pk>/raise/", 0)
    assert {PLAIN.of(value) for value in (seat.pk, "query", Decimal("2.5"))} <= unit.inputs
    assert verbs(unit) == ["SELECT", "UPDATE"]
    # The innermost line of the project.
    places = [(statement.site.path, statement.site.function) for statement in unit.statements if statement.site]
    assert places == [("tests/testapps/shop/office.py", "raise_price")] * 2


def test_the_row_of_an_instance_that_is_passed_was_read_by_the_caller(tape: Tape, seat: PlainSeat) -> None:
    nowhere = PlainSeat.objects.get(pk=seat.pk)
    nowhere.pk = "no key"  # which aborts no transaction
    with tape(), CaptureQueriesContext(connection) as queries:
        office.raise_passed(seat, [PlainSeat(), None, nowhere], by=Decimal(5))

    (unit,) = tape.units
    row = unit.statements[0].read[0]
    assert (len(queries), verbs(unit)) == (1, ["PASSED", "PASSED", "UPDATE"])
    # As it was before, although the instance had another price when its first statement was sent.
    assert (row.table, row.key, row.values["price"]) == ("shop_plainseat", PLAIN.of(seat.pk), PLAIN.of(10))
    assert str(unit.statements[0].site).partition(":")[0] == "tests/testapps/shop/office.py"
    (candidate,) = find_candidates(tape.recording)
    assert (candidate.kind, candidate.columns) == ("read-modify-write", ("price",))
    assert "price is read by the caller of raise_passed() without a lock, and written at" in candidate.sentence


def test_requests_are_numbered_over_all_views_and_those_that_only_read_are_left_out(
    tape: Tape, seat: PlainSeat
) -> None:
    client = Client()
    with tape():
        client.get(f"/seats/{seat.pk}/")
        client.post("/missing/")
        client.post(f"/seats/{seat.pk}/guest/", {"guest": {"name": "Bob"}}, content_type="application/json")

    (unit,) = tape.units
    assert (unit.name, unit.number) == ("POST seats/<int:pk>/guest/", 2)
    # Only that it was done is kept of the other one, which its test may be raced with.
    read, _ = tape.recording.units
    assert (read.name, read.number, read.statements, bool(read.only_read)) == ("GET seats/<int:pk>/", 0, (), True)
    assert PLAIN.of("Bob") in unit.inputs


@committed
def test_another_threads_calls_are_recorded(tape: Tape, seat: PlainSeat) -> None:
    with tape():
        office.raise_elsewhere(seat.pk, Decimal(1))

    (unit,) = tape.units
    assert unit.name == "tests.testapps.shop.office.raise_elsewhere.<locals>.raise_there"


# Statements.


def test_the_site_of_a_models_own_save_is_its_callers(
    tape: Tape, seat: PlainSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlainSeat, "save", office.save)
    with tape():
        office.rename(seat, "Bob")
        seat.save()

    by_function, by_test = tape.units
    assert [statement.site.function for statement in by_function.statements if statement.site][-1] == "rename"
    assert [statement.site.function for statement in by_test.statements if statement.site][-1] == "save"


# Transactions.


def transactions(tape: Tape, act: Callable[[], object]) -> list[int | None]:
    with tape():
        act()
    return [statement.transaction for unit in tape.units for statement in unit.statements]


AS_IN_PRODUCTION = [
    pytest.param(office.raise_price, [None, None], id="autocommit"),
    # The select, and the update in the inner block.
    pytest.param(office.raise_price_locked, [0, 0], id="one block, and one inside of it"),
]


@pytest.mark.parametrize("test", ["in its own transaction", pytest.param("without one", marks=committed)])
@pytest.mark.parametrize(("function", "expected"), AS_IN_PRODUCTION)
def test_transactions_are_those_of_production(
    tape: Tape, seat: PlainSeat, function: Callable[..., None], expected: list[int | None], test: str
) -> None:
    assert transactions(tape, lambda: function(seat.pk, Decimal(1))) == expected


@committed
def test_the_isolation_level_that_a_transaction_sets(tape: Tape, seat: PlainSeat) -> None:
    def serializable() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            office.raise_price(seat.pk, Decimal(1))
        office.raise_price(seat.pk, Decimal(1))

    with tape():
        serializable()

    assert [statement.isolation for unit in tape.units for statement in unit.statements] == [
        *["serializable"] * 2,
        *["read committed"] * 2,
    ]


@committed
def test_comments_are_not_recorded(tape: Tape, seat: PlainSeat) -> None:
    with tape():
        office.raise_price_locked(seat.pk, Decimal(1))
        with statements_tagged(), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            office.raise_price_locked(seat.pk, Decimal(1))

    plain, tagged = ([(statement.sql, statement.site) for statement in unit.statements] for unit in tape.units)
    assert tagged == plain
    assert tape.units[1].statements[0].isolation == "serializable"


# The schema.


def test_tables_come_with_model_keys_indexes_and_references(tape: Tape, seat: PlainSeat) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE made (id int PRIMARY KEY, a text, b text, seat int REFERENCES shop_plainseat)")
        cursor.execute("CREATE UNIQUE INDEX ON made (lower(a)) WHERE b IS NOT NULL")
    with tape():
        office.raise_price(seat.pk, Decimal(1))

    tables = tape.recording.tables
    assert (tables["shop_plainseat"].model, tables["shop_plainseat"].key) == ("shop.PlainSeat", ("id",))
    assert tables["shop_plainseat"].types["price"] == "numeric"
    table = tables["made"]
    assert sorted((index.columns, index.predicate) for index in table.unique) == [(("a",), ("b",)), (("id",), ())]
    assert [(key.columns, key.parent) for key in table.foreign_keys] == [(("seat",), "shop_plainseat")]


# Nothing else changes.


def test_all_is_put_back(tape: Tape) -> None:
    def hooks() -> list[object]:
        classes = (ClientHandler.__call__, WSGIHandler.__call__, BaseHandler.get_response, Atomic.__enter__)
        return [*classes, *connection.execute_wrappers]

    before = hooks()
    with tape():
        assert len(hooks()) == len(before) + 1

    assert hooks() == before


def test_what_a_call_has_left_behind_is_collected(tape: Tape, seat: PlainSeat) -> None:
    before = list(gc.callbacks)

    class Amount(Decimal):
        """One that can be referred to weakly."""

    with tape():
        amount = Amount(1)
        left = weakref.ref(amount)
        office.raise_price(seat.pk, amount)
        del amount
        gc.collect()
        assert left() is None
        office.raise_price(seat.pk, Decimal(1))

    assert [unit.number for unit in tape.units] == [0, 1]
    assert gc.callbacks == before


def test_a_fault_of_the_recorder_fails_no_test(tape: Tape, seat: PlainSeat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fingerprints, "of", lambda *args: 1 / 0)
    with tape():
        office.raise_price(seat.pk, Decimal(1))

    assert tape.recording.notes == ("Some statements could not be recorded: ZeroDivisionError: division by zero",)


def test_a_database_that_was_not_made_for_tests_is_not_recorded(
    tape: Tape, seat: PlainSeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "NAME", "live")
    with tape():
        office.raise_price(seat.pk, Decimal(1))

    assert tape.units == ()
    assert tape.recording.notes == (
        "Database 'default' (live) was not recorded: Django has not made it for these tests",
    )
