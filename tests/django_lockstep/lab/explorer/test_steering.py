"""What comes between two steps is done in the thread of the actor that has made the first one, where that can be."""

import signal
import sys
import threading
from collections.abc import Collection, Iterator

import pytest

from django_lockstep.lab.explorer import Scenario
from django_lockstep.lab.explorer.driver import controller
from django_lockstep.lab.explorer.search.branches import Move
from django_lockstep.lab.explorer.search.schedules import Follow
from django_lockstep.lab.explorer.session import ExplorationSession
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.explorer.conftest import Exploring
from tests.support.sessions import PATIENCE, until

GRACE = 0.3
"""Seconds that the controller has to go on too early; it waits that long if it is right."""


@pytest.fixture
def session(exploring: Exploring) -> Iterator[ExplorationSession]:
    with exploring(Scenario(set_up=stories.one_seat, actors=[stories.locked, stories.locked])) as opened:
        # The tables that the actors write are copied in their first run, in the controller's thread.
        opened.play(Follow(()))
        yield opened


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is so slow that the controller asks the server, as it does on a busy machine."""
    monkeypatch.setattr(controller, "QUICK", PATIENCE)


@pytest.mark.usefixtures("patient")
def test_an_actor_records_its_own_moves(session: ExplorationSession) -> None:
    threads: list[str] = []

    session.play(Follow(()), record=lambda move: threads.append(threading.current_thread().name))

    # Not all: at an actor's end, and where the server is asked who waits, it is the controller's.
    assert {"race actor A", "race actor B"} <= set(threads)


@pytest.mark.usefixtures("patient")
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


@pytest.mark.usefixtures("patient")
def test_a_run_is_abandoned_wherever_that_is_decided(session: ExplorationSession) -> None:
    class GivesUp(Follow):
        def choose(self, enabled: Collection[int]) -> int | None:
            return None if threading.current_thread().name == "race actor A" else super().choose(enabled)

    _, trace = session.play(GivesUp(()))

    assert not trace.complete
    assert session.play(Follow(()))[1].complete


def test_ctrl_c_while_an_actor_goes_on_is_raised_when_it_has_given_back_the_turn(session: ExplorationSession) -> None:
    main, left = threading.main_thread().ident or 0, threading.Event()
    ended: list[bool] = []

    def waits_for_its_turn() -> bool:
        return sys._current_frames()[main].f_code.co_name == "_next_within"

    class IsInterrupted(Follow):
        def choose(self, enabled: Collection[int]) -> int | None:
            if not ended and threading.current_thread().name == "race actor A":
                until(waits_for_its_turn, "the controller to wait for its turn")
                signal.pthread_kill(main, signal.SIGINT)
                ended.append(left.wait(GRACE))
            return super().choose(enabled)

    try:
        with pytest.raises(KeyboardInterrupt):
            session.play(IsInterrupted(()))
    finally:
        left.set()

    assert ended == [False]
    session.controller.abandon()
    assert session.play(Follow(()))[1].complete
