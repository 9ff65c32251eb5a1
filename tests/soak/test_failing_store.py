"""Brokers under load on a store that fails 2 % of its requests, and is then away for a minute.

The 2 % last for five minutes by default, and for half an hour with
`SOAK_MINUTES=30 make soak ARGS="-s tests/soak/test_failing_store.py"`.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.testing.history import Send
from tests.harness.fault_proxy import fault_proxy
from tests.harness.store_servers import S3_SERVER, s3_server
from tests.soak.world import World, world_on

MINUTES = float(os.environ.get("SOAK_MINUTES", "5"))
FAILING_SHARE = 0.02
AWAY_S = 60.0
BACK_WITHIN_S = 10.0
SETTLED_S = 20.0
"""After the start."""
WINDOW_S = 20.0
"""Of a p99. Some windows have more failed puts than others, so the p99 after the outage is compared
with the highest one before it."""
BUCKET = "failing"
MEMORY_GROWTH_MAX = 256 << 20
"""Bytes of one broker beyond its size after a minute of load."""
SAMPLED_EVERY_S = 1.0


class MemoryWatch:
    """The resident bytes of each broker process, sampled in a thread."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ended = threading.Event()
        self.samples: list[int] = []
        """Of the largest broker."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(SAMPLED_EVERY_S):
            pids = [one.process.pid for one in self._world.cluster.brokers if one.process]
            self.samples.append(max(map(resident_bytes, pids)))


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def p99_ms(world: World, since_s: float) -> float:
    """Return the p99 of acknowledgements of the records that were sent in a window."""
    sends = [one for one in list(world.load.history) if isinstance(one, Send)]
    took = sorted(
        one.completed_s - one.invoked_s
        for one in sends
        if since_s <= one.invoked_s < since_s + WINDOW_S
    )
    assert took, "nothing was sent in that time"
    return took[min(len(took) - 1, len(took) * 99 // 100)] * 1000


@pytest.mark.soak
@pytest.mark.timeout(60 * MINUTES + 900)
@pytest.mark.parametrize("server", [S3_SERVER])
def test_failing_store_loses_nothing_and_p99_returns(server: str, tmp_path: Path) -> None:
    root = f"s3://{BUCKET}/log"
    with (
        s3_server(tmp_path / "s3", BUCKET) as s3,
        fault_proxy(s3.port) as proxy,
        world_on(
            root, tmp_path, {}, environment=s3.environment(proxy.endpoint_url), store=proxy
        ) as world,
    ):
        world.flows()
        proxy.fail_share(FAILING_SHARE)
        memory = MemoryWatch(world)
        world.after(SETTLED_S)
        began_s = SYSTEM_CLOCK.monotonic_s()
        world.after(60 * MINUTES)
        windows = int(60 * MINUTES // WINDOW_S)
        before_ms = [p99_ms(world, began_s + WINDOW_S * number) for number in range(windows)]
        proxy.go_away()
        world.after(AWAY_S)
        proxy.listen()
        back_s = SYSTEM_CLOCK.monotonic_s() + BACK_WITHIN_S
        world.after(BACK_WITHIN_S + WINDOW_S + 5)
        after_ms = p99_ms(world, back_s)
        proxy.fail_share(0)
        memory.stop()
        sizes = [size >> 20 for size in memory.samples]
        print(
            f"p99 of {WINDOW_S:.0f} s: {min(before_ms):.0f} to {max(before_ms):.0f} ms with 2 % of "
            f"requests failing, {after_ms:.0f} ms from {BACK_WITHIN_S:.0f} s after the outage on; "
            f"requests to the store: {len(proxy.requests):,}; largest broker: {sizes[59]} MiB "
            f"after a minute, {max(sizes)} MiB at most",
            flush=True,
        )
        world.judge()
        assert max(memory.samples) - memory.samples[59] <= MEMORY_GROWTH_MAX
        assert after_ms <= max(before_ms) + 100
