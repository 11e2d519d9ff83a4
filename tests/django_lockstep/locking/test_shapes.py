"""A `CompiledQuerySet` sends, returns and raises what Django's own query set does, the first time and ever after."""

import copy
import gc
import pickle
import uuid
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import wraps
from inspect import getsource
from typing import Any

import pytest
from django.db import connection, connections, models, router, transaction
from django.db.models import F, Value
from django.db.models.functions import Now
from django.db.models.lookups import Exact
from django.db.models.sql.compiler import SQLCompiler
from django.test.utils import CaptureQueriesContext, isolate_apps
from django.utils.functional import lazystr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_lockstep.locking import statements
from django_lockstep.locking.rows import lock_row, lock_rows
from django_lockstep.locking.shapes import CompiledQuerySet, compiled_rows
from django_lockstep.locking.statements import Shape, Table
from tests.support.sessions import Session
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db


class ShoutingField(models.CharField):  # type: ignore[type-arg]
    """A project's own: it prepares its values in another way than Django's."""

    def get_prep_value(self, value: Any) -> Any:
        return str(value).upper()


@pytest.fixture(scope="module")
def kinds(django_db_setup: None, django_db_blocker: Any) -> Iterator[Any]:
    """A model with a column of each kind."""
    with django_db_blocker.unblock(), isolate_apps("tests.testapps.shop"):

        class Kinds(models.Model):
            number = models.IntegerField(null=True)
            small = models.PositiveSmallIntegerField(null=True, db_column="tiny")
            amount = models.DecimalField(max_digits=8, decimal_places=2, null=True)
            name = models.CharField(max_length=20, null=True)  # noqa: DJ001
            slug = models.SlugField(null=True)  # noqa: DJ001
            loud = ShoutingField(max_length=20, null=True)
            at = models.DateTimeField(null=True)
            day = models.DateField(null=True)
            hour = models.TimeField(null=True)
            span = models.DurationField(null=True)
            flag = models.BooleanField(null=True)
            ratio = models.FloatField(null=True)
            token = models.UUIDField(null=True)
            data = models.JSONField(null=True)
            blob = models.BinaryField(null=True)
            address = models.GenericIPAddressField(null=True)
            file = models.FileField(null=True)
            parent = models.ForeignKey("self", models.CASCADE, null=True)
            made = models.DateTimeField(db_default=Now())
            twice = models.GeneratedField(
                expression=F("number") * 2, output_field=models.BigIntegerField(), db_persist=True
            )

            class Meta:
                app_label = "shop"
                ordering = ["number"]

        with connection.schema_editor() as editor:
            editor.create_model(Kinds)
        yield Kinds
        with connection.schema_editor() as editor:
            editor.delete_model(Kinds)


NAMES = [
    *("pk", "id", "number", "small", "amount", "name", "slug", "loud", "at", "day", "hour", "span", "flag", "ratio"),
    *("token", "data", "blob", "address", "file", "parent", "parent_id", "made", "twice"),
    *("number__gt", "name__in", "parent__number", "missing"),
]
VALUES = [
    *(None, 0, 1, 7, -1, 2**40, 10**30, True, False, 1.5, float("nan"), "", "1", "x", "X", "nul\0", b"x", {"a": 1}, []),
    *(Decimal("1.10"), Decimal("NaN"), Decimal("1.005"), Decimal(10**9), timedelta(days=1), time(10, 30)),
    *(date(2026, 11, 28), datetime(2026, 11, 28, 1, tzinfo=UTC), datetime(2026, 11, 28, 1)),  # noqa: DTZ001
    *(uuid.UUID(int=5), F("number"), Value(3), lazystr("x"), Seat(pk=1), ["x"]),
]
CONDITIONS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), min_size=1, max_size=2)
LOCKS = st.fixed_dictionaries(
    {},
    optional={
        "nowait": st.booleans(),
        "skip_locked": st.booleans(),
        "of": st.sampled_from([(), ("self",), ["self"], ("missing",)]),
        "no_key": st.booleans(),
    },
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("filter"), CONDITIONS),
        st.tuples(st.just("exclude"), CONDITIONS),
        st.tuples(st.just("select_for_update"), LOCKS),
        st.tuples(st.sampled_from(["all", "reverse", "distinct"]), st.just({})),
        st.tuples(st.just("using"), st.just({"alias": "default"})),
    ),
    max_size=4,
)
ENDS: Any = st.one_of(
    st.tuples(st.sampled_from(["get", "update", "create", "get_or_create"]), CONDITIONS),
    st.tuples(st.sampled_from(["get", "count", "exists", "first", "__len__", "delete", "last"]), st.just({})),
)


