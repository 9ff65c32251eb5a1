"""Targets of figures. Pure: medians by system in, a verdict out.

Figures are rates (more is better) or costs (less is better); a target knows which it is about. A
system that was not measured gives no verdict, which is not the same as a missed target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

OURS = "sparklog"
Medians = Mapping[str, float]


@dataclass(frozen=True)
class Verdict:
    """One target, judged."""

    target: str
    figure: str
    """The measured value in the target's own terms, or a dash."""
    reached: bool | None
    """None: not judged, because a system was not measured."""

    @property
    def word(self) -> str:
        """Return yes, no or a dash."""
        return {True: "yes", False: "NO", None: "-"}[self.reached]


class Target(Protocol):
    """Something to reach."""

    def judge(self, medians: Medians) -> Verdict:
        """Return whether it is reached."""
        ...


@dataclass(frozen=True)
class _BesidePeer(ABC):
    """Our figure, compared with that of a peer."""

    peer: str
    factor: float

    def judge(self, medians: Medians) -> Verdict:
        """Return whether our figure is good enough beside the peer's."""
        times = self._times(medians.get(OURS), medians.get(self.peer))
        return _verdict(self._target(), times, "x", self._reached)

    @abstractmethod
    def _target(self) -> str:
        """Return what is to be reached, in words."""

    def _times(self, ours: float | None, theirs: float | None) -> float | None:
        return _ratio(ours, theirs)

    def _reached(self, found: float) -> bool:
        return found <= self.factor


class RateTimesPeer(_BesidePeer):
    """Our rate is at least `factor` times the peer's."""

    def _target(self) -> str:
        return f">= {self.factor:g}x {self.peer}"

    def _reached(self, found: float) -> bool:
        return found >= self.factor


class TimeWithinPeer(_BesidePeer):
    """Our time for the same rows is at most `factor` times the peer's; figures are rates."""

    def _target(self) -> str:
        return f"time <= {self.factor:g}x {self.peer}"

    def _times(self, ours: float | None, theirs: float | None) -> float | None:
        return _ratio(theirs, ours)


@dataclass(frozen=True)
class CostAtMostPeer(_BesidePeer):
    """Our cost is at most `factor` times the peer's."""

    factor: float = 1.0

    def _target(self) -> str:
        return f"<= {self.peer}" if self.factor == 1 else f"<= {self.factor:g}x {self.peer}"


@dataclass(frozen=True)
class CostAtMost:
    """Our cost is no more than a limit."""

    limit: float
    unit: str
    why: str = ""

    def judge(self, medians: Medians) -> Verdict:
        """Return whether our cost is low enough."""
        target = f"<= {self.limit:g} {self.unit}{self.why and f' ({self.why})'}"
        return _verdict(
            target, medians.get(OURS), f" {self.unit}", lambda found: found <= self.limit
        )


@dataclass(frozen=True)
class RateAtLeast:
    """Our rate is at least a limit."""

    limit: float
    unit: str

    def judge(self, medians: Medians) -> Verdict:
        """Return whether our rate is high enough."""
        target = f">= {self.limit:g} {self.unit}"
        return _verdict(
            target, medians.get(OURS), f" {self.unit}", lambda found: found >= self.limit
        )


def _ratio(above: float | None, below: float | None) -> float | None:
    if above is None or below is None or below == 0:
        return None
    return above / below


def _verdict(
    target: str, found: float | None, unit: str, reached: Callable[[float], bool]
) -> Verdict:
    if found is None:
        return Verdict(target, "-", None)
    figure = f"{found:.2f}" if unit == "x" else f"{found:.4g}"
    return Verdict(target, figure + unit, reached(found))
