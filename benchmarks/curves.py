"""Curves of growth as SVG, without a library: both axes are logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM, _LINE_HEIGHT = 64, 20, 44, 48, 16
_COLOURS = ("#3572c6", "#d1632a", "#2f9e60", "#9b4fb5", "#b08a00")
"""Readable on white and on black."""
_GREY = "#808080"


@dataclass(frozen=True, slots=True)
class Curve:
    """What grows (`along`), what is measured (`unit`), and the points of each line, by its name."""

    name: str
    title: str
    along: str
    unit: str
    lines: Mapping[str, Points]

    def svg(self) -> str:
        return "\n".join(_drawn(self)) + "\n"


def steepness(points: Points) -> float:
    """Return how a line grows where it is steepest: 1 is as much as what grows, 2 is its square.

    Counted is what comes on top of the first value, and only if it is more than a fifth of that: less is
    noise. Points are compared that are five times apart or more.
    """
    first = points[0][1]
    added = [(x, max(y - first, first / 5)) for x, y in points[1:]]
    slopes = [
        math.log(later / earlier) / math.log(x / before)
        for number, (before, earlier) in enumerate(added)
        for x, later in next(([one] for one in added[number:] if one[0] >= 5 * before), [])
    ]
    return max(slopes, default=0.0)


class _Axis:
    """Decades around the values, and where a value is between two ends."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        positive = [value for value in values if value > 0] or [1.0]
        self._low = math.floor(math.log10(min(positive)))
        self._high = max(self._low + 1, math.ceil(math.log10(max(positive))))
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        share = (math.log10(max(value, 10.0**self._low)) - self._low) / (self._high - self._low)
        return round(self._start + share * (self._end - self._start), 1)

    def decades(self) -> Iterator[float]:
        for power in range(self._low, self._high + 1):
            yield 10.0**power


def _drawn(curve: Curve) -> Iterator[str]:
    points = [point for line in curve.lines.values() for point in line]
    # The names of the lines stand above the lines.
    top = _TOP + _LINE_HEIGHT * len(curve.lines)
    height = _HEIGHT + _LINE_HEIGHT * len(curve.lines)
    across = _Axis([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    up = _Axis([y for _, y in points], height - _BOTTOM, top)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12" fill="{_GREY}" role="img">'
    )
    yield f"<title>{escape(curve.title)}</title>"
    yield f'<text x="{_LEFT}" y="18" font-size="14">{escape(curve.title)}</text>'
    for value in across.decades():
        yield f'<path d="M{across(value)} {top}V{height - _BOTTOM}" stroke="{_GREY}" stroke-opacity=".25"/>'
        yield _text(across(value), height - _BOTTOM + 16, _number(value), "middle")
    for value in up.decades():
        yield f'<path d="M{_LEFT} {up(value)}H{_WIDTH - _RIGHT}" stroke="{_GREY}" stroke-opacity=".25"/>'
        yield _text(_LEFT - 6, up(value) + 4, _number(value), "end")
    yield _text((_LEFT + _WIDTH - _RIGHT) / 2, height - 12, curve.along, "middle")
    yield _text(8, 36, curve.unit, "start")
    for number, (name, line) in enumerate(curve.lines.items()):
        yield from _line(
            name, [(across(x), up(y)) for x, y in line], _COLOURS[number % len(_COLOURS)], number
        )
    yield "</svg>"


def _line(name: str, places: Sequence[tuple[float, float]], colour: str, number: int) -> Iterator[str]:
    path = " ".join(f"{x},{y}" for x, y in places)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in places:
        yield f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'
    yield _text(_LEFT + 10, _TOP + _LINE_HEIGHT * number, name, "start", colour)


def _text(x: float, y: float, text: str, anchor: str, colour: str = _GREY) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
