"""``manage.py apply_queued``: a consumer of queued changes."""

import signal
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

from django.core.management.base import BaseCommand

from accounts.contrib.queued.consuming import drain, run
from accounts.contrib.queued.management.queues import add_queue_options, queue_model
from django_lockstep.contrib.options import count


class Command(BaseCommand):
    """Exit 0 after SIGTERM or SIGINT, or with --once when the queue is empty; 2 on wrong usage."""

    help = (
        "Applies queued changes in batches until SIGTERM or SIGINT; a batch that has begun is completed. Any number of "
        "consumers may run at the same time."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="apply all pending changes, then exit")
        parser.add_argument("--batch-size", type=count, default=500, help="changes in one transaction (default: 500)")
        parser.add_argument(
            "--linger", type=_seconds, default=0.0, help="seconds to wait for a batch to fill (default: 0)"
        )
        parser.add_argument(
            "--poll", type=_seconds, default=0.05, help="seconds between reads of an empty queue (default: 0.05)"
        )
        add_queue_options(parser)

    def handle(self, *args: object, **options: Any) -> None:
        model, size, using = queue_model(options["model"]), options["batch_size"], options["database"]
        if options["once"]:
            done = drain(model, size=size, using=using)
        else:
            with _until_asked_to_stop() as stop:
                done = run(model, stop, size=size, linger=options["linger"], poll=options["poll"], using=using)
        self.stdout.write(f"Changes decided: {done}")


@contextmanager
def _until_asked_to_stop() -> Iterator[Event]:
    stop = Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ArgumentTypeError(f"must be a number of seconds, not {text!r}") from error
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"must be a finite number of seconds of at least 0, not {text!r}")
    return value
