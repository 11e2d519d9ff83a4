"""The consumer, where ``accounts.contrib.queued`` with its own table is not installed."""

from accounts.contrib.queued.management.commands.apply_queued import Command

__all__ = ["Command"]
