"""Tests that commit: what a `TestCase` keeps in a transaction of its own, other sessions could not see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from django.db import connections
from django.test import TestCase, TransactionTestCase

from django_lockstep.lab.explorer import close_idle_sessions
from django_lockstep.lab.explorer.databases import require_disposable
from django_lockstep.lab.explorer.server import Server

__all__ = ["committed_tests", "put_back_after_tests"]


@contextmanager
def committed_tests(put_back: Callable[[], None]) -> Iterator[None]:
    """Have every test of Django's run without a transaction around it, and call ``put_back`` after it.

    A `TestCase` then does what it does on a database without transactions.
    """

    def teardown(test: TransactionTestCase) -> None:
        put_back()

    with (
        mock.patch.object(TestCase, "_databases_support_transactions", classmethod(lambda cls: False)),
        mock.patch.object(TransactionTestCase, "_fixture_teardown", teardown),
    ):
        yield


@contextmanager
def put_back_after_tests() -> Iterator[None]:
    """Have tests commit, and put the databases back after each as they are now, instead of emptying them.

    Raises `NotExplorable` if one is not a database of the tests.
    """
    aliases = [alias for alias in connections if connections[alias].vendor == "postgresql"]
    servers: list[Server] = []

    def put_back() -> None:
        for server in servers:
            server.reset()

    with ExitStack() as stack:
        stack.callback(close_idle_sessions)
        for alias in aliases:
            require_disposable(alias)
            servers.append(Server(alias, exclusive=False))
            stack.callback(servers[-1].close)
            servers[-1].save_all()
        stack.enter_context(committed_tests(put_back))
        yield
