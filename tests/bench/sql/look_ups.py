"""Look-ups of a key on an S3 server of this machine: the first of a process, and the next one.

The key is in the ninth newest of twelve segments. The process has loaded its modules before, and
has opened no client of S3. The server is also measured through a port that adds a latency to each
request (`distant_server`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.bench.common.command import Run
from tests.bench.common.results import Measure
from tests.bench.common.targets import OURS, CostAtMost
from tests.bench.sql.distant_server import distant
from tests.bench.sql.look_up_process import FILL, SECONDS
from tests.bench.sql.plan import SqlPlan
from tests.harness.store_servers import s3_server

DISTANT_S: Final = 0.02

FIRST = Measure("first look-up of a key on S3", "s", (CostAtMost(0.15, "s"),), "look-ups")
NEXT = Measure("next look-up on S3", "s", (), "look-ups")
FIRST_FAR = Measure(
    "first look-up, 20 ms for each request", "s", (CostAtMost(0.15, "s"),), "look-ups"
)
NEXT_FAR = Measure("next look-up, 20 ms for each request", "s", (), "look-ups")


def measure_look_ups(run: Run[SqlPlan], folder: Path) -> None:
    """Time look-ups by new processes, after one that is not counted."""
    served = s3_server(folder / "s3", "bench", "--keep-alive")
    with served as server, distant(server.port, DISTANT_S) as port:
        near, far = server.environment(), server.environment(f"http://127.0.0.1:{port}")
        _call(near, FILL)
        for server_side, first, following in ((near, FIRST, NEXT), (far, FIRST_FAR, NEXT_FAR)):
            for number in range(run.plan.rounds + 1):
                seconds = json.loads(_call(server_side, SECONDS))
                if number:
                    run.results.add(first, OURS, seconds[0], number)
                    run.results.add(following, OURS, seconds[1], number)


def _call(server_side: dict[str, str], word: str) -> str:
    command = [sys.executable, "-m", "tests.bench.sql.look_up_process", word]
    environment = {**os.environ, **server_side}
    done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    return done.stdout
