"""Issue a token for the HTTP API."""

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_lockstep.editing.conf import duration
from django_lockstep.editing.tokens import issue


class Command(BaseCommand):
    """Prints a token that lets a program act for a user."""

    help = "Print a bearer token for the HTTP API of edit locks."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")

    def handle(self, *args: object, **options: object) -> None:
        """Print the token to stdout and its validity to stderr, so that scripts read the token alone."""
        model = get_user_model()
        user = model._default_manager.filter(**{model.USERNAME_FIELD: options["username"]}, is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user {options['username']!r}.")
        self.stderr.write(f"Valid for {duration('LOCKSTEP_EDIT_API_TOKEN_AGE')}, and only until the password changes.")
        self.stdout.write(issue(user))
