"""Sphinx configuration."""

import os
import re
import sys
from importlib import import_module
from pathlib import Path

import django
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bank.settings")
django.setup()  # the reference imports models

project = "django-lockstep"
author = "The django-lockstep developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "command_options"]
if not os.environ.get("DOCS_OFFLINE"):  # links to other projects need their inventories
    extensions.append("sphinx.ext.intersphinx")
html_theme = "furo"
html_title = "django-lockstep"
myst_heading_anchors = 3
exclude_patterns = ["_build"]
default_role = "py:obj"  # docstrings name objects in backquotes; what is not found is shown as code
autodoc_typehints = "signature"
autoclass_content = "both"
autodoc_default_options = {"show-inheritance": True, "member-order": "bysource"}
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", None),
    "django": ("https://docs.djangoproject.com/en/stable/", "https://docs.djangoproject.com/en/stable/_objects/"),
}
html_show_copyright = False
linkcheck_ignore = ["https?://"]  # others' pages come and go; ours are files


def _keep_builtins(app: Sphinx, doctree: nodes.document) -> None:
    """Keep ``type`` in a signature from linking to an attribute of that name."""
    for reference in doctree.findall(pending_xref):
        if reference.get("reftarget") == "type":
            del reference["refspecific"]  # Sphinx asks whether it is there


def _require_every_name(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn, which fails the build, of each public name of a module in the reference that has no entry there."""
    entries = {name.rpartition(".")[2] for name in env.get_domain("py").data["objects"]}
    for page in Path(app.srcdir, "reference").glob("*.md"):
        for module in re.findall(r"automodule:: (\S+)", page.read_text(encoding="utf-8")):
            for name in set(getattr(import_module(module), "__all__", ())) - entries:
                logging.getLogger(__name__).warning("%s: %s has no entry for %s", page.name, module, name)


def _write_llms_txt(app: Sphinx, error: Exception | None) -> None:
    """Write the list of all pages for language models (https://llmstxt.org), beside the pages."""
    if error is None and app.builder.name == "html":
        titles = {name: app.env.titles[name].astext() for name in sorted(app.env.found_docs)}
        pages = (f"- [{title}]({name}.html)" for name, title in titles.items())
        summary = "> Pessimistic and optimistic locking for Django on PostgreSQL: used, proved and measured."
        Path(app.outdir, "llms.txt").write_text(
            "\n".join([f"# {project}", "", summary, "", *pages, ""]), encoding="utf-8"
        )


def setup(app: Sphinx) -> None:
    """Connect what is not configuration."""
    app.connect("build-finished", _write_llms_txt)
    app.connect("doctree-read", _keep_builtins)
    app.connect("env-check-consistency", _require_every_name)
