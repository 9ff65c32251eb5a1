"""Brokers to be killed: processes of their own, each started again when it dies.

As a program it runs one: `python -m tests.spark.kill.brokers <root> <broker id>`, on a store that
passes the points of the plan as `broker <id>: before put …`. It ends in good order at SIGTERM.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

from sparklog.broker.main import run
from sparklog.store.open import open_store
from tests.spark.kill.points import PLAN_VARIABLE, PointsStore

REPOSITORY = Path(__file__).parents[3]
LOOK_EVERY_S = 0.1
ENDS_WITHIN_S = 60.0
FEW = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


class KilledBrokers:
    """Brokers 1 to `count`, kept running; a context manager that drains them at its end."""

    def __init__(self, folder: Path, root: str, plan: Path, count: int = 2) -> None:
        """Prepare them; what they print goes to `folder`."""
        self.folder = folder
        self.root = root
        self.plan = plan
        self.count = count
        self.restarts = 0
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="brokers' keeper")

    def __enter__(self) -> KilledBrokers:
        """Start all."""
        for number in range(1, self.count + 1):
            self._start(number)
        self._keeper.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let all hand over and end."""
        self._ended.set()
        self._keeper.join()
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                code = process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            if kind is None:
                assert code == 0, self.said()

    def kill(self, number: int) -> None:
        """Kill a broker with SIGKILL; it starts again."""
        self._running[number].kill()

    def said(self) -> str:
        """Return the end of what the brokers have printed."""
        return (self.folder / "brokers").read_text(errors="replace")[-6000:]

    def _keep(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            for number, process in list(self._running.items()):
                if process.poll() is not None:
                    self.restarts += 1
                    self._start(number)

    def _start(self, number: int) -> None:
        environment = {
            **os.environ,
            PLAN_VARIABLE: str(self.plan),
            "PYTHONPATH": str(REPOSITORY),
        }
        with (self.folder / "brokers").open("ab") as output:
            self._running[number] = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.kill.brokers", self.root, str(number)],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )


def main() -> None:
    """Run one broker."""
    root, number = sys.argv[1:]
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    run(
        root,
        {"node.id": number, "listeners": "PLAINTEXT://127.0.0.1:0", **FEW},
        stop=asked.is_set,
        ready=lambda ready: print(f"broker {number} at port {ready.port}", flush=True),
        open_store=lambda root: PointsStore(open_store(root), f"broker {number}: "),
    )


if __name__ == "__main__":
    main()
