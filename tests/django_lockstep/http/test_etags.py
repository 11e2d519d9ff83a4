"""Entity tags: what they are made of, and how headers are read."""

import pytest
from django.db import models

from django_lockstep.http import MalformedPrecondition, etag
from django_lockstep.http.preconditions import ANY, parse_tags, same_strong, same_weak
from tests.testapps.shop.models import OddSeat, Seat


@pytest.mark.django_db
def test_a_tag_is_of_key_and_version() -> None:
    seat = Seat.objects.create()
    assert etag(seat) == f'"{seat.pk}.1"'
    seat.guest = "Ada"
    seat.save()
    assert etag(seat) == f'"{seat.pk}.2"'


@pytest.mark.django_db
@pytest.mark.parametrize("code", ['a"b', "a,b", "a b", "ü", "a.1", "W/"])
def test_any_key_makes_a_tag_that_is_read_back(code: str) -> None:
    tag = etag(OddSeat.objects.create(code=code))
    assert parse_tags(tag) == (tag,)


def test_what_was_never_saved_has_no_tag() -> None:
    with pytest.raises(ValueError, match="never saved"):
        etag(Seat())


@pytest.mark.parametrize(
    ("header", "tags"),
    [
        ('"1.2"', ('"1.2"',)),
        ('"a", "b"', ('"a"', '"b"')),
        (' ,"a",, W/"b" ,', ('"a"', 'W/"b"')),
        ('""', ('""',)),
        ('"a,b"', ('"a,b"',)),
        ("*", ANY),
        (" * ", ANY),
    ],
)
def test_lists_of_tags_are_read(header: str, tags: tuple[str, ...]) -> None:
    assert parse_tags(header) == tags


@pytest.mark.parametrize("header", ["", "3", '"a" "b"', '"a', 'a"', '*, "a"', "W/3", 'w/"a"', '"a b"', ",", '"a"; x'])
def test_everything_else_is_malformed(header: str) -> None:
    with pytest.raises(MalformedPrecondition):
        parse_tags(header)


def test_a_long_header_is_read_in_no_time() -> None:
    with pytest.raises(MalformedPrecondition):
        parse_tags(" " * 100_000 + "," + '"a",' * 10_000 + " " * 100_000 + "x")


def test_if_match_compares_strongly_and_if_none_match_weakly() -> None:
    assert not same_strong('"a"', ('W/"a"',))
    assert same_weak('"a"', ('W/"a"',))
    assert same_strong('"a"', ANY)
    assert same_weak('"a"', ANY)


def test_a_version_read_later_makes_no_tag(db: None) -> None:
    seat: models.Model = Seat.objects.defer("version").get(pk=Seat.objects.create().pk)
    with pytest.raises(ValueError, match="without its 'version'"):
        etag(seat)
