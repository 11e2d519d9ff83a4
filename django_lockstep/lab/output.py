"""Writes a report to a file."""

from __future__ import annotations

import os
from pathlib import Path


def require_writable(path: Path, *, option: str = "--output") -> None:
    """Raise ``ValueError`` if the file cannot be written; call it before the work whose result goes there."""
    folder = path.resolve().parent
    if path.is_dir():
        raise ValueError(f"{option} {path}: is a folder")
    if not folder.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"{option} {path}: permission denied")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write bytes, or a text and a newline; a concurrent reader sees either the old or the new content."""
    path = path.resolve()
    data = content if isinstance(content, bytes) else f"{content}\n".encode()
    if path.exists() and not path.is_file():  # a device such as /dev/stdout
        path.write_bytes(data)
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
