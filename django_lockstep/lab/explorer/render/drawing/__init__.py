"""Drawings of runs in SVG, without scripts or external resources."""
