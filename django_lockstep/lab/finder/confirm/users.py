"""Users of one test of whom another one has a copy: not with what belongs to them, but with what they may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from django.conf import settings
from django.db import DatabaseError, models, transaction
from django.test import Client

from django_lockstep.lab.finder.confirm.clones import renamed, session_user
from django_lockstep.lab.finder.errors import CannotClone

__all__ = ["KnownUser"]


@dataclass(frozen=True, slots=True)
class KnownUser:
    """A user with groups and permissions as they were when a request was sent."""

    user: models.Model
    groups: frozenset[str]
    permissions: frozenset[tuple[str, str]]
    """The user's own ones, by application and code name."""

    @classmethod
    def of(cls, environ: Mapping[str, Any], *, using: str) -> KnownUser | None:
        """Return the request's user; None if anonymous, or known by something else than a session."""
        user: Any = session_user(environ, using=using)
        if user is None or not _has_permissions(user):
            return user and cls(user, frozenset(), frozenset())
        permissions = user.user_permissions.values_list("content_type__app_label", "codename")
        return cls(user, frozenset(user.groups.values_list("name", flat=True)), frozenset(permissions))

    def may_the_same_as(self, other: KnownUser) -> bool:
        """Whether both are of one kind: staff or superusers, in the same groups, with the same permissions."""
        return self._kind == other._kind

    @property
    def _kind(self) -> tuple[object, ...]:
        flags = (getattr(self.user, name, False) for name in ("is_staff", "is_superuser"))
        return (*flags, self.groups, self.permissions)

    def log_in_copy(self, *, using: str) -> dict[str, str]:
        """Copy the user, and return how a request says that it is theirs. Raises `CannotClone` if that is refused."""
        try:
            with transaction.atomic(using=using):
                user = self._copy(using)
        except DatabaseError as error:
            raise CannotClone(f"a copy of its user was refused: {error}") from error
        client = Client()
        client.force_login(user)
        session = client.cookies[settings.SESSION_COOKIE_NAME].value
        # django-webtest logs users in by their names.
        return {"HTTP_COOKIE": f"{settings.SESSION_COOKIE_NAME}={session}", "WEBTEST_USER": user.get_username()}

    def _copy(self, using: str) -> Any:
        model: Any = type(self.user)
        fields = [field for field in model._meta.concrete_fields if not field.primary_key]
        user = model(**{field.attname: _changed(field, getattr(self.user, field.attname)) for field in fields})
        # Not by save(): receivers of signals would create rows that a test may count.
        model._base_manager.using(using).bulk_create([user])
        if _has_permissions(user):
            groups, permissions = (
                each.model._base_manager.using(using) for each in (user.groups, user.user_permissions)
            )
            user.groups.set(groups.get_or_create(name=name)[0] for name in self.groups)
            own = (permissions.filter(content_type__app_label=app, codename=code) for app, code in self.permissions)
            user.user_permissions.set(chain.from_iterable(own))
        return user


def _has_permissions(user: Any) -> bool:
    # Not by its class: that cannot be imported in projects that have users without groups.
    return hasattr(user, "groups") and hasattr(user, "user_permissions")


def _changed(field: Any, value: Any) -> Any:
    return renamed(value, field.max_length) if field.unique and isinstance(value, str) else value
