"""Text in a fixed-width font: its width, truncated or wrapped to fit, without characters that cannot be shown."""

from __future__ import annotations

import unicodedata

__all__ = ["clean", "display_width", "truncate", "wrap"]

_ONE_COLUMN = 0x0530
"""The end of Latin, Greek and Cyrillic; letters of other scripts may be two columns wide."""
_LINES = {"\u2190", "\u2192", "\u25b2", "\u2026", "\u2502", "\u2506", "\u250c", "\u2514"}
_MISLEADING = {*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", "\ufffe", "\uffff"}
"""Bidirectional controls, with which text could pretend to be another one, and noncharacters."""


def clean(text: str) -> str:
    """Return the text on one line, with a replacement for each character that XML or a terminal cannot show."""
    return "".join(map(_shown, " ".join(text.split())))


def _shown(letter: str) -> str:
    return "\ufffd" if letter in _MISLEADING or unicodedata.category(letter) in {"Cc", "Cs"} else letter


def _columns(letter: str) -> int:
    if unicodedata.combining(letter) and letter:
        return 0
    return 1 if ord(letter) < _ONE_COLUMN or letter in _LINES else 2


def display_width(text: str) -> int:
    """Return the text's width in columns; too large rather than too small."""
    return sum(map(_columns, text))


def truncate(text: str, columns: int) -> str:
    """Return the text on one line, ending with an ellipsis if it is wider than ``columns``."""
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
    """Return the text broken at spaces into lines of at most ``columns``; the last of ``most`` lines is truncated."""
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
