"""Sphinx configuration."""

import os
import sys
from pathlib import Path

import django

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bank.settings")
django.setup()  # the reference imports models

project = "django-lockstep"
author = "The django-lockstep developers"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
if not os.environ.get("DOCS_OFFLINE"):  # links to other projects need their inventories
    extensions.append("sphinx.ext.intersphinx")
html_theme = "furo"
html_title = "django-lockstep"
myst_heading_anchors = 3
exclude_patterns = ["_build"]
default_role = "py:obj"  # docstrings name objects in backquotes; what is not found is shown as code
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
autodoc_default_options = {"show-inheritance": True, "member-order": "bysource"}
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", None),
    "django": ("https://docs.djangoproject.com/en/stable/", "https://docs.djangoproject.com/en/stable/_objects/"),
}
# ``type`` in a signature is Python's, whatever attributes of that name there are.
suppress_warnings = ["ref.python"]
