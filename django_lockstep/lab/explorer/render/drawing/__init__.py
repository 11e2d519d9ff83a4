"""Drawings of runs in SVG, without scripts or external resources."""

from django_lockstep.lab.explorer.render.drawing.svg import svg

__all__ = ["svg"]
