"""Tests that commit: what a `TestCase` keeps in a transaction of its own, other sessions could not see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from django.test import TestCase, TransactionTestCase

__all__ = ["committed_tests"]


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
