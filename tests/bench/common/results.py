"""Results of a run: raw figures, their medians, and the checks. Pure but for progress.

A figure is kept as measured, with its round. Medians are computed from them at the end, so the
written results always show the figures of a median.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from tests.bench.common.targets import Target, Verdict


@dataclass(frozen=True)
class Measure:
    """One line of the result: what is measured, and what it must reach."""

    name: str
    unit: str
    targets: tuple[Target, ...] = ()
    group: str = ""
    """Measures of one group share a plot."""


@dataclass(frozen=True)
class Sample:
    """One figure of one system."""

    measure: str
    system: str
    value: float
    round: int


@dataclass(frozen=True)
class Check:
    """Something that must hold for the figures to mean anything."""

    name: str
    passed: bool
    detail: str


@dataclass
class Results:
    """Everything one run has found."""

    measures: list[Measure] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def add(self, measure: Measure, system: str, value: float, round_number: int = 1) -> None:
        """Keep one figure."""
        if measure.name not in {known.name for known in self.measures}:
            self.measures.append(measure)
        self.samples.append(Sample(measure.name, system, value, round_number))
        progress(f"{measure.name}: {system} {value:,.4g} {measure.unit} (round {round_number})")

    def check(self, name: str, passed: bool, detail: str = "") -> None:
        """Keep the outcome of a check."""
        self.checks.append(Check(name, passed, detail))
        if not passed:
            progress(f"CHECK FAILED: {name} {detail}")

    def check_equal(self, name: str, found: object, expected: object) -> None:
        """Keep whether two values are the same."""
        self.check(name, found == expected, f"found={found} expected={expected}")

    def values(self, measure: str, system: str) -> list[float]:
        """Return the figures of one system, in the order measured."""
        return [s.value for s in self.samples if (s.measure, s.system) == (measure, system)]

    def medians(self, measure: str) -> dict[str, float]:
        """Return the median figure of every system that was measured."""
        systems = dict.fromkeys(s.system for s in self.samples if s.measure == measure)
        return {system: median(self.values(measure, system)) for system in systems}

    def verdicts(self, measure: Measure) -> list[Verdict]:
        """Return what became of each target of a measure."""
        medians = self.medians(measure.name)
        return [target.judge(medians) for target in measure.targets]

    @property
    def failed_checks(self) -> list[Check]:
        """Return the checks that did not pass."""
        return [check for check in self.checks if not check.passed]


def spread(values: Sequence[float]) -> float:
    """Return how far apart figures are: (highest - lowest) / median, 0 for a single one."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def progress(text: str) -> None:
    """Print progress for the user."""
    sys.stderr.write(f"bench: {text}\n")
    sys.stderr.flush()
