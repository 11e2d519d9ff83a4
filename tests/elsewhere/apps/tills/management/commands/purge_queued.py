"""What clears away, where ``accounts.queued`` with its own table is not installed."""

from accounts.queued.management.commands.purge_queued import Command

__all__ = ["Command"]
