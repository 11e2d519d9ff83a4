"""Small random programs over three seats: what the explorer is held against itself and against isolationtester with."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from math import factorial, prod
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connection, transaction
from django.db.models import F, QuerySet
from hypothesis import strategies as st
from psycopg import IsolationLevel

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer import Exploration, Scenario
from django_lockstep.lab.explorer.tables.final_state import comparison_text
from django_lockstep.locking.transactions import isolated_transaction
from tests.testapps.shop.models import Seat, Ticket

Action = tuple[Any, ...]
Program = tuple[str, tuple[Action, ...]]
"""How the transaction is opened, and what is done in it."""
Does = Callable[[int, int], int]
"""Takes the key of a seat and the actor's register, and returns what the register holds then."""


def seats(pk: int) -> QuerySet[Seat]:
    return Seat.objects.filter(pk=pk)


def total(rows: QuerySet[Seat]) -> int:
    return sum(int(price) for price in rows.values_list("price", flat=True))


def locked(**options: Any) -> Does:
    return lambda pk, register: total(seats(pk).select_for_update(**options))


def sent(sql: str) -> Does:
    """Send SQL with the key, for what Django has no words for."""

    def send(pk: int, register: int) -> int:
        with connection.cursor() as cursor:
            cursor.execute(sql, [pk])
        return register

    return send


def kept(change: Callable[[int, int], Any]) -> Does:
    """Leave the register as it is."""
    return lambda pk, register: (change(pk, register), register)[1]


ACTIONS: dict[str, Does] = {
    "read": lambda pk, register: total(seats(pk)),
    "read_all": lambda pk, register: total(Seat.objects.all()),
    "write": kept(lambda pk, register: seats(pk).update(price=register + 1)),
    "add": kept(lambda pk, register: seats(pk).update(price=F("price") + 2)),
    "add_to_cheap": kept(lambda pk, register: Seat.objects.filter(price__lt=25).update(price=F("price") + 7)),
    "write_if_unchanged": lambda pk, register: seats(pk).filter(price=register).update(price=register + 1),
    "lock": locked(),
    "lock_no_key": locked(no_key=True),
    "lock_nowait": locked(nowait=True),
    "lock_skip": locked(skip_locked=True),
    "lock_all": lambda pk, register: total(Seat.objects.order_by("pk").select_for_update()),
    "take_next": lambda pk, register: total(Seat.objects.order_by("pk").select_for_update(skip_locked=True)[:1]),
    "lock_share": sent("SELECT price FROM shop_seat WHERE id = %s FOR SHARE"),
    "lock_key_share": sent("SELECT price FROM shop_seat WHERE id = %s FOR KEY SHARE NOWAIT"),
    "delete": sent("DELETE FROM shop_seat WHERE id = %s"),
    "insert": kept(lambda pk, register: Seat.objects.create(price=register + 5)),
    "insert_key": kept(lambda pk, register: Seat.objects.create(pk=pk + 1000, price=register + 3)),
    "insert_or_not": kept(
        lambda pk, register: Seat.objects.bulk_create([Seat(pk=pk + 1000, price=1)], ignore_conflicts=True)
    ),
    "insert_child": kept(lambda pk, register: Ticket.objects.create(pk=UUID(int=register), seat_id=pk)),
    "advisory": sent("SELECT pg_advisory_xact_lock(%s)"),
    "advisory_shared": sent("SELECT pg_advisory_xact_lock_shared(%s)"),
    "advisory_try": sent("SELECT pg_try_advisory_xact_lock(%s)"),
}
LEVELS = ("none", "atomic", "read committed", "repeatable read", "serializable")

_plain = st.tuples(st.sampled_from(sorted(ACTIONS)), st.integers(0, 2))
_savepoint = st.tuples(st.just("savepoint"), st.booleans(), _plain)


def programs_of(*levels: str, most: int) -> st.SearchStrategy[Program]:
    """Draw programs of at most so many actions; a single one without savepoints, which would double its steps."""
    actions = _plain if most == 1 else _plain | _plain | _savepoint
    return st.tuples(st.sampled_from(levels), st.lists(actions, min_size=1, max_size=most).map(tuple))


programs = programs_of(*LEVELS, most=3)
_inserts = st.tuples(st.sampled_from(["insert", "insert_key", "insert_child"]), st.integers(0, 2))


