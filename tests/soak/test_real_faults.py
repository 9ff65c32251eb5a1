"""Broker processes that are killed, paused and cut off while librdkafka writes and reads.

Under all faults no acknowledged record is lost, none is there twice, and none is out of order.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog.core.clock import SYSTEM_CLOCK
from tests.harness.broker_processes import BrokerProcess, BrokerProcesses
from tests.harness.fault_proxy import Action, fault_proxy
from tests.harness.store_servers import S3_SERVER, s3_server
from tests.harness.waiting import eventually
from tests.soak.small_disk import MIB, SmallDisk, small_disk
from tests.soak.world import QUICK, World, world_on

BUCKET = "faults"
FULL = "the disk is full"
REFILLED_EVERY_S = 0.1


@contextmanager
def on_files(
    tmp_path: Path,
    settings: dict[str, str],
    configs: dict[str, str] | None = None,
    *,
    replicas: int = 3,
) -> Iterator[World]:
    root = f"file://{tmp_path}/root"
    with world_on(root, tmp_path, settings, configs, replicas=replicas) as world:
        yield world


@contextmanager
def on_s3(tmp_path: Path, settings: dict[str, str], **configs: str) -> Iterator[World]:
    with s3_server(tmp_path / "s3", BUCKET) as server, fault_proxy(server.port) as proxy:
        environment = server.environment(proxy.endpoint_url)
        root = f"s3://{BUCKET}/root"
        with world_on(
            root, tmp_path, settings, configs, environment=environment, store=proxy
        ) as world:
            yield world


def kill_one_after_the_other(world: World) -> None:
    for broker in world.cluster.brokers:
        broker.kill()
        world.flows()
        broker.start()
        world.after(3)
        world.flows()


def kill_all(world: World) -> None:
    for broker in world.cluster.brokers:
        broker.kill()
    world.after(1)
    world.cluster.heal()
    world.flows()


def pause_one_after_the_other(world: World) -> None:
    for broker in world.cluster.brokers:
        broker.signal(signal.SIGSTOP)
        world.after(8)
        world.flows()
        broker.signal(signal.SIGCONT)
        world.after(2)
        world.flows()


def cut_off_one_after_the_other(world: World) -> None:
    for broker in world.cluster.brokers:
        world.cluster.isolate(broker)
        world.after(8)
        world.flows()
        world.cluster.heal()
        world.after(2)
        world.flows()


def leave_one_after_the_other(world: World) -> None:
    for broker in world.cluster.brokers:
        broker.stop()
        world.flows()
        broker.start()
        world.after(3)


def everything_at_once(world: World) -> None:
    one, other, third = world.cluster.brokers
    for _ in range(3):
        one.signal(signal.SIGSTOP)
        other.kill()
        world.after(5)
        other.start()
        world.cluster.isolate(third)
        world.after(5)
        one.signal(signal.SIGCONT)
        world.cluster.heal()
        world.after(3)
        world.flows()
        one, other, third = other, third, one


def outage(world: World) -> None:
    assert world.store is not None
    for seconds in (2, 10):
        world.store.go_away()
        world.after(seconds)
        world.store.listen()
        world.flows()


def storms(world: World) -> None:
    assert world.store is not None
    for action in (Action.ANSWER, Action.FORWARD_THEN_ANSWER, Action.LOSE_ANSWER, Action.RESET):
        for _ in range(20):
            world.store.add(action, "PUT", times=2)
            world.store.add(action, "GET", times=1)
            world.after(0.3)
        world.flows()


def storm_and_kills(world: World) -> None:
    assert world.store is not None
    for broker in world.cluster.brokers:
        world.store.add(Action.FORWARD_THEN_ANSWER, "PUT", times=10)
        broker.kill()
        world.store.add(Action.ANSWER, "PUT", times=10)
        world.after(2)
        broker.start()
        world.after(2)
        world.flows()


def keep_full(world: World, disk: SmallDisk, seconds: float) -> None:
    """Let time pass, and refill at once the space that brokers free."""
    for _ in range(round(seconds / REFILLED_EVERY_S)):
        disk.fill()
        world.after(REFILLED_EVERY_S)
    assert any(FULL in broker.log for broker in world.cluster.brokers), "the disk was never full"


def starts_in_vain(broker: BrokerProcess, disk: SmallDisk) -> None:
    """Start a broker while there is no space: it says so, and leaves it to others to try again."""
    broker.kill()
    disk.fill()
    broker.start()

    def ended() -> bool:
        disk.fill()
        assert broker.process is not None
        return broker.process.poll() is not None

    eventually(ended, "the end of a broker that cannot register")
    assert broker.process is not None
    assert broker.process.poll() == 1, broker.log
    assert FULL in broker.log.rstrip().rpartition("\n")[2], broker.log


Faults = Callable[[World], None]
PROCESSES: list[Faults] = [
    kill_one_after_the_other,
    kill_all,
    pause_one_after_the_other,
    cut_off_one_after_the_other,
    leave_one_after_the_other,
    everything_at_once,
]
MEMORY = {"sparklog.commit": "memory", "min.insync.replicas": "2"}


def test_a_kill_and_a_pause_lose_nothing(tmp_path: Path) -> None:
    with on_files(tmp_path, QUICK) as world:
        first, second, _ = world.cluster.brokers
        world.flows()
        first.kill()
        world.flows()
        first.start()
        second.signal(signal.SIGSTOP)
        world.after(3)
        world.flows()
        world.judge()


def begun_anew(cluster: BrokerProcesses) -> list[int]:
    return [broker.log.count("broker begins anew") for broker in cluster.brokers]


def test_brokers_that_refuse_each_other_settle_and_recover(tmp_path: Path) -> None:
    """Refused connections between live brokers: an acknowledged record needs no other broker."""
    with on_files(tmp_path, QUICK) as world:
        world.flows()
        world.cluster.refuse_all_links()
        world.after(9)  # a controller without heartbeats waits for four sessions
        world.load.create_another_topic("during")
        world.flows()
        settled = begun_anew(world.cluster)
        assert max(settled) <= 1
        assert any("broken_links=[broker" in broker.log for broker in world.cluster.brokers)
        world.after(4)
        assert begun_anew(world.cluster) == settled
        world.cluster.heal()
        healed_s = SYSTEM_CLOCK.monotonic_s()
        eventually(lambda: world.load.live_brokers() == 3, "all brokers are back")
        seconds = SYSTEM_CLOCK.monotonic_s() - healed_s
        print(f"all brokers are back {seconds:.2f} s after the links healed")
        world.judge()
        assert max(begun_anew(world.cluster)) <= 1


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("faults", PROCESSES)
def test_brokers_on_files_lose_nothing(faults: Faults, tmp_path: Path) -> None:
    with on_files(tmp_path, {}) as world:
        world.flows()
        faults(world)
        world.judge()


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("faults", [kill_one_after_the_other, kill_all, everything_at_once])
def test_brokers_that_leave_the_disk_to_the_system_lose_nothing(
    faults: Faults, replicas: int, tmp_path: Path
) -> None:
    with on_files(tmp_path, {"wal.fsync": "false"}, replicas=replicas) as world:
        world.flows()
        faults(world)
        world.judge()


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("commit", ["storage", "memory"])
def test_a_disk_that_fills_up_loses_nothing(commit: str, tmp_path: Path) -> None:
    configs = {"sparklog.commit": commit, "min.insync.replicas": "2", "flush.ms": "500"}
    with (
        small_disk(tmp_path / "root", 64 * MIB) as disk,
        on_files(tmp_path, {}, configs) as world,
    ):
        world.flows()
        for broker in world.cluster.brokers:
            keep_full(world, disk, 4)
            before = world.load.acknowledged
            keep_full(world, disk, 4)
            if commit == "memory":
                assert world.load.acknowledged > before, "memory acknowledges without a disk"
            broker.kill()
            keep_full(world, disk, 4)
            disk.free()
            broker.start()
            world.flows()
        starts_in_vain(world.cluster.brokers[0], disk)
        disk.free()
        world.judge()


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("server", [S3_SERVER])
@pytest.mark.parametrize("faults", [*PROCESSES, outage, storms, storm_and_kills])
def test_brokers_on_s3_lose_nothing(faults: Faults, server: str, tmp_path: Path) -> None:
    with on_s3(tmp_path, {}) as world:
        world.flows()
        faults(world)
        world.judge()


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("server", [S3_SERVER])
@pytest.mark.parametrize(
    "faults",
    [
        kill_one_after_the_other,
        pause_one_after_the_other,
        cut_off_one_after_the_other,
        leave_one_after_the_other,
        outage,
    ],
)
def test_commits_in_memory_survive_one_fault_at_a_time(
    faults: Faults, server: str, tmp_path: Path
) -> None:
    with on_s3(tmp_path, {}, **MEMORY) as world:
        world.flows()
        faults(world)
        world.judge()
