"""Files that pages of the lab offer for download."""

from __future__ import annotations

import re

from django.http import HttpResponse

__all__ = ["FORMS", "attachment", "file_name"]

FORMS = ("svg", "html", "py", "spec")
"""What a schedule can be downloaded as: a drawing, a report, a test for pytest, a spec for isolationtester."""
_TYPES = {
    "svg": "image/svg+xml",
    "html": "text/html",
    "json": "application/json",
    "sarif": "application/sarif+json",
    "xml": "application/xml",
    "py": "text/x-python",
    "spec": "text/plain",
}


def file_name(*parts: str, form: str) -> str:
    """Return the name of a file whose ending is its form; that of a test is one by which pytest finds it."""
    # Names of races have colons and slashes, which names of files cannot have everywhere; a header is ASCII.
    stem = "-".join(re.sub(r"\W+", "-", part, flags=re.ASCII).strip("-") for part in parts)
    return f"test_{stem.replace('-', '_')}.py" if form == "py" else f"{stem}.{form}"


def attachment(text: str, name: str) -> HttpResponse:
    """Return the text as a file of this name, whose ending decides its type."""
    content_type = f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8"
    return HttpResponse(
        text, content_type=content_type, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