def inserting_last(*, most: int) -> st.SearchStrategy[Program]:
    """Draw SERIALIZABLE programs that insert behind at most so many other actions."""
    earlier = st.lists(_plain, min_size=1, max_size=most)
    return st.builds(lambda some, last: ("driver", (*some, last)), earlier, _inserts)


def orders_without_waiting(*raced: Program) -> int:
    """Return in how many orders the programs' steps can be interleaved if none has to wait or is refused."""
    return orders(*map(_steps, raced))


def orders(*steps: int) -> int:
    """Return in how many orders actors can make so many steps each."""
    return factorial(sum(steps)) // prod(map(factorial, steps))


def _steps(program: Program) -> int:
    level, actions = program
    savepoints = [action for action in actions if action[0] == "savepoint"]
    if level == "none":  # a savepoint is a transaction, whose end is a step
        return len(actions) + len(savepoints)
    ends = {"atomic": 1, "driver": 1}.get(level, 2)  # COMMIT, and where a level is named the SET TRANSACTION before
    # SAVEPOINT and RELEASE, and what gives it up is ROLLBACK TO before.
    return ends + len(actions) + sum(3 if give_up else 2 for _, give_up, _ in savepoints)


def perform(action: Action, pks: list[int], register: int) -> int:
    """Do one thing, in a savepoint that is given up or survives its errors where the action says so."""
    if action[0] == "savepoint":
        return _in_savepoint(action[2], pks, register, give_up=action[1])
    name, index = action
    # In READ COMMITTED with autocommit nothing can be locked through Django.
    if name.startswith(("lock", "take")) and connection.get_autocommit():
        return total(seats(pks[index]))
    return ACTIONS[name](pks[index], register)


def _in_savepoint(action: Action, pks: list[int], register: int, *, give_up: bool) -> int:
    with suppress(DatabaseError), transaction.atomic():
        register = perform(action, pks, register)
        transaction.set_rollback(give_up)
    return register


def serializable_by_driver() -> Any:
    """Open a transaction as ``OPTIONS["isolation_level"]`` does, which takes no statement of its own."""
    connection.ensure_connection()
    connection.connection.isolation_level = IsolationLevel.SERIALIZABLE
    return transaction.atomic()


def actor(program: Program) -> Callable[[Any], int]:
    level, actions = program
    block: Any = {"none": nullcontext, "atomic": transaction.atomic, "driver": serializable_by_driver}.get(level)

    def run(pks: list[int]) -> int:
        register = 0
        with block() if block else isolated_transaction(isolation_level=level):  # type: ignore[arg-type]
            for action in actions:
                register = perform(action, pks, register)
        return register

    return run


def retried(program: Program) -> Callable[[Any], int]:
    """The same, once more after a serialization failure."""
    once = actor(program)

    def run(pks: list[int]) -> int:
        try:
            return once(pks)
        except DatabaseError as error:
            if sqlstate_of(error) != "40001":
                raise
            return once(pks)

    return run


def three_seats() -> list[int]:
    return [Seat.objects.create(price=10 * (index + 1)).pk for index in range(3)]


def left_behind(pks: list[int]) -> list[Any]:
    """Everything that the programs may have changed."""
    prices = [(pk, str(price)) for pk, price in Seat.objects.order_by("pk").values_list("pk", "price")]
    return prices + list(Ticket.objects.order_by("pk").values_list("seat_id", flat=True))


def race(*raced: Program, observe: Callable[[Any], Any] = left_behind) -> Scenario:
    """Race the programs; every end is right."""
    return among([actor(program) for program in raced], observe=observe)


def among(actors: list[Callable[[Any], int]], *, observe: Callable[[Any], Any] = left_behind) -> Scenario:
    """Race the actors; every end is right."""
    return Scenario(set_up=three_seats, actors=actors, invariant=bool, observe=observe)


def ends(exploration: Exploration) -> set[tuple[Any, ...]]:
    return {(tuple(o.errors.items()), tuple(o.results.items()), comparison_text(o.state)) for o in exploration.outcomes}


def unnamed_ends(exploration: Exploration) -> set[tuple[Any, ...]]:
    """The ends, whichever of the actors came to which."""
    return {
        (tuple(sorted((o.errors.get(name, ""), o.results.get(name, "")) for name in exploration.actors)), state)
        for o in exploration.outcomes
        for state in [comparison_text(o.state)]
    }
