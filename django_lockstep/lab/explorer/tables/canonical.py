"""One text for all ends that differ only in the keys that sequences gave to new rows.

Whichever actor inserts first gets the lower key, so keys tell ends apart that are the same; but which row refers to
which is part of an end. Two ends are the same if one becomes the other when keys of new rows are exchanged: an
isomorphism of graphs, whose vertices are these keys. It is decided as programs for graphs do: vertices get colors by
the texts that mention them, until these tell no more of them apart; where some are still alike, each in turn gets a
color of its own, and the one with the smallest text keeps it (McKay and Piperno, "Practical graph isomorphism, II",
2014). What no key connects is decided apart. Of graphs so regular that this tells nothing apart, the same end may have
two texts, never two ends one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

Text = tuple[str, ...]
"""A text split at the keys in it: each second part is a key."""
_MOST_ALIKE = 40
"""Keys that are told apart one by one; among more than these, the same end may have two texts."""
_MOST_TRIED = 12
"""As many of those that are alike get a color of their own, in turn."""


def canonical_text(texts: Iterable[Text], labels: Mapping[str, str]) -> str:
    """Return a text that is the same for texts that become each other when keys are exchanged.

    ``labels`` has what a key is called that no row has any more, and that is not exchanged.
    """
    return repr(sorted(_canonical(connected, labels) for connected in _connected(texts)))


def _connected(texts: Iterable[Text]) -> Iterable[list[Text]]:
    """Return the texts in groups that no key connects."""
    groups: dict[str, list[Text]] = {}
    alone = []
    for text in texts:
        keys = text[1::2]
        joined = [text]
        for group in {id(groups[key]): groups[key] for key in keys if key in groups}.values():
            joined += group
        groups |= {key: joined for part in joined for key in part[1::2]}
        alone += [] if keys else [joined]
    return [*alone, *{id(group): group for group in groups.values()}.values()]


def _canonical(texts: list[Text], labels: Mapping[str, str]) -> list[Text]:
    mentions: dict[str, list[tuple[Text, int]]] = defaultdict(list)
    for text in texts:
        for place in range(1, len(text), 2):
            mentions[text[place]].append((text, place))
    # Most rows are mentioned by none, and nothing depends on what stands for their keys.
    shared = {key: places for key, places in mentions.items() if len(places) > 1}
    colors = _refined({key: labels.get(key, "") for key in mentions}, shared)
    for _ in range(_MOST_ALIKE):
        sizes = Counter(colors[key] for key in shared)
        color = min((color for color, size in sizes.items() if size > 1), default=None)
        if color is None:
            break
        alike = sorted((key for key in shared if colors[key] == color), key=int)
        choices = (_refined({**colors, key: f"{color} first"}, shared) for key in alike[:_MOST_TRIED])
        colors = min(choices, key=lambda chosen: _written(texts, chosen))
    else:
        colors = {**colors, **{key: f"{colors[key]} {rank}" for rank, key in enumerate(sorted(shared, key=int))}}
    return _written(texts, colors)


def _written(texts: Iterable[Text], colors: Mapping[str, str]) -> list[Text]:
    return sorted(_colored(text, colors) for text in texts)


def _refined(colors: Mapping[str, str], shared: Mapping[str, list[tuple[Text, int]]]) -> Mapping[str, str]:
    """Return colors that tell these keys apart as the given ones do, and by the texts that mention them."""
    count = 0
    while count < (count := len({colors[key] for key in shared})):
        seen = {
            key: repr((colors[key], sorted((_colored(text, colors), place) for text, place in places)))
            for key, places in shared.items()
        }
        ranks = {color: f"{rank:06}" for rank, color in enumerate(sorted(set(seen.values())))}
        colors = {**colors, **{key: ranks[seen[key]] for key in shared}}
    return colors


def _colored(text: Text, colors: Mapping[str, str]) -> Text:
    return tuple(colors[part] if place % 2 else part for place, part in enumerate(text))
