"""What projects may rely on stands in ``public.txt``, so that nothing of it changes unnoticed.

A change that is meant is written there by ``python -m tests.test_public`` with Django set up, and into CHANGELOG.md.
"""

import os
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import django

from tests.support.pages import ROOT

LISTED = Path(__file__).with_name("public.txt")
PACKAGES = ("django_lockstep", "accounts")
_CHECK = re.compile(r"\b(?:lockstep|accounts)\.[EW]\d{3}\b")
_SETTING = re.compile(r"\b(?:LOCKSTEP|ACCOUNTS)_[A-Z_]+\b")


def public() -> Iterator[str]:
    """Yield a line for each name, setting, system check, app, model, command and ready-made race."""
    from django.apps import apps

    from accounts.races.ready_made import RACES
    from tests.test_docs import public_names

    sources = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    text = "\n".join(path.read_text("utf-8") for path in sources)
    configs = [config for config in apps.get_app_configs() if config.name.startswith(PACKAGES)]
    yield from (f"name {name}" for name in public_names())
    yield from (f"setting {name}" for name in sorted(set(_SETTING.findall(text))))
    yield from (f"check {name}" for name in sorted(set(_CHECK.findall(text))))
    yield from (f"app {config.name}, label {config.label}" for config in configs)
    yield from sorted(f"model {model._meta.label}" for config in configs for model in config.get_models())
    commands = (path for path in sources if path.parent.name == "commands" and path.stem != "__init__")
    yield from sorted(f"command {path.stem}" for path in commands)
    for _, names in groupby(sorted(RACES), key=lambda name: name.partition(":")[0]):
        yield f"races {' '.join(names)}"


def test_nothing_public_changes_unnoticed() -> None:
    assert list(public()) == LISTED.read_text("utf-8").splitlines()


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    LISTED.write_text("\n".join([*public(), ""]), encoding="utf-8")
