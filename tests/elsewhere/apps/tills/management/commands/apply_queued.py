"""The consumer, where ``accounts.queued`` with its own table is not installed."""

from accounts.queued.management.commands.apply_queued import Command

__all__ = ["Command"]
