"""A run as an SVG drawing without scripts or external resources."""

from django_lockstep.lab.explorer.drawing.svg import svg

__all__ = ["svg"]
