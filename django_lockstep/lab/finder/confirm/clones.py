"""Clones of a request's user: the same request by another one, with a basket, an address and a session like theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, DatabaseError, models, transaction
from django.http import parse_cookie
from django.test import Client

from django_lockstep.lab.finder.errors import CannotClone
from django_lockstep.lab.finder.record.interception import FORCED_USER
from django_lockstep.lab.wording import gettext as _

# More than that belongs to a tenant rather than a person, and copying it would use the budget up.
_MOST_ROWS = 300
# The clone gets a session of its own, and nothing is decided by the admin's log.
_NOT_CLONED = {"sessions.Session", "admin.LogEntry"}
_Row = tuple[type[models.Model], Any]


class UserClone:
    """A copy of a user with every row that belongs to them: that refers to them, or to such a row.

    What these rows refer to themselves, such as products and vouchers, is not copied but shared: there two users meet.
    Strings that must be unique get a suffix. Raises `CannotClone` where more than 300 rows belong to the user, and
    where another value must be unique.
    """

    def __init__(self, user: models.Model) -> None:
        self._rows: dict[_Row, models.Model] = {}
        """What is still to be copied."""
        self.copies: dict[_Row, models.Model] = {}
        """The copy of each row, by model and primary key."""
        self.renamed: dict[str, str] = {}
        """Unique strings, such as the user's name or an API token, and what they became."""
        self._collect(user)
        try:
            # All or nothing: a refused copy must not leave half of a user behind.
            with transaction.atomic():
                for row in list(self._rows.values()):
                    self._copy(row)
        except DatabaseError as error:
            raise CannotClone(_("a copy was refused: {error}", error=str(error))) from error
        self.user = self.copies[_key(user)]

    def _collect(self, user: models.Model) -> None:
        self._rows[_key(user)] = user
        todo = [user]
        while todo:
            belonging = {_key(row): row for owner in todo for row in self._belonging(owner)}
            todo = [row for key, row in belonging.items() if key not in self._rows]
            self._rows |= belonging
            if len(self._rows) > _MOST_ROWS:
                raise CannotClone(_("more than {number} rows belong to the user", number=_MOST_ROWS))

    def _belonging(self, owner: models.Model) -> Iterator[models.Model]:
        relation: Any
        for relation in owner._meta.get_fields(include_hidden=True):
            if not (relation.auto_created and not relation.concrete and (relation.one_to_many or relation.one_to_one)):
                continue
            model, name = relation.related_model, relation.field.name
            if model._meta.label not in _NOT_CLONED and model._meta.managed and not model._meta.proxy:
                yield from model._base_manager.using(DEFAULT_DB_ALIAS).filter(**{name: owner}).order_by("pk")

    def _copy(self, row: models.Model) -> None:
        """Copy the row, and before it those that it refers to."""
        model = type(row)
        # Its rows are in two tables, and bulk_create() refuses to write both.
        if len(model._meta.get_parent_list()):
            raise CannotClone(_("{model} inherits from another table", model=model._meta.label))
        if self._rows.pop(_key(row), None) is None:  # it is copied, or rows refer to each other in a circle
            return
        values = ((field, getattr(row, field.attname)) for field in model._meta.concrete_fields)
        copied = {field.attname: self._value(field, value) for field, value in values}
        copy = model(**{name: value for name, value in copied.items() if value is not _GENERATED})
        # Not by save(): receivers of signals would create what is copied anyway.
        model._base_manager.using(DEFAULT_DB_ALIAS).bulk_create([copy])
        self.copies[_key(row)] = copy

    def _value(self, field: Any, value: Any) -> Any:
        if field.is_relation:
            key = (field.related_model._meta.concrete_model, value)
            if key in self._rows:
                self._copy(self._rows[key])
            return self.copies[key].pk if key in self.copies else value
        if getattr(field, "generated", False) or isinstance(field, models.AutoField):
            return _GENERATED
        if value is None or not field.unique:
            return value
        # Such as a random token. A default that is always the same is refused by the unique index.
        if field.has_default():
            return field.get_default()
        if not isinstance(value, str):
            raise CannotClone(_("{field} must be unique", field=str(field)))
        return self.renamed.setdefault(value, renamed(value, field.max_length))


_GENERATED = object()


def _key(row: models.Model) -> _Row:
    return row._meta.concrete_model or type(row), row.pk


def renamed(value: str, longest: int | None) -> str:
    """Return another string for one that must be unique; an address stays one."""
    name, at, domain = value.partition("@")
    suffixes = (f"{digit}{at}{domain}" for digit in "23")
    others = (name[: longest - len(suffix) if longest else None] + suffix for suffix in suffixes)
    # Cut off to its length, it may have ended so before.
    return next(candidate for candidate in others if candidate != value)


def session_user(environ: Mapping[str, Any]) -> models.Model | None:
    """Return the user whose session the request has, or whom a test client names in the environ; None if anonymous."""
    try:
        users = get_user_model()._base_manager.using(DEFAULT_DB_ALIAS)
    except ImproperlyConfigured:  # a project without users
        return None
    if (session := session_of(environ)) is not None and session.get(SESSION_KEY):
        return users.filter(pk=session[SESSION_KEY]).first()
    # django-webtest logs users in by their names.
    if name := environ.get("WEBTEST_USER"):
        return users.filter(**{get_user_model().USERNAME_FIELD: name}).first()
    return None


