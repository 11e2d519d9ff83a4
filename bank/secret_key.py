"""The demo's secret key where the environment does not set one: a file that all processes of this copy share."""

import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from django.core.management.utils import get_random_secret_key

logger = logging.getLogger(__name__)


def read_or_create_key(path: Path) -> str:
    """Return the key in the file; create the file, readable only by its owner, if it does not exist.

    If the file cannot be created, each process gets its own key, so that sessions of one are invalid in the others; a
    warning says so.
    """
    try:
        if not path.exists():
            _make(path)
        return path.read_text()
    except OSError as error:
        logger.warning(
            "DJANGO_SECRET_KEY is not set, and %s cannot be used (%s): each process has its own key, and a session or "
            "signature of one is invalid in the others.",
            path,
            error.strerror,
        )
        return get_random_secret_key()


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix="secret_key.") as new:
        new.write(get_random_secret_key())
        new.flush()
        # link() is atomic: of two processes the first one wins, and no reader sees half a key.
        with suppress(FileExistsError):
            os.link(new.name, path)
