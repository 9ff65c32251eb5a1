"""What became of records that brokers acknowledged while executors were killed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sparklog.client.admin import Admin
from sparklog.core.errors import SparklogError
from sparklog.spark.demo.command import sparklog
from sparklog.spark.demo.group import GROUP, ReadingGroup
from sparklog.spark.demo.plain_client import PlainClient, Read, read_everything
from sparklog.spark.demo.producing import PARTITIONS
from sparklog.spark.demo.scene import Scene
from sparklog.spark.demo.serving import PATIENCE_S, TOPIC

CLIENT = "the client says"
NONE = "there should be"


def check_records(scene: Scene, servers: str, client: PlainClient, by_spark: int) -> Sequence[Read]:
    """Compare what is in the topic with what was acknowledged; returns what is there."""
    found = read_everything(servers, TOPIC, PARTITIONS)
    own = [one for one in found if one.number is not None]
    numbers = {one.number for one in own}
    acknowledged = len(client.acknowledged)
    lost = sum(one.number not in numbers for one in client.acknowledged)
    equal = scene.checks.equal
    equal("records the client could not send", len(client.failed), 0, NONE)
    equal("acknowledged records of the client", len(numbers), acknowledged, CLIENT)
    equal("acknowledged records that are missing", lost, 0, NONE)
    equal("records that are there twice", len(own) - len(numbers), 0, NONE)
    equal("records out of order", out_of_order(own), 0, NONE)
    equal("records of the Spark job", len(found) - len(own), by_spark)
    return found


def out_of_order(found: Sequence[Read]) -> int:
    """Return how many records come after one that was sent later, in any partition."""
    newest: dict[int, int] = defaultdict(lambda: -1)
    wrong = 0
    for one in sorted(found, key=lambda read: (read.partition, read.offset)):
        assert one.number is not None, "only the client's own records have an order"
        wrong += one.number < newest[one.partition]
        newest[one.partition] = max(newest[one.partition], one.number)
    return wrong


def check_group(scene: Scene, servers: str, group: ReadingGroup, found: Sequence[Read]) -> None:
    """Let a group come to the end, and compare what it has read and committed.

    Raises:
        SparklogError: it does not come there, or nobody knows what it has committed.
    """
    places = {(one.partition, one.offset) for one in found}
    try:
        group.await_all(places, PATIENCE_S)
    finally:
        group.stop()
    again = group.reads - len(places)
    scene.narrator.tell(f"the group has read {group.reads:,} records, {again:,} of them twice")
    equal = scene.checks.equal
    equal("records that the group has missed", len(group.missing(places)), 0, NONE)
    equal("members that failed", len(group.failed), 0, NONE)
    sparklog(scene, "groups", "--bootstrap-server", servers, "--describe", "--group", GROUP)
    equal("lag of the group", _lag(servers, places), 0, NONE)


def _lag(servers: str, places: set[tuple[int, int]]) -> int:
    """Return how many records lie behind what the group has committed."""
    with Admin(servers) as admin:
        committed = admin.groups.offsets([GROUP])[GROUP]
    if isinstance(committed, SparklogError):
        raise committed
    read_to = {where.partition: one.offset for where, one in committed.items()}
    return sum(offset >= read_to.get(partition, 0) for partition, offset in places)
