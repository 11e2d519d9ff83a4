"""All errors of the library are one tree, and its module draws it as it is."""

import importlib
import pkgutil
import re

import django_lockstep
from django_lockstep import errors
from django_lockstep.errors import LockstepError

ROOMS = [
    module.name
    for module in pkgutil.walk_packages(django_lockstep.__path__, "django_lockstep.")
    if module.name.endswith((".errors", ".http.preconditions"))
]


def below(error: type[LockstepError]) -> set[type[LockstepError]]:
    return {error}.union(*(below(child) for child in error.__subclasses__()))


def test_the_drawn_tree_is_the_real_one() -> None:
    for name in ROOMS:
        importlib.import_module(name)
    drawn: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"    ((?:[│├└─ ]{4})*)([A-Z]\w+)", line):
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            drawn[found[2]] = path[depth - 1] if depth else None
    ours = {error for error in below(LockstepError) if error.__module__ in ROOMS}
    assert drawn.pop("LockstepError") is None
    assert drawn == {
        error.__name__: next(base.__name__ for base in error.__bases__ if issubclass(base, LockstepError))
        for error in ours - {LockstepError}
    }


def test_every_room_raises_errors_of_the_tree() -> None:
    for name in ROOMS:
        room = importlib.import_module(name)
        public = [getattr(room, each) for each in room.__all__]
        assert all(issubclass(each, LockstepError) for each in public if isinstance(each, type))