def plain(value: object) -> object:
    """Return the result in a form that can be compared; keys of new rows differ."""
    if isinstance(value, models.Model):
        state = value._state
        columns = {name: repr(part) for name, part in vars(value).items() if name not in {"_state", "id", "made"}}
        return columns, state.adding, state.db
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return repr(value)


def outcome(act: Callable[[], object]) -> object:
    """Return what the call sent and what became of it, and undo it."""
    connection.queries_log.clear()
    with CaptureQueriesContext(connection) as captured:
        try:
            with transaction.atomic():
                result: object = plain(act())
                transaction.set_rollback(True)
        except Exception as error:  # noqa: BLE001 - whatever Django raises
            result = type(error), str(error).partition("DETAIL")[0]  # the failing row has a key and a time
    return [entry["sql"] for entry in captured if "SAVEPOINT" not in str(entry["sql"])], result


def run(rows: Any, steps: list[tuple[str, dict[str, Any]]], end: tuple[str, dict[str, Any]]) -> Any:
    for name, arguments in steps:
        rows = getattr(rows, name)(**arguments)
    name, arguments = end
    result = getattr(rows, name)(**arguments)
    return result, list(rows) if name == "__len__" else None


@pytest.mark.filterwarnings("ignore:DateTimeField")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, end=ENDS)
def test_it_does_what_djangos_does(kinds: Any, db: None, steps: Any, end: Any) -> None:
    with transaction.atomic():
        for number in (1, 1, 7):
            models.QuerySet(kinds).create(number=number, name="x", amount=Decimal("1.10"))
        expected = outcome(lambda: run(models.QuerySet(kinds), steps, end))
        for _ in range(2):  # compiled, then sent again
            assert outcome(lambda: run(CompiledQuerySet(kinds), steps, end)) == expected
        transaction.set_rollback(True)


@pytest.mark.filterwarnings("ignore:DateTimeField")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.dictionaries(st.sampled_from(NAMES[2:19]), st.sampled_from(VALUES), max_size=3), raw=st.booleans())
def test_it_saves_what_djangos_does(kinds: Any, db: None, values: dict[str, Any], raw: bool) -> None:
    """Through the calls that ``Model.save()`` makes."""

    def save(rows: Any) -> Any:
        row = kinds(**values)
        fields = [field for field in kinds._meta.concrete_fields if not (field.generated or field.primary_key)]
        new = rows._insert([row], fields, [kinds._meta.pk], raw=raw)
        written = [(field, None, getattr(row, field.attname)) for field in fields[:12]]
        return len(new), rows.filter(number=1)._update(written)

    expected = outcome(lambda: save(models.QuerySet(kinds)))
    for _ in range(2):
        assert outcome(lambda: save(CompiledQuerySet(kinds))) == expected


