"""What an agent does with its tools, as it happens. Pure: data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolBegan:
    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """`content` is what the model was told."""

    id: str
    name: str
    content: Any
    is_error: bool = False
