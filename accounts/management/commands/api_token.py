"""``manage.py api_token``: a token with which a program acts as a user."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError


class Command(BaseCommand):
    """Exit 2 where there is no such active user."""

    help = "Prints a token for the API; it is void once the user's password changes."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the user."""
        parser.add_argument("username", help="what the user logs in with")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the token."""
        try:
            from accounts.api import make_token
        except ImportError as error:
            raise CommandError(f"The API needs the extra 'api': {error}", returncode=2) from error
        users: Any = get_user_model()
        try:
            user = users._default_manager.get_by_natural_key(options["username"])
        except users.DoesNotExist as error:
            raise CommandError(f"There is no user {options['username']!r}", returncode=2) from error
        if not user.is_active:
            raise CommandError(f"User {options['username']!r} is not active", returncode=2)
        self.stdout.write(make_token(user))
