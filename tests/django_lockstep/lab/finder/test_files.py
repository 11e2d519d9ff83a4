"""Recordings in files."""

from pathlib import Path

import pytest

from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.finder.record import recording
from django_lockstep.lab.finder.record.recording import (
    Recording,
    RecordingWriter,
    Unit,
    merge_recordings,
    read_recording,
)
from tests.django_lockstep.lab.finder.builders import BOOKING, TABLES, row, sent, unit, with_index

SELL = unit(
    sent('SELECT * FROM "seat" WHERE "seat"."id" = %s', 7, read=[row("seat", 7, price=10)]),
    sent('UPDATE "seat" SET "price" = %s WHERE "seat"."id" = %s', 20, 7, in_=None, isolation="serializable"),
    inputs=[7, "x"],
    key_order=("=7",),
)
BARE = Unit(test="test_it", kind="call", name="box.office.sell", number=2, statements=(sent("LOCK TABLE seat"),))


def write(path: Path, *units: Unit, notes: tuple[str, ...] = ()) -> Path:
    writer = RecordingWriter(path)
    writer.write_tables(TABLES.values())
    for work_unit in units:
        writer.write_unit(work_unit)
    writer.write_tables(with_index(BOOKING, "code", predicate=("place",)).values())
    writer.close(tests=1, notes=notes)
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "new" / "recording.jsonl", SELL, BARE, SELL, notes=("A sentence.",))

    tables = {**TABLES, **with_index(BOOKING, "code", predicate=("place",))}
    assert read_recording(path) == Recording(tables=tables, units=(SELL, BARE, SELL), tests=1, notes=("A sentence.",))
    assert path.read_text().count("UPDATE") == 1


@pytest.mark.parametrize("most", [1, 100])
def test_a_row_is_written_once_in_each_of_its_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(recording, "_MOST_NUMBERED", most)
    rows = [row("seat", 7, price=10), row("seat", 7, price=20), row("seat", 7, version=10), row("seat", 8, price=10)]
    reads = unit(*(sent(SELL.statements[0].sql, 7, read=read) for read in ([*rows, *rows], rows[:2], rows)))
    path = write(tmp_path / "recording.jsonl", reads, reads)

    assert read_recording(path).units == (reads, reads)
    assert path.read_text().count('{"row":') == (len(rows) if most > 1 else 2 * 14)


def test_the_last_line_of_a_killed_run_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "recording.jsonl", SELL)
    lines = path.read_text().splitlines()
    last = next(number for number, line in enumerate(lines) if line.startswith('{"unit"'))
    path.write_text("\n".join([*lines[: last + 1], '{"unit": {"te']))

    assert read_recording(path) == Recording(tables=TABLES, units=(SELL,))


@pytest.mark.parametrize("text", ["", "no recording\n", '{"recording":1}\n', "[1]\n"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.txt"
    path.write_text(text)

    with pytest.raises(FinderError, match=r"other.txt is not a recording of version 3: record the tests again"):
        read_recording(path)


def test_the_parts_of_several_processes_become_one(tmp_path: Path) -> None:
    parts = [write(tmp_path / "1", SELL, notes=("Same.",)), write(tmp_path / "2", BARE, SELL, notes=("Same.",))]

    merge_recordings(parts, tmp_path / "all")

    merged = read_recording(tmp_path / "all")
    assert (merged.units, merged.tests, merged.notes) == ((SELL, BARE, SELL), 2, ("Same.",))
    assert [path.name for path in tmp_path.iterdir()] == ["all"]
