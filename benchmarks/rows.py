"""What a suite gives: figures with their targets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure. `at_most` or `at_least` is its target."""

    what: str
    figure: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.at_most is not None:
            return self.figure <= self.at_most
        return None if self.at_least is None else self.figure >= self.at_least
