"""Transactions on whole brokers: the view of readers of committed records, under faults."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from tests.harness.live_cluster import (
    TRANSACTIONS_TOPIC,
    Failed,
    LiveCluster,
    TxClient,
    coordinating_partition,
)

BOTH = pytest.mark.parametrize("version", [1, 2])


@BOTH
def test_committed_records_are_read_and_aborted_ones_are_not(version: int) -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin(2, partitions=2)
        tx = await TxClient(cluster, version=version).init()
        for commit in (True, False, True):
            for partition in (0, 1):
                await tx.send(f"{commit}-a", f"{commit}-b", partition=partition)
            await tx.end(commit=commit)
        await tx.settled()
        for partition in (0, 1):
            assert await cluster.read(partition) == ["True-a", "True-b"] * 2
            assert len(await cluster.read(partition, committed=False)) == 6

    cluster.run(story())


@BOTH
def test_open_transaction_holds_back_readers_of_committed_records(version: int) -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin()
        tx = await TxClient(cluster, version=version).init()
        other = await TxClient(cluster, "other", version).init()
        first = await tx.send("open")
        await other.send("committed")
        await other.end(commit=True)
        await other.settled()
        assert await cluster.read() == []
        assert await cluster.read(committed=False) == ["open", "committed"]
        assert await cluster.end_offset(committed=True) == first
        end = await cluster.end_offset(committed=False)
        assert end > first
        assert (await cluster.fetched()).last_stable_offset == first
        await tx.end(commit=True)
        await tx.settled()
        assert await cluster.read() == ["open", "committed"]
        assert await cluster.end_offset(committed=True) == end + 1

    cluster.run(story())


@BOTH
def test_history_and_the_next_leader_show_the_same_transactions(version: int) -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin(2, flush_ms="100")
        tx = await TxClient(cluster, version=version).init()
        lasting = await TxClient(cluster, "lasting", version).init()
        await tx.send("dropped")
        await tx.end(commit=False)
        await tx.send("kept")
        await tx.end(commit=True)
        await tx.settled()
        first = await lasting.send("pending")
        await tx.send("behind")
        await tx.end(commit=True)
        await asyncio.sleep(1)
        leader = await cluster.leader("t", 0)
        assert cluster.led(leader).tail.size_bytes == 0
        assert await cluster.read() == ["kept"]
        assert (await cluster.fetched()).last_stable_offset == first
        cluster.kill(leader)
        assert await cluster.read() == ["kept"]
        assert (await cluster.fetched()).last_stable_offset == first
        await lasting.end(commit=False)
        await lasting.settled()
        assert await cluster.read() == ["kept", "behind"]
        await asyncio.sleep(1)
        assert await cluster.read() == ["kept", "behind"]

    cluster.run(story())


@BOTH
@pytest.mark.parametrize("commit", [True, False])
def test_decided_transaction_is_completed_by_the_next_coordinator(
    version: int, commit: bool
) -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin(3, partitions=3)
        tx = await TxClient(cluster, version=version).init()
        coordinator = await cluster.coordinator(tx.name)
        for partition in range(3):
            await tx.send(f"{partition}", partition=partition)
        # Its markers reach only itself: the others get them from the next coordinator.
        for broker_id in {1, 2, 3} - {coordinator}:
            cluster.net.cut(f"b{coordinator}", f"b{broker_id}")
        await tx.end(commit=commit)
        await asyncio.sleep(0.05)
        cluster.kill(coordinator)
        found = await tx.settled()
        assert found.transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
        for partition in range(3):
            assert await cluster.read(partition) == ([f"{partition}"] if commit else [])
        await tx.send("next", partition=1)
        await tx.end(commit=True)
        await tx.settled()
        assert await cluster.read(1) == (["1", "next"] if commit else ["next"])

    cluster.run(story())


@BOTH
@pytest.mark.parametrize("victim", ["coordinator", "leader"])
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_transaction_outlives_a_broker(version: int, victim: str, is_killed: bool) -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin(3, partitions=2)
        tx = await TxClient(cluster, version=version).init()
        await tx.send("before", partition=0)
        await tx.send("before", partition=1)
        if victim == "coordinator":
            broker_id = await cluster.coordinator(tx.name)
        else:
            broker_id = await cluster.leader("t", 0)
        if is_killed:
            cluster.kill(broker_id)
        else:
            await cluster.leave(broker_id)
        await tx.send("after", partition=0)
        await tx.send("after", partition=1)
        assert await cluster.read(0) == []
        await tx.end(commit=True)
        await tx.settled()
        assert await cluster.read(0) == await cluster.read(1) == ["before", "after"]

    cluster.run(story())


def test_a_second_producer_fences_the_first() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin(2)
        for version in (1, 2):
            first = await TxClient(cluster, f"tx-{version}", version).init()
            await first.send("never")
            second = await TxClient(cluster, f"tx-{version}", version).init()
            assert second.identity.producer_id == first.identity.producer_id
            assert second.identity.producer_epoch > first.identity.producer_epoch
            with pytest.raises(Failed) as failed:
                await first.send("late")
            assert failed.value.code is ErrorCode.invalid_producer_epoch
            with pytest.raises(Failed) as failed:
                await first.end(commit=True)
            assert failed.value.code is ErrorCode.producer_fenced
            await second.send(f"second-{version}")
            await second.end(commit=True)
            await second.settled()
        assert await cluster.read() == ["second-1", "second-2"]

    cluster.run(story())


@BOTH
def test_expired_transaction_is_aborted_and_its_producer_fenced(version: int) -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin(2)
        tx = await TxClient(cluster, version=version, timeout_ms=2_000).init()
        await tx.send("slow")
        await asyncio.sleep(3)
        assert (await tx.settled()).transaction_state == "CompleteAbort"
        with pytest.raises(Failed) as failed:
            await tx.end(commit=True)
        assert failed.value.code is ErrorCode.producer_fenced
        assert await cluster.read() == []
        assert await cluster.end_offset(committed=True) == await cluster.end_offset(committed=False)
        await tx.init()
        await tx.send("fast")
        await tx.end(commit=True)
        await tx.settled()
        assert await cluster.read() == ["fast"]

    cluster.run(story())


def test_a_late_message_of_an_ended_transaction_opens_no_new_one() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin()
        old = await TxClient(cluster, version=1).init()
        await old.send("first")
        late = old.batch(["late"], sequence=1)
        await old.end(commit=True)
        await old.settled()
        assert (await old.produce(late))[0] is ErrorCode.invalid_txn_state
        new = await TxClient(cluster, "new").init()
        await new.send("first")
        late = new.batch(["late"], sequence=1)
        await new.end(commit=True)
        await new.settled()
        assert (await new.produce(late))[0] is ErrorCode.invalid_producer_epoch
        assert await cluster.read() == ["first", "first"]
        end = await cluster.end_offset(committed=False)
        assert await cluster.end_offset(committed=True) == end

    cluster.run(story())


def test_batches_keep_their_order_while_the_first_is_verified() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin(2)
        tx = await TxClient(cluster).init()
        batches = [tx.batch([f"{n}"], sequence=n) for n in range(5)]
        codes = await asyncio.gather(*map(tx.produce, batches))
        assert [code for code, _ in codes] == [ErrorCode.none] * 5
        await tx.end(commit=True)
        await tx.settled()
        assert await cluster.read() == ["0", "1", "2", "3", "4"]

    cluster.run(story())


def test_next_transaction_begins_before_the_last_markers_are_written() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin(3, partitions=3)
        tx = await TxClient(cluster).init()
        coordinator = await cluster.coordinator(tx.name)
        leaders = {p: await cluster.leader("t", p) for p in range(3)}
        partition, leader = next((p, b) for p, b in leaders.items() if b != coordinator)
        await tx.send("first", partition=partition)
        txn_markers = cluster.nodes[leader].node.replicas.txn_markers
        append, come = txn_markers.append, asyncio.Event()

        async def held(*arguments: Any, **named: Any) -> Any:
            await come.wait()
            return await append(*arguments, **named)

        txn_markers.append = held  # type: ignore[method-assign]  # as if the request were under way
        await tx.end(commit=True)
        asking = asyncio.ensure_future(tx.send("second", partition=partition))
        await asyncio.sleep(0.3)
        assert not asking.done()
        come.set()  # the marker comes, and after it the answer to a question before it
        await asking
        await tx.end(commit=True)
        await tx.settled()
        assert await cluster.read(partition) == ["first", "second"]

    cluster.run(story())


def test_marker_during_a_verification_repeats_the_verification() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin()
        tx = await TxClient(cluster).init()
        add_partitions = cluster.nodes[1].node.transactions.add_partitions_to_txn
        add_or_verify = add_partitions.add_or_verify
        asked: list[Any] = []

        async def overtaken(*arguments: Any, **named: Any) -> Any:
            codes = await add_or_verify(*arguments, **named)
            if not asked:
                cluster.led(1).producers.end_verification(tx.identity.producer_id)
            asked.append(codes)
            return codes

        add_partitions.add_or_verify = overtaken  # type: ignore[method-assign]
        assert (await tx.produce(tx.batch(["x"], 0)))[0] is ErrorCode.none
        assert len(asked) == 2

    cluster.run(story())


def test_a_batch_that_was_sent_twice_is_there_once() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin()
        tx = await TxClient(cluster).init()
        data = tx.batch(["once"], sequence=0)
        first = await tx.produce(data)
        assert await tx.produce(data) == first
        await tx.end(commit=True)
        await tx.settled()
        assert await cluster.read() == ["once"]

    cluster.run(story())


def test_repeated_end_counts_once_and_the_producer_recovers() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin()
        tx = await TxClient(cluster).init()
        before = tx.identity
        await tx.send("kept")
        await tx.end(commit=True)
        after, tx.identity = tx.identity, before
        await tx.end(commit=True)
        assert tx.identity == after
        assert after.producer_epoch == before.producer_epoch + 1
        with pytest.raises(Failed) as failed:
            await tx.end(commit=True)
        assert failed.value.code is ErrorCode.invalid_txn_state
        await tx.init(goes_on=True)
        assert tx.identity.producer_epoch == after.producer_epoch + 1
        await tx.end(commit=False)
        assert await cluster.read() == ["kept"]

    cluster.run(story())


def test_bad_input_gets_kafkas_errors_and_harms_no_transaction() -> None:
    cluster = LiveCluster(transaction_max_timeout_ms="60000")

    async def story() -> None:
        await cluster.begin()
        tx = await TxClient(cluster, version=1).init()

        async def refused(client: TxClient, code: ErrorCode, what: str = "init") -> None:
            with pytest.raises(Failed) as failed:
                await (client.init() if what == "init" else client.add(0, 7, topic=what))
            assert failed.value.code is code

        await refused(TxClient(cluster, ""), ErrorCode.invalid_request)
        too_long = TxClient(cluster, timeout_ms=60_001)
        await refused(too_long, ErrorCode.invalid_transaction_timeout)
        await refused(TxClient(cluster, timeout_ms=0), ErrorCode.invalid_transaction_timeout)
        await refused(tx, ErrorCode.operation_not_attempted, "t")
        await refused(tx, ErrorCode.unknown_topic_or_partition, "nobody")
        stranger = TxClient(cluster, "stranger", 1)
        stranger.identity = tx.identity
        with pytest.raises(Failed) as failed:
            await stranger.add(0)
        assert failed.value.code is ErrorCode.invalid_producer_id_mapping
        with pytest.raises(Failed) as failed:
            await tx.end(commit=True)
        assert failed.value.code is ErrorCode.invalid_txn_state
        no_id = TxClient(cluster, version=1)
        no_id.identity = tx.identity
        assert (await no_id.produce(no_id.batch(["x"], 0)))[0] is ErrorCode.invalid_txn_state
        await tx.send("fine")
        await tx.end(commit=True)
        await tx.settled()
        assert await cluster.read() == ["fine"]

    cluster.run(story())


def test_administrators_see_transactions_and_end_them() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin(2)
        tx = await TxClient(cluster).init()
        first = await tx.send("hanging")
        found = await tx.settled(("Ongoing",))
        assert (found.producer_id, found.producer_epoch) == tx.identity
        assert [(t.topic, t.partitions) for t in found.topics] == [("t", (0,))]
        listed = build_request(
            Api.LIST_TRANSACTIONS,
            2,
            state_filters=("Ongoing", "Strange"),
            producer_id_filters=(),
            duration_filter=-1,
            transactional_id_pattern="t.",
        )
        answer = await cluster.ask(await cluster.coordinator(tx.name), listed)
        assert answer.unknown_state_filters == ("Strange",)
        assert [s.transactional_id for s in answer.transaction_states] == ["tx"]
        leader = await cluster.leader("t", 0)
        described = build_request(
            Api.DESCRIBE_PRODUCERS,
            0,
            topics=(
                build_request_part(
                    Api.DESCRIBE_PRODUCERS, 0, "TopicRequest", name="t", partition_indexes=(0, 9)
                ),
            ),
        )
        for broker_id in (3 - leader, leader):  # a follower asks the leader
            good, bad = (await cluster.ask(broker_id, described)).topics[0].partitions
            assert bad.error_code is ErrorCode.unknown_topic_or_partition
            (producer,) = good.active_producers
            assert (producer.producer_id, producer.producer_epoch) == tx.identity
            assert producer.current_txn_start_offset == first
        marker = build_request(
            Api.WRITE_TXN_MARKERS,
            1,
            markers=(
                build_request_part(
                    Api.WRITE_TXN_MARKERS,
                    1,
                    "WritableTxnMarker",
                    producer_id=tx.identity[0],
                    producer_epoch=tx.identity[1],
                    transaction_result=False,
                    coordinator_epoch=99,
                    topics=(
                        build_request_part(
                            Api.WRITE_TXN_MARKERS,
                            1,
                            "WritableTxnMarkerTopic",
                            name="t",
                            partition_indexes=(0,),
                        ),
                    ),
                ),
            ),
        )
        answer = await cluster.ask(leader, marker)
        assert answer.markers[0].topics[0].partitions[0].error_code is ErrorCode.none
        end = await cluster.end_offset(committed=False)
        assert await cluster.end_offset(committed=True) == end
        assert await cluster.read() == []

    cluster.run(story())


def test_clients_can_read_the_log_of_transaction_states() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin(2)
        tx = await TxClient(cluster).init()
        await tx.send("x")
        await tx.end(commit=True)
        await tx.settled()
        image = await cluster.image()
        topic = image.topics[TRANSACTIONS_TOPIC]
        assert topic.configs["cleanup.policy"] == "compact"
        partition = coordinating_partition(tx.name)
        leader = topic.partition_states[partition].leader
        tail = cluster.led(leader, partition, TRANSACTIONS_TOPIC).tail
        assert len(tail) == 4  # Empty, Ongoing, PrepareCommit, CompleteCommit

    cluster.run(story())
