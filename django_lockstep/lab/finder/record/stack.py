"""Which lines and functions of the project are on the stack: where a statement was sent, in which call.

Frames belong to the project, to an app that is installed beside it, to tests, or to none of these. The project's come
first; an app's count where none of the project's is there, as in the tests of an app that is installed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Literal

from django.apps import apps

from django_lockstep.lab.explorer.effects.operations import INSTALLED, is_override, project_root, shown_path
from django_lockstep.lab.finder.record.recording import Site

_LAB = Path(__file__).parents[2]
_LIBRARY = _LAB.parent
_TEST_FOLDER = re.compile(r"(?i)tests?|testing|test_.*|.*_tests?")
_TEST_MODULE = re.compile(r"(?i)tests?|test_.*|.*_tests?|conftest|(.*_)?(factory|factories|fixtures)|testing")


_Kind = Literal["project", "app", "test", "other"]


class CodeMap:
    """Knows whose code a file holds."""

    def __init__(self) -> None:
        self._root = project_root()
        self._kinds: dict[str, _Kind] = {}
        self._sites: dict[tuple[str, int, str], Site] = {}

    def add_test_file(self, path: Path) -> None:
        """Note a file that holds tests, whatever it is called."""
        self._kinds[str(path)] = "test"

    def walk(self, frame: FrameType | None, *, whole: bool) -> tuple[Site | None, FrameType | None]:
        """Return the innermost line of the project, and if ``whole`` its outermost call below the test's code.

        A line of a model's own ``save()`` or ``delete()`` counts only if nothing else is there.
        """
        sites: dict[_Kind, FrameType] = {}
        overrides: dict[_Kind, FrameType] = {}
        calls: dict[_Kind, FrameType] = {}
        while frame is not None:
            kind = self._kind(frame.f_code.co_filename)
            # What is further out runs the test.
            if kind == "test":
                break
            if kind != "other":
                (overrides if is_override(frame) else sites).setdefault(kind, frame)
                # A lambda or a comprehension cannot be called by its name.
                if not frame.f_code.co_name.startswith("<"):
                    calls[kind] = frame
                if "project" in sites and not whole:
                    break
            frame = frame.f_back
        places = (frames.get(kind) for kind in ("project", "app") for frames in (sites, overrides))
        site = next(filter(None, places), None)
        return self._site(site) if site else None, calls.get("project") or calls.get("app")

    def definition(self, frame: FrameType) -> Site:
        """Return the first line of the frame's function."""
        code = frame.f_code
        return Site(path=shown_path(code.co_filename), line=code.co_firstlineno, function=code.co_qualname)

    def _site(self, frame: FrameType) -> Site:
        key = (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)
        if key not in self._sites:
            self._sites[key] = replace(self.definition(frame), line=frame.f_lineno)
        return self._sites[key]

    def _kind(self, filename: str) -> _Kind:
        if filename not in self._kinds:
            self._kinds[filename] = self._classify(filename)
        return self._kinds[filename]

    def _classify(self, filename: str) -> _Kind:
        path = Path(filename)
        is_installed = filename.startswith(INSTALLED)
        if not path.is_absolute() or path.is_relative_to(_LAB):
            return "other"
        if path.is_relative_to(_LIBRARY):  # in its own checkout it is tested
            return "app" if _LIBRARY.is_relative_to(self._root) and not is_installed else "other"
        # The innermost: an app's folder may be inside of another one's.
        folders = [folder for folder in self._apps if path.is_relative_to(folder)]
        app = max(folders, default=None, key=lambda folder: len(folder.parts))
        in_root = path.is_relative_to(self._root) and not is_installed
        if app is None and not in_root:
            return "other"
        inside = path.relative_to(app if app and (not in_root or app.is_relative_to(self._root)) else self._root)
        if _TEST_MODULE.fullmatch(path.stem) or any(map(_TEST_FOLDER.fullmatch, inside.parts[:-1])):
            return "test"
        return "project" if in_root else "app"

    @cached_property
    def _apps(self) -> list[Path]:
        """The folders of the installed apps that are neither Django's nor this library's."""
        configs = [config for config in apps.get_app_configs() if config.name.partition(".")[0] != "django"]
        return [folder for folder in (Path(config.path) for config in configs) if not folder.is_relative_to(_LIBRARY)]
