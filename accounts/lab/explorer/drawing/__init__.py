"""A run as a picture: SVG without scripts or outer resources."""

from accounts.lab.explorer.drawing.svg import svg

__all__ = ["svg"]
