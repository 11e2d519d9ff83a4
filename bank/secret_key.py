"""The demo's secret key where the environment names none: made once, and kept for every process of this copy."""

import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from django.core.management.utils import get_random_secret_key

logger = logging.getLogger(__name__)


def kept_key(path: Path) -> str:
    """Return the key in the file, which is made where it is missing and can be read by its owner alone.

    With a key of its own in each process, the sessions of one worker would be void in the next. Where no file can be
    kept that is how it is, and a warning says so.
    """
    try:
        if not path.exists():
            _make(path)
        return path.read_text()
    except OSError as error:
        logger.warning(
            "DJANGO_SECRET_KEY is not set, and %s cannot be kept (%s): each process has a key of its own, and a "
            "session or signature of one is void in the others.",
            path,
            error.strerror,
        )
        return get_random_secret_key()


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix="secret_key.") as new:
        new.write(get_random_secret_key())
        new.flush()
        # Of two processes the first one wins, and neither reads half a key.
        with suppress(FileExistsError):
            os.link(new.name, path)
