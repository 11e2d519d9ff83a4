"""What comes between two steps is done in the thread of the actor that has made the first one, where that can be."""

import threading
from collections.abc import Collection, Iterator

import pytest

from django_lockstep.lab.explorer import Scenario
from django_lockstep.lab.explorer.branches import Move
from django_lockstep.lab.explorer.schedules import Follow
from django_lockstep.lab.explorer.session import STEP_TIMEOUT, ExplorationSession, exploration_session
from tests.django_lockstep.lab.explorer import stories

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session() -> Iterator[ExplorationSession]:
    scenario = Scenario(set_up=stories.one_seat, actors=[stories.locked, stories.locked])
    with exploration_session(
        scenario, database="default", step_timeout=STEP_TIMEOUT, victim="last", database_is_mine=False
    ) as opened:
        # The tables that the actors write are copied in their first run, in the controller's thread.
        opened.play(Follow(()))
        yield opened


def test_an_actor_records_its_own_moves(session: ExplorationSession) -> None:
    threads: list[str] = []

    session.play(Follow(()), record=lambda move: threads.append(threading.current_thread().name))

    # Not all: at an actor's end, and where the server is asked who waits, it is the controller's.
    assert {"race actor A", "race actor B"} <= set(threads)


def test_what_is_wrong_there_is_raised_by_the_run(session: ExplorationSession) -> None:
    threads: list[str] = []

    def refuse(move: Move) -> None:
        threads.append(threading.current_thread().name)
        if threads[-1].startswith("race actor"):
            raise RuntimeError("refused")

    with pytest.raises(RuntimeError, match="refused"):
        session.play(Follow(()), record=refuse)

    assert threads[-1] == "race actor A"
    session.controller.abandon()
    session.play(Follow(()))  # the session is as good as before


def test_a_run_is_abandoned_wherever_that_is_decided(session: ExplorationSession) -> None:
    class GivesUp(Follow):
        def choose(self, enabled: Collection[int]) -> int | None:
            return None if threading.current_thread().name == "race actor A" else super().choose(enabled)

    _, trace = session.play(GivesUp(()))

    assert not trace.complete
    assert session.play(Follow(()))[1].complete
