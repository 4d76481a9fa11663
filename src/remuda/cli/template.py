"""`--format TEMPLATE`: one line for each thing that is listed, with fields of its JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from remuda.errors import InvalidOptions
from remuda.names import did_you_mean

from .output import echo, flat, json_line

_FIELD = re.compile(r"\{([^{}]*)\}")
_ESCAPES = {r"\t": "\t", r"\n": "\n"}


def check_alone(template: str | None, **others: bool) -> None:
    """Raise `InvalidOptions` when `--format` was given together with one of the others."""
    if template is not None and (also := [name for name, given in others.items() if given]):
        raise InvalidOptions(f"--format does not go with --{also[0]}", hint="use one of them")


def print_formatted(template: str, documents: Sequence[Mapping[str, Any]]) -> None:
    """Print each document by the template. `{delivery.held}` is a field in a field; `\\t` is a tab.

    What a document does not have is empty. Raises `InvalidOptions` for a field that none of them has.
    """
    if template == "json":
        raise InvalidOptions("--format has no field", hint="use --json, or name fields: --format '{name}'")
    for field in _FIELD.findall(template):
        if documents and not any(_has(one, field) for one in documents):
            known = sorted({key for one in documents for key in one})
            near = did_you_mean(field, known) or f"the fields are: {', '.join(known)}"
            raise InvalidOptions(f"unknown field '{field}' in --format", hint=near)
    for written, meant in _ESCAPES.items():
        template = template.replace(written, meant)
    for one in documents:
        parts = _FIELD.split(template)
        parts[1::2] = [flat(_text(_value(one, field))) for field in parts[1::2]]
        echo("".join(parts))


def _has(document: Mapping[str, Any], field: str) -> bool:
    first, _, rest = field.partition(".")
    inner = document.get(first)
    return first in document and (
        not rest or inner is None or (isinstance(inner, Mapping) and _has(inner, rest))
    )


def _value(document: object, field: str) -> object:
    for part in field.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_line(value)