def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which each SELECT that Django compiles is added."""
    texts: list[str] = []
    as_sql = SQLCompiler.as_sql

    def look(self: Any, *args: Any, **kwargs: Any) -> Any:
        built = as_sql(self, *args, **kwargs)
        texts.append(built[0])
        return built

    monkeypatch.setattr(SQLCompiler, "as_sql", look)
    return texts


def rows() -> CompiledQuerySet[Seat]:
    return CompiledQuerySet(Seat)


@pytest.mark.parametrize(
    "act",
    [
        lambda pk: rows().get(pk=pk),
        lambda pk: list(rows().filter(pk=pk)),
        lambda pk: rows().all().using("default").select_for_update(no_key=True).get(id=pk),
        lambda pk: lock_row(Seat, pk),
        lambda pk: lock_row(Seat.objects.get(pk=pk)),
        lambda pk: lock_rows(Seat, [pk]),
    ],
    ids=["get", "list", "lock", "lock_row", "lock_row of an instance", "lock_rows"],
)
def test_nothing_is_compiled_twice(seat: Seat, act: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first = act(seat.pk)
    texts = compilations(monkeypatch)
    assert act(seat.pk) == first
    assert texts == []


def test_locks_outside_of_a_transaction_are_refused_each_time(seat: Seat, transactional_db: None) -> None:
    with transaction.atomic():
        rows().select_for_update().get(pk=seat.pk)
    for _ in range(2):
        with pytest.raises(transaction.TransactionManagementError, match="outside of a transaction"):
            rows().select_for_update().get(pk=seat.pk)


def test_a_failed_update_dooms_the_transaction(seat: Seat) -> None:
    for _ in range(2):
        with transaction.atomic():
            with pytest.raises(Exception, match="too long"):
                rows().filter(pk=seat.pk).update(row="x" * 1000)
            assert transaction.get_rollback()


@pytest.mark.parametrize("loses", [lambda qs: qs.query, lambda qs: qs.count(), lambda qs: qs.order_by("row"), str])
def test_whoever_looks_at_the_query_has_djangos(seat: Seat, loses: Callable[[Any], Any]) -> None:
    found = rows().filter(pk=seat.pk)
    loses(found)
    assert found._shape is None
    assert found.get() == seat


def test_a_query_that_was_changed_is_the_one_that_is_sent(seat: Seat) -> None:
    changed = rows().filter(pk=seat.pk)
    changed.query.add_q(models.Q(row="nowhere"))
    assert list(changed) == []
    assert list(changed.all()) == []


def test_threads_that_share_a_query_set_both_have_its_query(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = rows().filter(pk=seat.pk)
    built = Shape.query
    with Session() as other, monkeypatch.context() as patch:

        def overtaken(*args: Any) -> Any:
            patch.undo()
            assert "SELECT" in other.run(lambda: str(shared.query))
            return built(*args)

        patch.setattr(Shape, "query", overtaken)
        assert str(shared.query)
    assert shared.get() == seat


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda qs: pickle.loads(pickle.dumps(qs))])  # noqa: S301
def test_copies_are_whole(seat: Seat, duplicate: Callable[[Any], Any]) -> None:
    Seat.objects.create()
    assert list(duplicate(rows().filter(pk=seat.pk))) == [seat]


@pytest.mark.parametrize("kind", [CompiledQuerySet, models.QuerySet])
def test_what_was_noted_on_a_query_set_is_not_in_its_clones(kind: Any) -> None:
    noted = kind(Seat)
    noted.note = "of this one"
    assert not any(hasattr(rows, "note") for rows in (noted.all(), noted.filter(pk=1), noted.using("default")))


def test_two_are_combined(seat: Seat) -> None:
    other = Seat.objects.create()
    assert set(rows().filter(pk=seat.pk) | rows().filter(pk=other.pk)) == {seat, other}


def test_a_query_set_that_knows_objects_of_others_gives_them(seat: Seat) -> None:
    known: Any = rows().filter(pk=seat.pk)
    known._known_related_objects = {Seat._meta.pk: {}}  # as related managers set it
    assert known._whole_shape() is None


class Narrowed(CompiledQuerySet[Any]):
    """A project's own, which hides rows from everybody."""

    def _clone(self) -> Any:
        rows = super()._clone()  # type: ignore[misc]
        rows.query.add_q(~models.Q(row="hidden"))
        return rows


class Between(models.QuerySet[Any]):
    def filter(self, *args: Any, **kwargs: Any) -> Any:
        return super().filter(*args, **kwargs).exclude(row="hidden")


class Mixed(CompiledQuerySet[Any], Between):  # type: ignore[override]
    """A query set of another package comes after ours."""


@pytest.mark.parametrize("queryset", [Narrowed, Mixed])
def test_classes_that_come_in_between_are_asked(queryset: Any) -> None:
    hidden = Seat.objects.create(row="hidden")
    assert list(queryset(Seat).filter(pk=hidden.pk)) == []


def test_a_manager_that_hides_rows_is_asked() -> None:
    class Shown(models.Manager[Seat]):
        def get_queryset(self) -> models.QuerySet[Seat]:
            return super().get_queryset().exclude(row="hidden")

    shown = Shown()
    shown.model = Seat
    assert type(compiled_rows(shown)) is models.QuerySet


