"""Figures with their targets: printed as a table, kept as JSON."""

from __future__ import annotations

import json
import operator
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.curves import Curve

_COMPARE = {">=": operator.ge, "<=": operator.le, "<": operator.lt}


@dataclass(frozen=True, slots=True)
class Target:
    """What the issue asks for."""

    relation: str
    limit: float

    def met_by(self, value: float) -> bool:
        return bool(_COMPARE[self.relation](value, self.limit))

    def __str__(self) -> str:
        return f"{self.relation} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    target: Target | None = None
    note: str = ""
    section: str = ""
    instead: str = ""
    """What a user would use instead."""

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "PASS" if self.target.met_by(self.value) else "MISS"


@dataclass(slots=True)
class Report:
    """Collects figures in the order they were taken and prints each when it is known."""

    figures: list[Figure] = field(default_factory=list)
    rounds: dict[str, list[float]] = field(default_factory=dict)
    """Every single measurement behind the medians."""
    curves: list[Curve] = field(default_factory=list)
    _section: str = ""
    _instead: str = ""

    def begin(self, instead: str) -> None:
        """Begin a benchmark. `instead`: what a user would use instead of what it measures."""
        self._instead = instead

    def title(self, text: str) -> None:
        self._section = text
        print(f"\n{text}  [load {os.getloadavg()[0]:.2f}]", flush=True)

    def add(self, name: str, value: float, unit: str, target: Target | None = None, note: str = "") -> None:
        figure = Figure(name, value, unit, target, note, self._section, self._instead)
        self.figures.append(figure)
        print(_line(figure), flush=True)

    def median(self, name: str, values: Sequence[float], unit: str, note: str = "") -> float:
        """Adds and gives the median of single measurements, with the spread as its note."""
        self.rounds[name] = [round(value, 6) for value in values]
        middle = statistics.median(values)
        spread = f"{min(values):.4g} to {max(values):.4g}" if len(values) > 1 else ""
        self.add(name, middle, unit, note=", ".join(part for part in (spread, note) if part))
        return middle

    def curve(self, curve: Curve) -> None:
        self.curves.append(curve)

    @property
    def missed(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.verdict == "MISS"]

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.document(), indent=1) + "\n")

    def document(self) -> dict[str, Any]:
        return {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine(),
            "figures": [{**asdict(one), "verdict": one.verdict} for one in self.figures],
            "rounds": self.rounds,
            "curves": [asdict(one) for one in self.curves],
        }


def machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _line(figure: Figure) -> str:
    target = f"target {figure.target}" if figure.target else ""
    value = f"{figure.value:10.4g} {figure.unit}"
    return f"  {figure.name:<52}{value:<18}{figure.verdict:<5}{target:<15}{figure.note}".rstrip()


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
