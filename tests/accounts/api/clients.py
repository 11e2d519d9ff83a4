"""Clients of the API."""

import json
from typing import Any

from django.test import Client

from accounts.api import make_token


class Api:
    """A program that acts as a user, with their token."""

    def __init__(self, user: Any = None) -> None:
        self._headers = {} if user is None else {"Authorization": f"Bearer {make_token(user)}"}

    def get(self, path: str, **headers: str) -> Any:
        return Client().get(f"/api{path}", headers={**self._headers, **headers})

    def post(self, path: str, body: Any, **headers: str) -> Any:
        return self._send("post", path, body, headers)

    def put(self, path: str, body: Any, **headers: str) -> Any:
        return self._send("put", path, body, headers)

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        send = getattr(Client(), method)
        return send(
            f"/api{path}", json.dumps(body), content_type="application/json", headers={**self._headers, **headers}
        )
