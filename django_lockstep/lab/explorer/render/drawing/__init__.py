"""Drawings in SVG, without scripts or external resources: of a run, and of the tree of a search's schedules."""

from django_lockstep.lab.explorer.render.drawing.svg import svg, tree_svg

__all__ = ["svg", "tree_svg"]
