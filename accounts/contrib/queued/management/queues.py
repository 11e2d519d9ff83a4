"""The options --model and --database of the queue's commands."""

from __future__ import annotations

from argparse import ArgumentParser

from django.apps import apps
from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS

from accounts.contrib.queued.abstract import AbstractQueuedChange

__all__ = ["add_queue_options", "queue_model"]


def add_queue_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        default="accounts_queued.QueuedChange",
        help="the queue's model (default: accounts_queued.QueuedChange)",
    )
    parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")


def queue_model(label: str) -> type[AbstractQueuedChange]:
    """Return the queue's model. Raises ``CommandError`` with exit code 2 for any other label."""
    try:
        model = apps.get_model(label)
    except (LookupError, ValueError) as error:
        raise CommandError(f"--model {label}: no such model ({error})", returncode=2) from error
    if not issubclass(model, AbstractQueuedChange):
        raise CommandError(f"--model {label}: it is not a subclass of AbstractQueuedChange", returncode=2)
    return model
