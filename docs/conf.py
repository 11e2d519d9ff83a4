"""Sphinx configuration."""

project = "django-lockstep"
author = "The django-lockstep developers"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "django-lockstep"
myst_heading_anchors = 3
exclude_patterns = ["_build"]
