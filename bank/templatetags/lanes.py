"""Draws the operations a second of a lane."""

from __future__ import annotations

from django import template

from django_lockstep.lab.simulator.progress import Lane

register = template.Library()


@register.filter
def points(lane: Lane, lanes: tuple[Lane, ...]) -> str:
    """Return the points of a line through the lane's rates, 160 wide and 30 high, on the scale of all lanes."""
    highest = max((rate for member in lanes for rate in member.rates), default=0.0) or 1.0
    longest = max((time for member in lanes for time in member.times), default=0.0) or 1.0
    return " ".join(
        f"{160 * time / longest:.1f},{31 - rate / highest * 30:.1f}"
        for time, rate in zip(lane.times, lane.rates, strict=True)
    )
