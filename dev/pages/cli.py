"""Writes the pages of the commands, cli.md of splitops and of splitops-compare, from their help."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import Final

import click

from dev.pages import COMPARE_DOCS, DOCS
from splitops.cli import cli
from splitops_compare.cli import command as compare

PAGE: Final = DOCS / "cli.md"
MADE: Final = "<!-- Made by dev/pages/cli.py. -->\n\n"
HEADER: Final = f"# Use the command line\n\n{MADE}"
COMPARE: Final = "compare"
"""The command that runs splitops-compare, which has a page of its own."""


def page() -> str:
    """Return the page: the command itself, then each of its commands."""
    context = click.Context(cli, info_name="splitops", **cli.context_settings)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    rows = [
        f"| [`{name}`]({link(name)}) | {command.get_short_help_str(limit=200)} |"
        for name, command in commands.items()
        if command is not None
    ]
    text = HEADER + prose(cli) + "\n| command | what it does |\n|---|---|\n" + "\n".join(rows) + "\n"
    text += "\n" + options(cli, context)
    for name, command in commands.items():
        assert command is not None
        if name != COMPARE:
            text += "\n" + section(name, command, context)
    return text


def compare_page() -> str:
    """Return the page of splitops-compare."""
    context = click.Context(compare, info_name="splitops-compare", **compare.context_settings)
    usage = " ".join([context.command_path, *compare.collect_usage_pieces(context)])
    head = f"# Use splitops-compare\n\n{MADE}```sh\n{usage}\n```\n\n"
    return head + prose(compare) + "\n" + options(compare, context)


def link(name: str) -> str:
    """Return the link to the section or page of a command."""
    return "../compare/docs/cli.md" if name == COMPARE else f"#{name}"


def section(name: str, command: click.Command, parent: click.Context) -> str:
    """Write one command: how it is called, what it does, its options."""
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    return f"## {name}\n\n```sh\n{usage}\n```\n\n{prose(command)}\n{options(command, context)}"


def prose(command: click.Command) -> str:
    """Write the help of a command as Markdown: what click leaves as it is becomes code."""
    written = []
    for paragraph in re.split(r"\n\s*\n", cleandoc(command.help or "")):
        if paragraph.startswith("\b\n"):
            heading, *lines = paragraph.splitlines()[1:]
            written.append(f"{heading}\n\n```sh\n{cleandoc(chr(10).join(lines))}\n```\n")
        else:
            written.append(f"{marked(' '.join(paragraph.split()))}\n")
    return "\n".join(written)


def options(command: click.Command, context: click.Context) -> str:
    """Write the options of a command as a table."""
    records = [
        parameter.get_help_record(context)
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and (command is cli or parameter.name != "help")
    ]
    rows = [f"| {spelled(record[0])} | {marked(record[1])} |" for record in records if record is not None]
    return "| option | what it does |\n|---|---|\n" + "\n".join(rows) + "\n"


def spelled(option: str) -> str:
    """Write how an option is spelled as code that fits into a table."""
    return f"<code>{escaped(option)}</code>" if "|" in option else f"`{option}`"


def marked(text: str) -> str:
    """Write plain text as Markdown: options and what is between backquotes are code, the rest is text."""
    pieces = re.split(r"(`[^`]+`|(?<![\w-])--[a-z][\w-]*)", text.replace("\N{NO-BREAK SPACE}", " "))
    code = [f"`{piece.strip('`')}`" if index % 2 else escaped(piece) for index, piece in enumerate(pieces)]
    return "".join(code)


def escaped(text: str) -> str:
    """Take the meaning from what HTML, Markdown and its tables would read as markup."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return re.sub(r"([*_\[\]])", r"\\\1", text)


def write() -> None:
    """Write the pages and pictures of this module."""
    PAGE.write_text(page())
    (COMPARE_DOCS / "cli.md").write_text(compare_page())
