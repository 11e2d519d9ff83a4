"""Recording and confirming under Django's own test runner, whichever class the project has chosen for it."""

from __future__ import annotations

import inspect
import unittest
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.test.utils import get_runner

from django_lockstep.lab.finder.confirm.confirmation import Confirmation
from django_lockstep.lab.finder.confirm.reproduction import TestPlace
from django_lockstep.lab.finder.record.files import RecordingWriter
from django_lockstep.lab.finder.record.fingerprints import Fingerprints
from django_lockstep.lab.finder.record.recorder import Recorder
from django_lockstep.lab.finder.record.stack import CodeMap

__all__ = ["confirm_tests", "record_tests"]

_Around = Callable[[unittest.TestSuite], AbstractContextManager[unittest.TestSuite]]
_Body = Callable[[unittest.TestCase], AbstractContextManager[None]]


def record_tests(labels: Sequence[str], path: Path, *, key: bytes | None, root: Path, **options: Any) -> int:
    """Run the tests with these labels and record what they do; return how many failed."""
    code = CodeMap(root)
    recorder = Recorder(RecordingWriter(path), code=code, fingerprints=Fingerprints(key))

    @contextmanager
    def around(suite: unittest.TestSuite) -> Iterator[unittest.TestSuite]:
        for test in _tests(suite):
            code.add_test_file(Path(inspect.getfile(type(test))))
        with recorder.installed():
            yield suite

    @contextmanager
    def body(test: unittest.TestCase) -> Iterator[None]:
        recorder.begin_test(test.id())
        try:
            yield
        finally:
            recorder.end_test()

    return _run(labels, around=around, body=body, **options)


def confirm_tests(labels: Sequence[str], confirmation: Confirmation, **options: Any) -> None:
    """Try candidates in those of the tests with these labels that show one."""

    @contextmanager
    def around(suite: unittest.TestSuite) -> Iterator[unittest.TestSuite]:
        chosen = confirmation.choose(_tests(suite), unittest.TestCase.id)
        with confirmation.installed():
            yield unittest.TestSuite(chosen)
        confirmation.close()

    _run(labels, around=around, body=lambda test: confirmation.running(test.id(), TestPlace.of_case(test)), **options)


def _run(labels: Sequence[str], *, around: _Around, body: _Body, **options: Any) -> int:
    """Run the project's tests by its runner: with ``around`` about all of them, and ``body`` about each."""
    chosen: Any = get_runner(settings)

    class Runner(chosen):  # type: ignore[misc]
        def get_resultclass(self) -> Any:
            return _result_class(super().get_resultclass() or unittest.TextTestResult, body)

        def run_suite(self, suite: unittest.TestSuite, **kwargs: Any) -> Any:
            with around(suite) as changed:
                return super().run_suite(changed, **kwargs)

    # One process: others would record into files of their own.
    return int(Runner(parallel=0, **options).run_tests(list(labels)))


def _result_class(base: Any, body: _Body) -> Any:
    class Result(base):  # type: ignore[misc]
        """A result that knows when a test begins, after Django has made its fixtures."""

        def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
            super().startTest(test)
            self._body = ExitStack()
            self._body.enter_context(body(test))

        def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
            self._body.close()
            super().stopTest(test)

    return Result


def _tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _tests(test)
        else:
            yield test
