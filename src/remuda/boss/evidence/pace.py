"""How late the boss may be where nobody tells it of a change."""

from __future__ import annotations

from dataclasses import dataclass

from .watches import Watches


@dataclass(frozen=True, slots=True)
class Pace:
    """`is_told` is false where the system tells of no change of a file and of no end of a process."""

    look_interval: float = 5.0
    is_told: bool = True

    def watches(self) -> Watches:
        return Watches(is_told=self.is_told)
