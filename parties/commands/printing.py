"""How commands print: results on standard output, as lines or as JSON, and what they say of it on standard error."""

import json
import sys
from collections.abc import Mapping, Sequence

import click


def print_json(document: Mapping[str, object]) -> None:
    """One document, for programs."""
    click.echo(json.dumps(document, indent=2))


def print_lines(lines: Sequence[str]) -> None:
    """A result, for people."""
    click.echo("\n".join(lines))


def say(text: str) -> None:
    """What is no result: where it is, what to do next."""
    click.echo(text, file=sys.stderr)
