"""The threads of actors, without a database."""

import subprocess
import sys
from queue import SimpleQueue
from unittest.mock import Mock, call

import pytest

from django_lockstep.lab.explorer.driver import actors
from django_lockstep.lab.explorer.driver.actors import Actor

PROGRAM = """
import sys, threading
from queue import SimpleQueue
from django.conf import settings
settings.configure(INSTALLED_APPS=["django.contrib.contenttypes"])
import django
django.setup()
from django_lockstep.lab.explorer.driver.actors import Actor

events, begun, news = SimpleQueue(), threading.Event(), threading.Event()
actor = Actor(0, "A", events=events, settings="")

def runs_until_interrupted(argument):
    begun.set()
    while True:
        pass

def returns(argument):
    return argument

def waits(argument):
    begun.set()
    news.wait()

if "interrupted" in sys.argv:
    actor.start(runs_until_interrupted, None)
    begun.wait()
    actor.interrupt()
    events.get()
    assert type(actor.error).__name__ == "Abandoned", actor.error
elif "waiting" in sys.argv:
    actor.start(waits, None)
    begun.wait()
else:
    actor.start(returns, None)
    events.get()
sys.settrace(lambda *args: None)
threading.settrace(lambda *args: None)
if "waiting" in sys.argv:
    actor.interrupt()
    news.set()
    events.get()
assert actor.spare()
for number in range(3):
    actor.start(returns, number)
    events.get()
    assert (actor.result, actor.error) == (number, None)
"""


@pytest.mark.parametrize("how", ["done", "interrupted", "waiting"])
def test_a_traced_program_goes_on_after_a_run_was_abandoned(how: str) -> None:
    # In a process of its own, because tracing is the whole process's, and a failure is a call that never returns.
    subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, timeout=60)


def test_settings_behind_one_that_the_role_may_not_set_are_made_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = Actor(0, "A", events=SimpleQueue(), settings="SET deadlock_timeout = 1;SET enable_seqscan = off")
    hooks = Mock()
    hooks.send_out_of_band.side_effect = [False, True]

    monkeypatch.setattr(actors, "Hooks", lambda *args, **options: hooks)
    actor.connected(Mock())

    assert hooks.send_out_of_band.mock_calls == [call("SET deadlock_timeout = 1"), call("SET enable_seqscan = off")]
    assert actor.cannot_set
    actor.stop()
