"""What does not hold on older versions of Claude Code, and why. docs/reference/versions.md shows it."""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    versions: tuple[str, ...]
    test: str
    """Part of its id."""
    why: str
    always: bool = True
    """Whether it never holds; otherwise, it may."""

    def applies(self, version: str, test_id: str) -> bool:
        return version in self.versions and self.test in test_id


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        ("2.1.197",),
        "test_pool_answers_again_and_again_with_usage_and_forgets[stream]",
        "its stream does not report a cleared conversation, so the stream backend refuses to start: "
        "use the terminal backend",
    ),
)
