"""The explorer's own thread waits for a lock: set_up, invariant and observe have a limit, and say who holds it."""

from typing import Any

import pytest
from django.db import connection, transaction

from django_lockstep.lab.explorer import NotExplorable, Scenario, explore
from django_lockstep.lab.explorer.errors import ExplorerError
from django_lockstep.lab.explorer.tables import saved_tables
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.explorer.schemas import made, run
from tests.support.sessions import query
from tests.testapps.shop.models import PlainSeat, Seat

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("code", ["set_up", "invariant", "observe"])
def test_code_of_the_scenario_that_waits_for_a_lock_is_ended_with_who_holds_it(held: int, code: str) -> None:
    def wait(fixture: Any = None) -> bool:
        with transaction.atomic():
            Seat.objects.select_for_update().get(pk=held)
        return True

    functions: dict[str, Any] = {"set_up": lambda: None, code: wait}
    with pytest.raises(ExplorerError, match=rf"(?s)scenario's {code} waited 0.5 s for a lock.*idle in transaction"):
        explore(Scenario(actors=[lambda _: PlainSeat.objects.create()] * 2, **functions), step_timeout=0.5)


def test_who_keeps_tables_from_being_put_back_is_named(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_tables, "_TIMEOUT", "300ms")
    with pytest.raises(ExplorerError, match=r"(?s)could not be put back.*held by session \d+ .*idle in transaction"):
        explore(Scenario(set_up=lambda: None, actors=[lambda _: Seat.objects.create(price=1)] * 2))


def test_the_limit_is_not_left_behind() -> None:
    before = run("SHOW lock_timeout")
    explore(Scenario(set_up=stories.one_seat, actors=[stories.computed] * 2), step_timeout=7)
    assert run("SHOW lock_timeout") == before


@pytest.mark.parametrize("ends", [True, False], ids=["waited for", "left behind"])
def test_prepared_transactions_of_a_race_are_refused_and_rolled_back(ends: bool) -> None:
    if query("SELECT current_setting('max_prepared_transactions')::int") < 2:
        pytest.skip("max_prepared_transactions is too small")

    def prepare(_: None) -> None:
        for sql in ("BEGIN", "UPDATE made_a SET n = 1", "PREPARE TRANSACTION 'made'"):
            run(sql)
        if ends:
            run("COMMIT PREPARED 'made'")

    with made("CREATE TABLE made_a (n int)", "INSERT INTO made_a VALUES (0)"):
        scenario = Scenario(set_up=lambda: None, actors=[prepare, lambda _: run("UPDATE made_a SET n = n * 3")])
        with pytest.raises(NotExplorable, match=r"left prepared transactions behind \(made\)"):
            explore(scenario, step_timeout=1)
        assert not query("SELECT count(*) FROM pg_prepared_xacts")
        assert run("SELECT n FROM made_a") == [(0,)]
    connection.close()
