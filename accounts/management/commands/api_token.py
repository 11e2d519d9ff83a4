"""``manage.py api_token``: tokens with which programs act for users."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from accounts.models import ApiToken
from accounts.tokens import SCOPES
from django_lockstep.contrib.options import count, duration


class Command(BaseCommand):
    """Exit 1 where there is no valid token to revoke; 2 where there is no such active user."""

    help = "Creates, lists and revokes tokens of the accounts' API."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="{create,list,revoke}")
        create = actions.add_parser("create", help="print a new token, valid until the user's password changes")
        create.add_argument("username", help="the name with which the user logs in")
        create.add_argument(
            "--scope",
            action="append",
            choices=SCOPES,
            help="a scope of the token (default: all scopes); may be given more than once",
        )
        create.add_argument("--name", default="", help="what the token is used for, at most 100 characters")
        create.add_argument(
            "--age", type=duration, help="time until it expires, such as 12h or 90d (default: ACCOUNTS_API_TOKEN_AGE)"
        )
        listing = actions.add_parser("list", help="list tokens, the newest last")
        listing.add_argument("username", nargs="?", help="list only this user's tokens")
        revoke = actions.add_parser("revoke", help="make a token invalid")
        revoke.add_argument("id", type=count, help="the number before the point of the token, also shown by list")

    def handle(self, *args: object, **options: object) -> None:
        getattr(self, f"_{options['action']}")(options)

    def _create(self, options: Any) -> None:
        user = _user(options["username"])
        if not user.is_active:
            raise CommandError(f"User {options['username']!r} is not active", returncode=2)
        if len(options["name"]) > 100:
            raise CommandError("--name must have at most 100 characters", returncode=2)
        token, text = ApiToken.issue(user, scopes=options["scope"] or SCOPES, name=options["name"], age=options["age"])
        expires = "without expiry" if token.expires_at is None else f"valid until {_time(token.expires_at)}"
        # To stderr, so that $(manage.py api_token create ...) holds nothing but the token.
        self.stderr.write(f"Token {token.pk}, {expires}, scopes: {token.scopes}")
        self.stdout.write(text)

    def _list(self, options: Any) -> None:
        tokens = ApiToken.objects.select_related("user").order_by("pk")
        if options["username"] is not None:
            tokens = tokens.filter(user=_user(options["username"]))
        self.stdout.write("id\tuser\tname\tscopes\tcreated\texpires\tlast used\trevoked")
        for token in tokens:
            times = (token.created_at, token.expires_at, token.last_used_at, token.revoked_at)
            facts = (str(token.pk), token.user.get_username(), token.name, token.scopes, *map(_time, times))
            self.stdout.write("\t".join(facts))

    def _revoke(self, options: Any) -> None:
        if not ApiToken(pk=options["id"]).revoke():
            raise CommandError(f"There is no token {options['id']}, or it was already revoked")
        self.stdout.write(f"Token {options['id']} was revoked.")


def _user(username: str) -> Any:
    # By the natural key: a custom user may log in with something else than a username.
    users: Any = get_user_model()
    try:
        return users._default_manager.get_by_natural_key(username)
    except users.DoesNotExist as error:
        raise CommandError(f"There is no user {username!r}", returncode=2) from error


def _time(value: object) -> str:
    return "never" if value is None else f"{value:%Y-%m-%d %H:%M}"
