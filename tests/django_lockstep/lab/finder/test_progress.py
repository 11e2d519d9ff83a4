"""The line that says how far trying candidates has come."""

from pathlib import Path

import pytest
from django_lockstep.lab.finder.progress import Progress

from django_lockstep.lab.finder.findings import Finding
from tests.django_lockstep.lab.finder.test_findings import confirmed, findings

CONFIRMED = "confirmed: read-modify-write b in POST b/: seat: price 110 instead of 120\n"


def shown(tmp_path: Path, *, is_terminal: bool) -> list[str]:
    store, texts = findings(tmp_path, "a", "b", "c"), list[str]()
    progress = Progress(store, texts.append, budget=300, is_terminal=is_terminal)
    progress.update([])
    for finding in (Finding(candidate="a", verdict="not tried", reason="no time"), confirmed("b", spent=12.4)):
        store.add(finding)
        progress.update([finding])
    progress.close()
    return texts


def test_a_terminal_has_one_line_that_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert shown(tmp_path, is_terminal=True) == [
        "\r\x1b[K0 of 3 candidates decided, 0 confirmed, 0 of 300 s",
        "\r\x1b[K1 of 3 candidates decided, 0 confirmed, 0 of 300 s",
        f"\r\x1b[K{CONFIRMED}",
        "\r\x1b[K2 of 3 candidates decided, 1 confirmed, 12 of 300 s",
        "\r\x1b[K",
    ]


def test_it_is_no_longer_than_a_line_of_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")

    assert shown(tmp_path, is_terminal=True)[0] == "\r\x1b[K0 of 3 candidates d"


def test_a_file_has_only_what_stays(tmp_path: Path) -> None:
    assert "".join(shown(tmp_path, is_terminal=False)) == CONFIRMED
