"""The command that explores races from the shell."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS
from django.utils.module_loading import import_string

from accounts.lab.explorer import Exploration, ExplorerError, Run, Scenario, explore, replay, timeline
from accounts.lab.scenarios.races import RACES, Race


class Command(BaseCommand):
    """Explore scenarios; a thin shell over `explore` and `replay`."""

    help = "Runs scenarios through every interleaving of their SQL statements, and shows the simplest one that breaks."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what can be asked for."""
        parser.add_argument(
            "scenarios", nargs="*", help="names of --list, or dotted paths of your own Scenario objects"
        )
        parser.add_argument("--list", action="store_true", help="list the ready-made scenarios")
        parser.add_argument("--schedule", help="run this schedule only, such as AABBAB")
        parser.add_argument("--reduction", choices=["dpor", "none"], default="dpor")
        parser.add_argument("--preemptions", type=int, help="interrupt an actor that could go on at most so often")
        parser.add_argument("--max-schedules", type=int)
        parser.add_argument("--timeout", type=float, help="seconds after which no further schedule is begun")
        parser.add_argument("--victim", choices=["last", "first"], default="last", help="who loses a deadlock")
        parser.add_argument("--format", choices=["text", "json"], default="text")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Explore what is named, or everything ready-made; exit 1 if something is not as expected."""
        if options["list"]:
            self.stdout.write("\n".join(f"{race.name:36} {race.text}" for race in RACES.values()))
            return
        races = [_race(name) for name in options["scenarios"]] or list(RACES.values())
        common = {"victim": options["victim"], "database": options["database"]}
        try:
            if options["schedule"]:
                self._replay(races, options["schedule"], options=common, form=options["format"])
            else:
                limits = {name: options[name] for name in ("reduction", "preemptions", "max_schedules", "timeout")}
                self._explore(races, {**common, **limits}, form=options["format"])
        except ExplorerError as error:
            raise CommandError(str(error), returncode=2) from error

    def _replay(self, races: list[Race], schedule: str, *, options: dict[str, Any], form: str) -> None:
        if len(races) != 1:
            raise CommandError("--schedule needs exactly one scenario", returncode=2)
        (race,) = races
        run = replay(race.scenario, schedule, **options)
        self.stdout.write(run.to_json() if form == "json" else timeline(run))
        if race.holds and not run.holds:
            raise CommandError(f"{race.name}: schedule {run.schedule} ended wrong", returncode=1)

    def _explore(self, races: list[Race], options: dict[str, Any], *, form: str) -> None:
        found = {race.name: explore(race.scenario, **options) for race in races}
        if form == "json":
            self.stdout.write(json.dumps({name: each.to_dict() for name, each in found.items()}, indent=2))
        else:
            for name, each in found.items():
                self.stdout.write(_text(name, each))
        surprises = [race.name for race in races if not race.as_expected(found[race.name])]
        if surprises:
            raise CommandError(f"Not as expected: {', '.join(surprises)}", returncode=1)


def _race(name: str) -> Race:
    """Return the ready-made race, or the user's own scenario as one that has to hold."""
    if name in RACES:
        return RACES[name]
    try:
        own = import_string(name)
    except ImportError as error:
        raise CommandError(
            f"{name!r} is no ready-made scenario (--list) and no dotted path: {error}", returncode=2
        ) from error
    if isinstance(own, Race):
        return own
    if not isinstance(own, Scenario):
        raise CommandError(f"{name} is a {type(own).__name__}, not a Scenario", returncode=2)
    return Race(name=name, text="", scenario=own)


def _text(name: str, found: Exploration) -> str:
    counts = f"{found.schedules} schedules, {found.seconds:.2f} s, {found.deadlocks} with deadlocks"
    lines = [f"{name}: {found.verdict} ({counts})"]
    failure: Run | None = found.failure
    if failure is not None:
        lines.append(timeline(failure))
    elif found.verdict != "holds":
        lines.append(found.reason)
    return "\n".join(lines)
