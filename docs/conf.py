"""Sphinx configuration."""

project = "django-accounts-locking"
author = "The django-accounts-locking developers"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "django-accounts-locking"
myst_heading_anchors = 3
exclude_patterns = ["_build"]
