"""Drivers to be killed: processes that run one after the other, or beside each other, on a plan."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from tests.harness.waiting import eventually
from tests.spark.kill.points import PLAN_VARIABLE, reached, write_plan

REPOSITORY = Path(__file__).parents[3]
RUN_SECONDS_MAX = 600
"""Long enough for a busy machine: only a driver that hangs takes so long."""
KILLED_WITHIN_S = 120


class Drivers(ABC):
    """The drivers of one test, their plan, and what they print."""

    program: str
    """The module that a driver runs."""

    def __init__(self, folder: Path) -> None:
        """Prepare a plan without points; everything is kept in `folder`."""
        self.folder = folder
        self.plan = folder / "plan"
        self.output = folder / "output"
        self._started: list[subprocess.Popen[bytes]] = []
        write_plan(self.plan, [])

    @abstractmethod
    def argument(self) -> object:
        """Return what a driver is to do, for its command line."""

    def start(self, plan: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a driver in a process group of its own."""
        environment = {
            **os.environ,
            PLAN_VARIABLE: str(plan or self.plan),
            "PYTHONPATH": str(REPOSITORY),
        }
        with self.output.open("ab") as output:
            driver = subprocess.Popen(
                [sys.executable, "-m", self.program, json.dumps(self.argument())],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._started.append(driver)
        return driver

    def said(self) -> str:
        """Return the end of what the drivers have printed."""
        return self.output.read_text(errors="replace")[-6000:]

    def end_of(self, driver: subprocess.Popen[bytes], within_s: float = RUN_SECONDS_MAX) -> int:
        """Wait for a driver's end, and return its exit code."""
        try:
            return driver.wait(within_s)
        except subprocess.TimeoutExpired:
            text = f"a driver did not end within_s={within_s:g} reached={reached(self.plan)}"
            raise AssertionError(f"{text} said:\n{self.said()}") from None

    def run(self, within_s: float = RUN_SECONDS_MAX) -> int:
        """Run a driver until it is done or killed."""
        ended = self.end_of(self.start(), within_s)
        assert ended in (0, -signal.SIGKILL), self.said()
        return ended

    def run_until_done(self, starts_max: int, within_s: float = RUN_SECONDS_MAX) -> int:
        """Start a driver again and again; returns how many it took."""
        for started in range(1, starts_max + 1):
            if self.run(within_s) == 0:
                return started
        raise AssertionError(f"not done after {starts_max} starts; reached {reached(self.plan)}")

    def overtake_one_that_sleeps(self, check: Callable[[], None]) -> None:
        """Run a driver that pauses at the plan's point, one that does all, and wake the first.

        `check` looks at what there is before the sleeper wakes, and when it has ended.
        """
        sleeper = self.start()
        pid = self.paused(sleeper)
        awake = self.folder / "no-plan"
        write_plan(awake, [])
        successor = self.start(awake)
        assert self.end_of(successor) == 0, self.said()
        check()
        os.kill(pid, signal.SIGCONT)
        self.end_of(sleeper)
        check()

    def paused(self, driver: subprocess.Popen[bytes]) -> int:
        """Wait until a process sleeps at the first point, and return its id."""
        marker = self.plan / "0.reached"

        def told() -> str:
            assert driver.poll() is None, self.said()
            return marker.read_text() if marker.exists() else ""

        try:
            return int(eventually(told, "a driver at the point", RUN_SECONDS_MAX).split()[0])
        except TimeoutError as error:
            raise AssertionError(self.said()) from error

    def kill_all(self) -> None:
        """Kill the drivers that still run, with all their processes."""
        for driver in self._started:
            try:
                os.killpg(driver.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            driver.wait(KILLED_WITHIN_S)
