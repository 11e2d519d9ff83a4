"""How wide text is in a fixed-width font, cut to fit and freed of what cannot be shown."""

from __future__ import annotations

import unicodedata

__all__ = ["clean", "counted", "display_width", "truncate", "wrap"]

_ONE_COLUMN = 0x0530
"""Latin, Greek and Cyrillic end here; fonts of other scripts may be as wide as two columns."""
_LINES = {"\u2190", "\u2192", "\u25b2", "\u2026", "\u2502", "\u2506", "\u250c", "\u2514"}
_MISREAD = {*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", "\ufffe", "\uffff"}
"""Turns of the writing direction, which would let text stand for another one, and what is no character."""


def counted(number: int, what: str) -> str:
    """Return the number with the noun, which gets an s unless it is one."""
    return f"{number} {what}{'s' * (number != 1)}"


def clean(text: str) -> str:
    """Return the text on one line, with a replacement for each character that XML or a terminal cannot show."""
    return "".join(map(_shown, " ".join(text.split())))


def _shown(letter: str) -> str:
    return "\ufffd" if letter in _MISREAD or unicodedata.category(letter) in {"Cc", "Cs"} else letter


def _columns(letter: str) -> int:
    if unicodedata.combining(letter) and letter:
        return 0
    return 1 if ord(letter) < _ONE_COLUMN or letter in _LINES else 2


def display_width(text: str) -> int:
    """Return the text's width in columns, rather too large than too small."""
    return sum(map(_columns, text))


def truncate(text: str, columns: int) -> str:
    """Return the text on one line, with an ellipsis at its end where it is wider than that many columns."""
    text = clean(text)
    if display_width(text) <= columns:
        return text
    room, kept = columns - 1, ""
    for letter in text:
        room -= _columns(letter)
        if room < 0:
            break
        kept += letter
    return kept.rstrip() + "\u2026"


def wrap(text: str, columns: int, *, most: int | None = None) -> list[str]:
    """Return the text broken at spaces into lines of at most that many columns; what exceeds ``most`` lines is cut."""
    lines: list[str] = [""]
    words = clean(text).split(" ")
    for index, word in enumerate(words):
        joined = f"{lines[-1]} {word}".strip()
        if display_width(joined) <= columns:
            lines[-1] = joined
        elif len(lines) == most:
            lines[-1] = truncate(" ".join([lines[-1], *words[index:]]), columns)
            break
        else:
            lines.append(truncate(word, columns))
    return [line for line in lines if line]
