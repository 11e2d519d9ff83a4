"""Programs at the HTTP API."""

from typing import Any

from django.contrib.auth.models import Permission
from django.test import Client

from django_lockstep.editing.tokens import issue

API = "/editing/api"

OPENING: dict[str, Any] = {
    "table": "press.Article",
    "current_status": "normal",
    "target_status": "editing",
    "fk_tables": ["press.Author"],
    "fk_current_status": ["normal"],
    "fk_target_status": ["locked"],
}
CLOSING: dict[str, Any] = {
    **OPENING,
    "current_status": "editing",
    "target_status": "normal",
    "fk_current_status": ["locked"],
    "fk_target_status": ["normal"],
}


def allow(user: Any, *names: str) -> Any:
    permissions = Permission.objects.filter(content_type__app_label="press", codename__in=names)
    assert len(permissions) == len(names)
    user.user_permissions.add(*permissions)
    return user


class Caller:
    """A program with a token."""

    def __init__(self, user: Any) -> None:
        self._client = Client(headers={"Authorization": f"Bearer {issue(user)}"})

    def post(self, path: str, **data: Any) -> Any:
        return self._client.post(f"{API}{path}", data, content_type="application/json")

    def get(self, path: str) -> Any:
        return self._client.get(f"{API}{path}")