def test_the_router_is_asked_as_by_django(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(name: str) -> str:
        asked.append(name)
        return "default"

    for name in ("db_for_read", "db_for_write"):
        monkeypatch.setattr(router, name, lambda model, name=name, **hints: answer(name))
    rows().get(pk=seat.pk)
    rows().select_for_update().get(pk=seat.pk)
    rows().filter(pk=seat.pk).update(row="B")
    assert asked[0] == "db_for_read"
    assert set(asked[1:]) == {"db_for_write"}


def test_wrappers_see_the_statement(seat: Seat) -> None:
    seen: list[Any] = []

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append((sql, params))
        return execute(sql, params, many, context)

    rows().get(pk=seat.pk)
    with connection.execute_wrapper(look):
        rows().get(pk=seat.pk)
    [(sql, params)] = seen
    assert sql.endswith("LIMIT 21")
    assert params == (seat.pk,)


@pytest.mark.parametrize(("owner", "name"), [(SQLCompiler, "execute_sql"), (models.QuerySet, "_fetch_all")])
def test_a_package_around_djangos_is_asked(seat: Seat, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    rows().get(pk=seat.pk)
    asked: list[Any] = []
    djangos = getattr(owner, name)

    def cached(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(self)
        return djangos(self, *args, **kwargs)

    monkeypatch.setattr(owner, name, cached)
    texts = compilations(monkeypatch)
    rows().get(pk=seat.pk)
    assert asked
    assert len(texts) == 1


def test_compilers_of_another_backend_are_asked(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    rows().get(pk=seat.pk)
    monkeypatch.setattr(connection.ops, "compiler_module", "psqlextra.compiler")
    assert Table.of(Seat).reading(connections["default"], Shape(None, ("pk",)), [1], is_get=True) is None


@isolate_apps("tests.testapps.shop")
def test_a_package_that_was_there_before_the_library_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Row(models.Model):
        class Meta:
            app_label = "shop"

    cached = wraps(SQLCompiler.execute_sql)(lambda *args: None)
    monkeypatch.setattr(SQLCompiler, "execute_sql", cached)
    later: dict[str, Any] = {"__name__": Table.__module__}
    exec(getsource(statements), later)  # noqa: S102 - our own, as if it were imported now
    assert later["Table"].of(Row).reading(connections["default"], Shape(None, ("pk",)), [1], is_get=True) is None


def test_a_statement_keeps_no_connection(transactional_db: None) -> None:
    compiled_in: list[Any] = []

    def compile_here() -> None:
        list(rows().filter(pk=0, row="of a thread"))
        compiled_in.append(weakref.ref(connections["default"]))

    with Session() as other:
        other.run(compile_here)
    gc.collect()
    assert compiled_in[0]() is None


def test_a_lookup_of_a_projects_own_is_asked(seat: Seat) -> None:
    rows().get(row=seat.row)

    class Never(Exact):
        def as_sql(self, compiler: Any, connection: Any) -> Any:
            return "1 = 0", []

    with_own = Seat._meta.get_field("row")
    with_own.register_lookup(Never)
    try:
        assert list(rows().filter(row=seat.row)) == []
    finally:
        with_own._unregister_lookup(Never)


def test_a_table_that_was_renamed_is_asked_by_its_name(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    rows().get(pk=seat.pk)
    monkeypatch.setattr(Seat._meta, "db_table", "renamed")
    with CaptureQueriesContext(connection) as captured, pytest.raises(Exception, match="renamed"), transaction.atomic():
        rows().get(pk=seat.pk)
    assert 'FROM "renamed"' in captured[1]["sql"]


def test_a_setting_turns_it_off(seat: Seat, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows().get(pk=seat.pk)
    settings.LOCKSTEP_STATEMENT_CACHE = False
    texts = compilations(monkeypatch)
    assert rows().get(pk=seat.pk) == seat
    assert len(texts) == 1


def test_statements_are_not_kept_without_end(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_lockstep.locking.statements._MOST_STATEMENTS", 2)
    for name in ("pk", "id", "row", "guest", "version"):
        list(rows().filter(**{name: getattr(seat, name)}))
    assert len(Table.of(Seat)._statements) <= 2


def test_other_databases_are_djangos(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "other")
    texts = compilations(monkeypatch)
    assert rows().get(pk=seat.pk) == seat
    assert len(texts) == 1
