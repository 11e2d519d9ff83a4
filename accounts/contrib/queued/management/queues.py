"""What the commands of the queue have in common: which queue they are about."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS

from accounts.contrib.queued.abstract import AbstractQueuedChange

__all__ = ["add_queue", "queue_named"]


def add_queue(parser: ArgumentParser) -> None:
    """Declare --model and --database."""
    parser.add_argument("--model", default="accounts_queued.QueuedChange", help="the queue's model")
    parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")


def queue_named(label: str) -> Any:
    """Return the queue's model. Raises ``CommandError``, exit code 2, unless it is one."""
    try:
        model = apps.get_model(label)
    except (LookupError, ValueError) as error:
        raise CommandError(f"--model {label}: there is no such model ({error})", returncode=2) from error
    if not issubclass(model, AbstractQueuedChange):
        raise CommandError(f"--model {label}: it is not a subclass of AbstractQueuedChange", returncode=2)
    return model
