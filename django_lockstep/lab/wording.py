"""Sentences of the lab: English as text, and on pages in the visitor's language.

Results travel as text: to other processes, into files, into the messages of failing tests. There they are English,
whatever language is active. A page shows the same result in the language of its visitor, so that each sentence keeps
its template, which is what catalogs translate, and the values in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from django.utils import translation
from django.utils.html import escape

from django_lockstep.errors import sqlstate_of

_Template = str | tuple[str, str]
"""A text with names in braces, or two, of which ``number`` chooses: the singular and the plural."""


class Sentence(str):
    """English text, which a Django template shows in the active language; made by `gettext` and `ngettext`."""

    __slots__ = ("template", "values")
    template: _Template
    values: dict[str, Any]

    def __new__(cls, template: _Template, values: dict[str, Any]) -> Self:
        """``values`` may be sentences themselves; whole numbers are written with commas."""
        chosen = template if isinstance(template, str) else template[values["number"] != 1]
        sentence = super().__new__(cls, chosen.format_map(_written(values)))
        sentence.template, sentence.values = template, values
        return sentence

    def with_values(self, change: Callable[[str], str]) -> Self:
        """Return it with each text in it changed, but not what is between these."""
        values = {name: change(value) if isinstance(value, str) else value for name, value in self.values.items()}
        return type(self)(self.template, values)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.template, self.values)

    def __str__(self) -> str:
        """Return itself, so that an error says the sentence that it was raised with."""
        return self

    def __html__(self) -> str:
        """Return it as a template shows it."""
        return escape(localized(self))


def _written(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: f"{value:,}" if isinstance(value, int) else value for name, value in values.items()}


# Named as Django's functions, whose calls are what `makemessages` looks for.


def gettext(text: str, /, **values: Any) -> Sentence:
    """Return a sentence: the text, with values in the place of names in braces."""
    return Sentence(text, values)


def ngettext(singular: str, plural: str, number: int, /, **values: Any) -> Sentence:
    """Return a sentence about a number of things, which is its value ``number``."""
    return Sentence((singular, plural), {"number": number, **values})


def gettext_noop(text: str) -> str:
    """Return the text, a template for `gettext`; unlike Django's function it asks for no settings."""
    return text


def localized(text: str) -> str:
    """Return a sentence in the active language, if that has it; any other text, such as the code's own, as it is."""
    if not isinstance(text, Sentence):
        return text
    if isinstance(text.template, str):
        template = translation.gettext(text.template) if text.template else ""
    else:
        template = translation.ngettext(*text.template, text.values["number"])
    return template.format_map(_written(text.with_values(localized).values))


def joined(texts: Iterable[str], by: str) -> Sentence:
    """Return the texts with something between them, each in its language."""
    values = {f"text{number}": text for number, text in enumerate(texts)}
    return Sentence(by.join(f"{{{name}}}" for name in values), values)


def parts_of(text: str) -> tuple[str, ...]:
    """Return the texts that `joined` has put together; any other text alone."""
    return tuple(text.values.values()) if isinstance(text, Sentence) and "text0" in text.values else (text,)


def listed(words: Iterable[str], *, most: int | None = None) -> Sentence:
    """Return the words as one enumeration: ``a, b and c``; of more than ``most`` how many more there are."""
    words = list(words)
    if most is not None and len(words) > most:
        words[most:] = [gettext("{number} more", number=len(words) - most)]
    *first, last = words
    return gettext("{first} and {last}", first=joined(first, ", "), last=last) if first else joined([last], "")


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Return the number with its noun, in English; ``things`` is the plural where it is not ``thing`` with an s."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


# Kept in files as JSON, where a sentence would be read again as its English text.


def error_label(error: BaseException) -> str:
    """Return the error's class, and the SQLSTATE of one that has it in brackets."""
    code, kind = sqlstate_of(error), type(error).__name__
    return f"{kind} ({code})" if code else kind


def as_data(value: Any) -> Any:
    """Return plain lists and dictionaries with every sentence as its parts; `from_data` makes sentences of these."""
    if isinstance(value, Sentence):
        return {"template": value.template, "values": as_data(value.values)}
    if isinstance(value, Mapping):
        return {name: as_data(part) for name, part in value.items()}
    return [as_data(part) for part in value] if isinstance(value, list | tuple) else value


def from_data(data: Any) -> Any:
    """Return the value that `as_data` has made plain."""
    if isinstance(data, list):
        return [from_data(part) for part in data]
    if not isinstance(data, dict):
        return data
    parts = {name: from_data(part) for name, part in data.items()}
    if parts.keys() != {"template", "values"}:
        return parts
    template = parts["template"]
    return Sentence(template if isinstance(template, str) else tuple(template), parts["values"])
