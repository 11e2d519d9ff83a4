"""A directive for Sphinx: the options of a management command, or of the plugin for pytest, from their parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

from _pytest.config.argparsing import Parser
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from django_lockstep.lab.pytest_plugin import pytest_addoption

_CODE = re.compile(r"`([^`]+)`|(?<!\S)(--(?:[a-z][\w-]*)?)")


class CommandOptions(SphinxDirective):
    """Shows what a management command does, and its options; for ``pytest`` the options of the plugin."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a paragraph and a list of definitions."""
        (name,) = self.arguments
        if name == "pytest":
            plugin = Parser(_ispytest=True)
            pytest_addoption(plugin)
            return [_definition_list(plugin.optparser)]
        command: Any = load_command_class(get_commands()[name], name)
        options = _definition_list(command.create_parser("manage.py", name))
        return [_paragraph(command.help), options]


def _paragraph(text: str) -> nodes.paragraph:
    """Return the text, with its options and what is in backquotes as code: Sphinx would make one dash of two."""
    paragraph, end = nodes.paragraph(), 0
    for match in _CODE.finditer(text):
        paragraph += [nodes.Text(text[end : match.start()]), nodes.literal(text=match[1] or match[2])]
        end = match.end()
    paragraph += nodes.Text(text[end:])
    return paragraph


def _definition_list(parser: argparse.ArgumentParser) -> nodes.definition_list:
    items = []
    for names, text in _options(parser):
        term = nodes.term("", "", nodes.literal(text=names))
        items.append(nodes.definition_list_item("", term, nodes.definition("", _paragraph(text))))
    return nodes.definition_list("", *items)


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield the arguments that not every command has, and what is said of them."""
    of_every_command = BaseCommand().create_parser("manage.py", "any")._option_string_actions.keys()
    formatter = parser._get_formatter()
    for action in parser._actions:
        is_hidden = action.help == argparse.SUPPRESS or action.dest == "file_or_dir"
        if not is_hidden and not of_every_command & set(action.option_strings):
            value = formatter._format_args(action, action.dest.upper()) if action.nargs != 0 else ""
            text = formatter._expand_help(action) if action.help else ""
            yield f"{', '.join(action.option_strings)} {value}".strip(), text


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-options", CommandOptions)
    return {"parallel_read_safe": True}
