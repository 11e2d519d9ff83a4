import os
import signal
import threading

import pytest

from django_lockstep.lab.simulator.interrupt import StopSignal


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_is_noted_and_wakes_the_reader(name: str) -> None:
    with StopSignal() as interrupt:
        assert not interrupt.requested
        os.kill(os.getpid(), getattr(signal, name))
        assert interrupt.reader.poll(10)
        assert interrupt.name == name


def test_the_second_signal_does_not_wait() -> None:
    with StopSignal() as interrupt:
        interrupt.request(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupt.request(signal.SIGINT)


def test_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignal():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_in_another_thread_it_can_be_asked() -> None:
    seen = []

    def ask() -> None:
        with StopSignal() as interrupt:
            interrupt.request(signal.SIGTERM)
            seen.append(interrupt.name)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert seen == ["SIGTERM"]
