"""The session that tries candidates, started by the one that recorded them; shows what it finds as it finds it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from django_lockstep.lab.finder.derive import find_candidates
from django_lockstep.lab.finder.files import read_recording
from django_lockstep.lab.finder.findings import Findings, findings_path
from django_lockstep.lab.finder.report import as_text, in_a_line
from django_lockstep.lab.finder.suppressions import read_suppressions

__all__ = ["confirm_in_second_session"]

_FLAGS = {"--find-races", "-x", "--exitfirst", "--lf", "--last-failed", "--ff", "--failed-first", "--sw", "--stepwise"}
_WITH_VALUE = (
    *("-n", "--numprocesses", "--dist", "--maxfail", "--durations", "--cov", "--cov-report"),
    *("--junitxml", "--junit-xml", "--junitprefix", "--race-record", "--race-confirm"),
)
"""Options of the first session that would change what the second one runs, or overwrite what the first one wrote."""

_LOOK_AGAIN = 0.3
"""Seconds between two looks at what the other session has found."""
_MOST_SHOWN = 4000
"""Characters of its output that are shown if it fails."""


def confirm_in_second_session(config: pytest.Config, recording: Path) -> int:
    """Run the session, and return the exit status: 1 if races were confirmed that are not suppressed.

    A process of its own, because the first session's database and fixtures are gone by now, and because its tests
    commit. Its output goes into a file beside the recording, and is shown if it ends before it began.
    """
    findings_path(recording).unlink(missing_ok=True)
    log = recording.with_name(f"{recording.name}.log")
    command = [sys.executable, "-m", "pytest", *_kept(config.invocation_params.args), *_added(config, recording)]
    with log.open("w", encoding="utf-8") as output:
        # The command is this session's own.
        process = subprocess.Popen(command, cwd=config.invocation_params.dir, stdout=output, stderr=output)  # noqa: S603
        found = Findings(findings_path(recording), find_candidates(read_recording(recording)))
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        write_line = reporter.write_line
        try:
            _show(found, process, write_line)
        except KeyboardInterrupt:  # the other session has got it too, and keeps what it knows
            process.wait()
    if process.returncode not in (0, 1):
        write_line(f"The session that tries candidates ended with {process.returncode}: {log}")
        write_line(log.read_text("utf-8")[-_MOST_SHOWN:])
    write_line(as_text(found, read_suppressions(config.rootpath)))
    return process.returncode


def _show(found: Findings, process: subprocess.Popen[bytes], write_line: Callable[[str], Any]) -> None:
    """Show each confirmed race as soon as it is known, until the process ends."""
    ended = False
    while not ended:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_AGAIN)
        ended = process.poll() is not None
        changed = {finding.candidate: finding for finding in found.read()}
        for candidate, finding in found.pairs():
            # What is not confirmed yet may still be, in another test.
            if candidate.id in changed and finding.verdict == "confirmed":
                write_line(in_a_line(candidate, finding))


def _added(config: pytest.Config, recording: Path) -> Iterator[str]:
    yield f"--race-confirm={recording}"
    yield from ("-o", f"cache_dir={recording.parent / 'cache'}")
    if config.pluginmanager.hasplugin("xdist"):
        yield "-n0"
    if config.pluginmanager.hasplugin("_cov"):
        yield "--no-cov"


def _kept(arguments: Iterable[object]) -> Iterator[str]:
    """Yield the arguments of the first session that are the second one's too."""
    words = iter(map(str, arguments))
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif word not in _FLAGS and not word.startswith(tuple(f"{name}=" for name in _WITH_VALUE)):
            yield word
