"""Where a command's report goes."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["require_writable", "write_atomically"]


def require_writable(path: Path) -> None:
    """Raise ``ValueError`` if a file cannot be written there, before the work whose result it is to hold."""
    folder = path.resolve().parent
    if path.is_dir():
        raise ValueError(f"--output {path}: it is a folder")
    if not folder.is_dir():
        raise ValueError(f"--output {path}: there is no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"--output {path}: not allowed to write there")


def write_atomically(path: Path, text: str) -> None:
    """Write the text with a newline at its end; whoever reads the file meanwhile sees the old or the new content."""
    path = path.resolve()
    if path.exists() and not path.is_file():  # a device such as /dev/stdout
        path.write_text(f"{text}\n", encoding="utf-8")
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(f"{text}\n", encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
