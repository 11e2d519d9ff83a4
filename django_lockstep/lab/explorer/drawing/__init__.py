"""A run as a picture: SVG without scripts or outer resources."""

from django_lockstep.lab.explorer.drawing.svg import svg

__all__ = ["svg"]
