"""Figures with their targets: printed as a table, kept as JSON with one part for each benchmark."""

from __future__ import annotations

import json
import math
import operator
import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.curves import Curve

_COMPARE = {">=": operator.ge, "<=": operator.le, "<": operator.lt}
_DIGITS = 4
_LONGEST_REASON = 300
NOT_REACHED = "the run ended before it"


@dataclass(frozen=True, slots=True)
class Target:
    """What the issue asks for."""

    relation: str
    limit: float

    def met_by(self, value: float) -> bool:
        return bool(_COMPARE[self.relation](value, self.limit))

    def __str__(self) -> str:
        return f"{self.relation} {readable(self.limit)}"


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
class Benchmark:
    """What one benchmark found, and when. `missing`: each thing that was not measured, with the reason."""

    instead: str
    rounds: int = 0
    run: str = ""
    """When the run began that it is a part of."""
    at: str = ""
    load: float = 0.0
    """The load average when it began."""
    seconds: float = 0.0
    sections: dict[str, float] = field(default_factory=dict)
    """Seconds of each part with a title."""
    figures: list[Figure] = field(default_factory=list)
    measurements: dict[str, list[float]] = field(default_factory=dict)
    """Every single measurement behind the medians."""
    curves: list[Curve] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)
    noise: list[str] = field(default_factory=list)
    """Other work that ran meanwhile."""

    def document(self) -> dict[str, Any]:
        figures = [{**asdict(one), "verdict": one.verdict} for one in self.figures]
        return {**asdict(self), "figures": figures}


class Report:
    """Collects the figures of each benchmark in the order they were taken, and prints each when it is known.

    With a `path`, all is written there after each benchmark. `names` are the benchmarks that are to be
    measured; a file that is there already keeps its others if `merge`.
    """

    def __init__(self, names: Iterable[str] = (), path: Path | None = None, *, merge: bool = False) -> None:
        self.path = path
        self.machine = machine()
        self._run = _now()
        self.benchmarks: dict[str, Benchmark] = {}
        self._kept = _earlier(path, self.machine) if path is not None and merge else {}
        self._planned = tuple(names)
        self._current = Benchmark("")
        self._began = self._section_began = 0.0
        self._section = self._instead = ""

    def begin(self, name: str, instead: str, rounds: int) -> None:
        """Begin a benchmark. `instead`: what a user would use instead of what it measures."""
        self._began = time.monotonic()
        self._current = Benchmark(instead, rounds, self._run, _now(), round(os.getloadavg()[0], 2))
        self.benchmarks[name] = self._current
        self._section, self._instead = name, instead
        self._section_began = 0.0

    def end(self, failure: str = "") -> None:
        """End a benchmark. `failure`: why the rest of it was not measured."""
        self._end_section()
        self._current.seconds = round(time.monotonic() - self._began, 1)
        if failure:
            self.not_measured(f"the rest of {self._section}" if self._current.figures else "", failure)
        self.save()

    def title(self, text: str, instead: str = "") -> None:
        """Begin a section of figures. `instead`: where it is not that of the whole benchmark."""
        self._end_section()
        self._section_began = time.monotonic()
        self._section, self._instead = text, instead or self._current.instead
        print(f"\n{text}  [load {os.getloadavg()[0]:.2f}]", flush=True)

    def _end_section(self) -> None:
        if self._section_began:
            seconds = round(time.monotonic() - self._section_began, 1)
            self._current.sections[self._section] = seconds
            print(f"  in {readable(seconds)} s", flush=True)

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        target: Target | None = None,
        note: str = "",
        instead: str = "",
    ) -> None:
        """Add a figure. `instead`: where it is not that of its section."""
        figure = Figure(name, value, unit, target, note, self._section, instead or self._instead)
        self._current.figures.append(figure)
        print(_line(figure), flush=True)

    def median(
        self, name: str, values: Sequence[float], unit: str, note: str = "", instead: str = ""
    ) -> float:
        """Adds and gives the median of single measurements, with the spread as its note."""
        self.measurements[name] = [round(value, 6) for value in values]
        middle = statistics.median(values)
        spread = f"{readable(min(values))} to {readable(max(values))}" if len(values) > 1 else ""
        self.add(name, middle, unit, note=", ".join(part for part in (spread, note) if part), instead=instead)
        return middle

    def curve(self, curve: Curve) -> None:
        self._current.curves.append(curve)

    def not_measured(self, what: str, why: str) -> None:
        """Name what has no figures, and the reason. `what` is empty for all of the benchmark."""
        why = " ".join(why.split())[:_LONGEST_REASON]
        self._current.missing.append((what, why))
        print(f"  {what or 'it'} was not measured: {why}", flush=True)

    def noise(self, what: str) -> None:
        """Note other work that ran meanwhile; nothing if `what` is empty."""
        if what:
            self._current.noise.append(what)
            print(f"  {what}", flush=True)

    @property
    def measurements(self) -> dict[str, list[float]]:
        return self._current.measurements

    @property
    def figures(self) -> list[Figure]:
        return [figure for one in self.benchmarks.values() for figure in one.figures]

    @property
    def missed(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.verdict == "MISS"]

    def save(self) -> None:
        """Write all so far, what is kept of an earlier run, and what is to come; at once or not at all."""
        if self.path is not None:
            made = self.path.with_name(f"{self.path.name}.new")
            made.write_text(json.dumps(self.document(), indent=1) + "\n")
            os.replace(made, self.path)

    def document(self) -> dict[str, Any]:
        to_come = Benchmark("", missing=[("", NOT_REACHED)]).document()
        planned = {name: to_come for name in self._planned if name not in self._kept}
        done = {name: one.document() for name, one in self.benchmarks.items()}
        return {"machine": self.machine, "benchmarks": {**self._kept, **planned, **done}}


def _earlier(path: Path, here: dict[str, Any]) -> dict[str, Any]:
    """Return what the file has. Exits if it is of another machine: its figures do not belong beside ours."""
    try:
        known = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    if known.get("machine") != here or "benchmarks" not in known:
        raise SystemExit(f"{path} was measured on another machine or by another version; give another file")
    found: dict[str, Any] = known["benchmarks"]
    return found


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def readable(value: float) -> str:
    """Return a number as people write it: four digits that count, no exponent, and 30,020 with its comma."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def _line(figure: Figure) -> str:
    target = f"target {figure.target}" if figure.target else ""
    value = f"{readable(figure.value):>10} {figure.unit}"
    return f"  {figure.name:<52}{value:<18}{figure.verdict:<5}{target:<15}{figure.note}".rstrip()


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def mark(values: Sequence[float], share: float) -> str:
    """Return a percentile as a note: 'p90 31.2'."""
    return f"p{share * 100:.0f} {readable(percentile(values, share))}"