def clone_user(environ: Mapping[str, Any], user: models.Model) -> dict[str, Any]:
    """Clone the user, and return the environ of the same request by the clone, in a session of its own.

    Raises `CannotClone` as `UserClone` does.
    """
    clone = UserClone(user)
    cloned = {name: _replaced(value, clone.renamed) for name, value in environ.items()}
    if (session := session_of(environ)) is not None and session.session_key:
        # In one session the two would race for its row, too, and the finding would be about that.
        own_session = type(session)()
        own_session.update(dict(session.items()))
        if SESSION_KEY in own_session:
            own_session[SESSION_KEY] = str(clone.user.pk)
            # Django ends a session whose hash does not fit its user.
            own_session[HASH_SESSION_KEY] = clone.user.get_session_auth_hash()  # type: ignore[attr-defined]
        own_session.save()
        # Not a cookie whose name only ends like that.
        name = settings.SESSION_COOKIE_NAME
        cookie = rf"(?<![^; ]){re.escape(name)}=[^;]*"
        cloned["HTTP_COOKIE"] = re.sub(cookie, f"{name}={own_session.session_key}", environ["HTTP_COOKIE"])
        if SESSION_KEY in own_session:
            return cloned
    # A signed token, or a user whom the test's client names, is in no row.
    return {**cloned, FORCED_USER: clone.user}


def session_of(environ: Mapping[str, Any]) -> Any:
    """Return the request's session; None without one."""
    if (key := parse_cookie(environ.get("HTTP_COOKIE", "")).get(settings.SESSION_COOKIE_NAME)) is None:
        return None
    session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    # The cookie may name a session that has ended.
    return session if session.keys() else None


def _replaced(value: Any, renamed: Mapping[str, str]) -> Any:
    if not isinstance(value, str):
        return value
    scheme, space, credentials = value.rpartition(" ")  # such as "Token 0123"
    return renamed.get(value, f"{scheme}{space}{renamed[credentials]}" if credentials in renamed else value)


# Users of one test of whom another one has a copy: not with what belongs to them, but with what they may do.


@dataclass(frozen=True, slots=True)
class KnownUser:
    """A user with groups and permissions as they were when a request was sent."""

    user: models.Model
    groups: frozenset[str]
    permissions: frozenset[tuple[str, str]]
    """The user's own ones, by application and code name."""

    @classmethod
    def of(cls, environ: Mapping[str, Any]) -> KnownUser | None:
        """Return the request's user; None if anonymous, or known by something else than a session."""
        user: Any = session_user(environ)
        if user is None or not _has_permissions(user):
            return user and cls(user, frozenset(), frozenset())
        permissions = user.user_permissions.values_list("content_type__app_label", "codename")
        return cls(user, frozenset(user.groups.values_list("name", flat=True)), frozenset(permissions))

    def may_the_same_as(self, user: KnownUser) -> bool:
        """Whether both are staff or superusers, in the same groups, with the same permissions."""
        names = ("is_staff", "is_superuser")
        flags, own_flags = ([getattr(it.user, name, False) for name in names] for it in (user, self))
        return (own_flags, self.groups, self.permissions) == (flags, user.groups, user.permissions)

    def log_in_copy(self) -> dict[str, str]:
        """Copy the user, and return how a request says that it is theirs. Raises `CannotClone` if that is refused."""
        try:
            with transaction.atomic():
                user = self._copy()
        except DatabaseError as error:
            raise CannotClone(_("a copy of its user was refused: {error}", error=str(error))) from error
        client = Client()
        client.force_login(user)
        session = client.cookies[settings.SESSION_COOKIE_NAME].value
        # django-webtest logs users in by their names.
        return {"HTTP_COOKIE": f"{settings.SESSION_COOKIE_NAME}={session}", "WEBTEST_USER": user.get_username()}

    def _copy(self) -> Any:
        model: Any = type(self.user)
        fields = {field: getattr(self.user, field.attname) for field in model._meta.concrete_fields}
        values = {
            field.attname: renamed(value, field.max_length) if field.unique and isinstance(value, str) else value
            for field, value in fields.items()
            if not field.primary_key
        }
        user = model(**values)
        # As the project makes users: receivers of signals add what belongs to each of them, such as a profile.
        user.save(using=DEFAULT_DB_ALIAS)
        if _has_permissions(user):
            related = (user.groups.model, user.user_permissions.model)
            groups, permissions = (model._base_manager.using(DEFAULT_DB_ALIAS) for model in related)
            user.groups.set(groups.get_or_create(name=name)[0] for name in self.groups)
            own = (permissions.filter(content_type__app_label=app, codename=code) for app, code in self.permissions)
            user.user_permissions.set(chain.from_iterable(own))
        return user


def _has_permissions(user: Any) -> bool:
    # Not by its class: that cannot be imported in projects that have users without groups.
    return hasattr(user, "groups") and hasattr(user, "user_permissions")
