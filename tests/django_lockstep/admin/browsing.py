"""A browser without a screen: opens pages, fills in their forms as they are, sends them."""

from html.parser import HTMLParser
from typing import Any

from django.test import Client


class Form(HTMLParser):
    """What the forms of a page would send, by name; a name that comes twice keeps all its values."""

    def __init__(self, response: Any) -> None:
        super().__init__()
        self.data: dict[str, list[str]] = {}
        self.radios: set[str] = set()
        self._inside = self._area = None
        self.feed(response.content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes: dict[str, Any] = dict(attrs)
        if tag == "form":
            self._inside = attributes.get("method")
        if self._inside != "post" or "name" not in attributes:
            return
        kind = attributes.get("type", "text")
        if kind == "radio":
            self.radios.add(attributes["name"])
        if tag == "textarea":
            self._area = attributes["name"]
        unchecked = kind in {"checkbox", "radio"} and "checked" not in attributes
        if tag == "input" and kind not in {"submit", "file"} and "disabled" not in attributes and not unchecked:
            self.data.setdefault(attributes["name"], []).append(attributes.get("value") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = None
        if tag == "textarea":
            self._area = None

    def handle_data(self, data: str) -> None:
        if self._area:
            self.data[self._area] = [data.removeprefix("\n")]


def fill(response: Any, *, without: tuple[str, ...] = (), **typed: Any) -> dict[str, Any]:
    """Return what the page's form sends after somebody typed; ``__`` in a name stands for ``-``."""
    data: dict[str, Any] = {name: values for name, values in Form(response).data.items() if name not in without}
    return data | {name.replace("__", "-"): value for name, value in typed.items()}


def choose(response: Any, decision: str, *names: str) -> dict[str, Any]:
    """Return what the conflict page sends after somebody chose one side for these fields."""
    page = Form(response)
    assert {f"choice-{name}" for name in names} <= page.radios
    return page.data | {f"choice-{name}": decision for name in names}


def text_of(response: Any) -> str:
    """Return the page as a person reads it, in one line."""
    import re
    from html import unescape

    body = re.sub(r"<(script|style).*?</\1>", " ", response.content.decode(), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def change(model: Any, pk: Any, **values: Any) -> None:
    """Let somebody else change the object."""
    obj = model.objects.get(pk=pk)
    for name, value in values.items():
        setattr(obj, name, value)
    obj.save()


def conflict_of(client: Client, obj: Any, theirs: dict[str, Any], *, row: Any = None, **typed: Any) -> Any:
    """Open the object's form, let somebody else change it or a row of an inline, and send what was typed."""
    page, changed = client.get(url(obj)), obj if row is None else row
    change(type(changed), changed.pk, **theirs)
    return client.post(url(obj), fill(page, **typed))


def url(obj: Any, page: str = "change") -> str:
    """Return the address of the object's page, or of its list."""
    meta = obj._meta
    start = f"/admin/{meta.app_label}/{meta.model_name}/"
    return start if page == "list" else f"{start}{obj.pk}/{page}/"


def messages_of(client: Client, response: Any) -> list[str]:
    """Return what the admin tells after this answer."""
    from django.contrib.messages import get_messages

    return [str(message) for message in get_messages(response.wsgi_request)]
