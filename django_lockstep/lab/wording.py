"""Sentences of the lab: English as text, and on pages in the visitor's language.

Results travel as text: to other processes, into files, into the messages of failing tests. There they are English,
whatever language is active. A page shows the same result in the language of its visitor, so that each sentence keeps
its template, which is what catalogs translate, and the values in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from django.utils import translation
from django.utils.html import escape

_Template = str | tuple[str, str]
"""A text with names in braces, or two, of which ``number`` chooses: the singular and the plural."""


class Sentence(str):
    """English text, which a Django template shows in the active language; made by `gettext` and `ngettext`."""

    __slots__ = ("_template", "_values")
    _template: _Template
    _values: dict[str, Any]

    def __new__(cls, template: _Template, values: dict[str, Any]) -> Self:
        """``values`` may be sentences themselves."""
        chosen = template if isinstance(template, str) else template[values["number"] != 1]
        sentence = super().__new__(cls, chosen.format_map(values))
        sentence._template, sentence._values = template, values
        return sentence

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._template, self._values)

    def __html__(self) -> str:
        """Return it as a template shows it."""
        return escape(localized(self))

    def in_active_language(self) -> str:
        """Return it in the language that is active, or in English where that has no translation."""
        values = {name: localized(value) if isinstance(value, str) else value for name, value in self._values.items()}
        if isinstance(self._template, str):
            template = translation.gettext(self._template) if self._template else ""
        else:
            template = translation.ngettext(*self._template, values["number"])
        return template.format_map(values)


# Named as Django's functions, whose calls are what `makemessages` looks for.


def gettext(text: str, /, **values: Any) -> Sentence:
    """Return a sentence: the text, with values in the place of names in braces."""
    return Sentence(text, values)


def ngettext(singular: str, plural: str, number: int, /, **values: Any) -> Sentence:
    """Return a sentence about a number of things, which is its value ``number``."""
    return Sentence((singular, plural), {"number": number, **values})


def localized(text: str) -> str:
    """Return a sentence in the active language; any other text, such as what the code under test says, as it is."""
    return text.in_active_language() if isinstance(text, Sentence) else text


def message_of(error: BaseException) -> str:
    """Return what the error says, as the sentence that it was made of."""
    return error.args[0] if len(error.args) == 1 and isinstance(error.args[0], Sentence) else str(error)


def joined(texts: Iterable[str], by: str) -> Sentence:
    """Return the texts with something between them, each in its language."""
    values = {f"text{number}": text for number, text in enumerate(texts)}
    return Sentence(by.join(f"{{{name}}}" for name in values), values)


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
