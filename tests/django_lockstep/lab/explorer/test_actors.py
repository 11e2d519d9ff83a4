"""The threads of actors, without a database."""

from queue import SimpleQueue
from unittest.mock import Mock, call

import pytest

from django_lockstep.lab.explorer.driver import actors
from django_lockstep.lab.explorer.driver.actors import Actor


def test_settings_behind_one_that_the_role_may_not_set_are_made_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = Actor(0, "A", events=SimpleQueue(), settings="SET deadlock_timeout = 1;SET enable_seqscan = off")
    hooks = Mock()
    hooks.send_out_of_band.side_effect = [False, True]

    monkeypatch.setattr(actors, "Hooks", lambda *args, **options: hooks)
    actor.connected(Mock())

    assert hooks.send_out_of_band.mock_calls == [call("SET deadlock_timeout = 1"), call("SET enable_seqscan = off")]
    assert actor.cannot_set
    actor.stop()
