"""Sphinx configuration."""

import os
import sys
from pathlib import Path

import django
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

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
html_show_copyright = False


def _keep_builtins(app: Sphinx, doctree: nodes.document) -> None:
    """Keep ``type`` in a signature from linking to an attribute of that name."""
    for reference in doctree.findall(pending_xref):
        if reference.get("reftarget") == "type":
            del reference["refspecific"]  # Sphinx asks whether it is there


def setup(app: Sphinx) -> None:
    """Connect what is not configuration."""
    app.connect("doctree-read", _keep_builtins)
