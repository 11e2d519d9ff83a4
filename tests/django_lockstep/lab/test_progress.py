import io
import sys

import pytest

from django_lockstep.lab.simulator.progress import show_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_is_raced_and_how_much_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    done = 100
    terminal = Terminal()
    with show_progress(terminal, total=2, completed=lambda: done) as begin:
        assert begin is not None
        begin("first")
        tick = begin("second")
        assert tick is not None
        done = 1350
        tick()
    assert "2/2 second" in terminal.getvalue()
    assert "1,250 operations" in terminal.getvalue()


def test_without_a_terminal_there_is_nothing_to_call() -> None:
    with show_progress(None, total=2, completed=int) as begin:
        assert begin is None


def test_without_rich_there_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich.console", "rich.progress"):
        monkeypatch.setitem(sys.modules, name, None)
    terminal = Terminal()
    with show_progress(terminal, total=2, completed=int) as begin:
        assert begin is None
    assert terminal.getvalue() == ""
