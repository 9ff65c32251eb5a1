"""Brokers with one safety rule taken out each. The simulation must notice every one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.controller import controller, registration
from sparklog.broker.controller.peer_checks import PeerChecks
from sparklog.broker.coordinator.partition_log import CoordinatorPartition
from sparklog.broker.coordinator.runtime import CoordinatorRuntime
from sparklog.broker.coordinator.txn_markers import PlacedMarker, TxnMarkers
from sparklog.broker.node import incarnation
from sparklog.broker.node.authorization import Authorization
from sparklog.broker.node.incarnation import Incarnation
from sparklog.broker.node.roles import RoleAssigner
from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.produce.rejected_batches import RejectedBatches
from sparklog.broker.replication import recovery
from sparklog.broker.replication.flusher import Flusher
from sparklog.broker.wal import appender
from sparklog.broker.wal.appender import WalAppender
from sparklog.broker.wal.batching import DurableSink
from sparklog.cluster.controller.leader_state import Event, LeaderState
from sparklog.cluster.controller.liveness import Verdict
from sparklog.coordinator.classic.group import ClassicGroup
from sparklog.coordinator.consumer.group import ConsumerGroup
from sparklog.coordinator.effects import CoordinatorResult
from sparklog.core.errors import Fenced, InvalidProducerEpoch, InvalidTxnState, SparklogError
from sparklog.log.effects import Program, list_after
from sparklog.log.layout import WalLayout
from sparklog.log.manifest.view import PartitionView
from sparklog.log.tail.producer_state import OpenTransactions, ProducerStates
from sparklog.log.wal import recovery as recover
from sparklog.log.wal import sealing
from sparklog.log.wal.objects import WalBatch
from sparklog.log.wal.writer import PutOutcomes, WindowRow, place

Mutate = Callable[[pytest.MonkeyPatch], None]


def skip_the_seal(patch: pytest.MonkeyPatch) -> None:
    """Depose brokers without sealing their write-ahead logs."""

    def unsealed(layout: WalLayout, nonce: str) -> Program[sealing.Sealed]:
        look = yield from sealing._survey(layout, {})
        return sealing.Sealed(look.gap, look.boundary)

    for module in (controller, incarnation, registration, recover):
        patch.setattr(module, "seal", unsealed)


def acknowledge_before_the_wal(patch: pytest.MonkeyPatch) -> None:
    """Take every batch for durable as soon as it is handed to the write-ahead log."""
    append = WalAppender.append

    def hasty(
        self: WalAppender,
        batch: WalBatch,
        end_offset: int,
        sink: DurableSink,
        *,
        awaited: bool,
        urgent: bool,
    ) -> None:
        append(self, batch, end_offset, sink, awaited=awaited, urgent=urgent)
        sink.wal_durable(end_offset)

    patch.setattr(WalAppender, "append", hasty)


def flush_above_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Bring everything in memory into the partition's own log, committed or not."""
    put_segment = Flusher._put_segment

    async def greedy(self: Flusher, led: LeaderPartition, to_offset: int) -> None:
        await put_segment(self, led, led.tail.end_offset)

    def careless(self: Flusher, led: LeaderPartition, view: PartitionView) -> None:
        if led.live:
            led.view = view
            led.leadership.flushed_end = led.leadership.durable_end = view.end_offset
            led.held.trim(view.end_offset)
            self._wal.flushed(led.where, view.end_offset)

    patch.setattr(Flusher, "_put_segment", greedy)
    patch.setattr(Flusher, "_apply_flush", careless)


def go_on_when_deposed(patch: pytest.MonkeyPatch) -> None:
    """Ignore the seal, and the metadata log that says who leads now."""

    def stubborn(placed: WindowRow) -> Program[PutOutcomes]:
        yield from place(placed)
        return PutOutcomes.DURABLE

    end = Incarnation._end

    def deaf(self: Incarnation, why: BaseException) -> None:
        if not isinstance(why, Fenced):
            end(self, why)

    apply = RoleAssigner.apply

    def clinging(self: RoleAssigner, image: Any) -> None:
        me = self._parts.identity
        mine = image.brokers.get(me.broker_id)
        if mine is not None and mine.incarnation == me.incarnation and not mine.fenced:
            apply(self, image)

    patch.setattr(appender, "place", stubborn)
    patch.setattr(Incarnation, "_end", deaf)
    patch.setattr(RoleAssigner, "apply", clinging)


def commit_without_followers(patch: pytest.MonkeyPatch) -> None:
    """Take what the leader has for what all in-sync replicas have."""
    advance = LeaderState._advance

    def alone(self: LeaderState) -> tuple[Event, ...]:
        self._required = ()
        return advance(self)

    patch.setattr(LeaderState, "_advance", alone)


def forget_producers(patch: pytest.MonkeyPatch) -> None:
    """Begin to lead without knowing what producers had appended."""

    def nothing(view: PartitionView, now_ms: int) -> Program[ProducerStates]:
        yield from list_after(view.layout.snapshot_prefix, "")
        return ProducerStates()

    patch.setattr(recovery, "load_producers", nothing)


def take_what_comes_ahead(patch: pytest.MonkeyPatch) -> None:
    """Judge a batch at once that comes ahead of one that still waits at an earlier leader."""
    patch.setattr(RejectedBatches, "check_ahead", lambda *given, may_have_stragglers: None)


def skip_the_wals(patch: pytest.MonkeyPatch) -> None:
    """Begin to lead without reading what deposed leaders had acknowledged."""
    patch.setattr(recovery, "recover_batches", lambda tails, view: ())


def ignore_the_last_stable_offset(patch: pytest.MonkeyPatch) -> None:
    """Show consumers of committed records what may yet be aborted."""
    patch.setattr(LeaderPartition, "last_stable_offset", property(lambda self: self.high_watermark))


def let_fenced_producers_write(patch: pytest.MonkeyPatch) -> None:
    """Take a producer's batches although a newer one has its id."""
    check = ProducerStates.check

    def lenient(self: ProducerStates, header: Any, *verification: Any) -> Any:
        try:
            return check(self, header, *verification)
        except (InvalidProducerEpoch, InvalidTxnState):
            return None

    patch.setattr(ProducerStates, "check", lenient)


def commit_what_was_aborted(patch: pytest.MonkeyPatch) -> None:
    """Forget which transactions were aborted."""
    patch.setattr(OpenTransactions, "aborted_between", lambda self, base, end: ())


def write_markers_twice(patch: pytest.MonkeyPatch) -> None:
    """End every transaction once more, a little later."""
    append = TxnMarkers._append

    async def twice(
        self: TxnMarkers, led: LeaderPartition, placed: PlacedMarker, until_s: float
    ) -> int:
        async def again() -> None:
            await asyncio.sleep(0.15)
            try:
                await append(self, led, placed, until_s)
            except SparklogError:
                pass  # the partition has another leader

        end_offset = await append(self, led, placed, until_s)
        again_task = asyncio.ensure_future(again())
        again_task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return end_offset

    patch.setattr(TxnMarkers, "_append", twice)


def answer_commits_before_they_are_durable(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge offsets to members as soon as their commit is decided."""
    apply = CoordinatorRuntime._apply_result

    def hasty(self: Any, context: Any, effects: CoordinatorResult, *, internal: bool) -> None:
        context.reply(effects.replies)
        apply(self, context, effects, internal=internal)

    patch.setattr(CoordinatorRuntime, "_apply_result", hasty)


def let_members_of_older_generations_commit(patch: pytest.MonkeyPatch) -> None:
    """Accept a commit of any sender."""
    patch.setattr(ClassicGroup, "check_commit", lambda *_, **__: ErrorCode.none)


def give_away_before_it_is_given_up(patch: pytest.MonkeyPatch) -> None:
    """Let a member have partitions that the one before has not given up yet."""
    patch.setattr(ConsumerGroup, "is_held_by_other", lambda *_: False)


def let_members_of_older_epochs_commit(patch: pytest.MonkeyPatch) -> None:
    """Accept a commit of any sender to a group of the newer protocol."""
    patch.setattr(ConsumerGroup, "check_commit", lambda *_, **__: ErrorCode.none)


def answer_acks_1_from_memory(patch: pytest.MonkeyPatch) -> None:
    """Answer acks=1 as soon as the leader's memory has the batch."""
    patch.setattr(LeaderPartition, "wait_copied", lambda *_: None)


def count_any_follower_for_acks_1(patch: pytest.MonkeyPatch) -> None:
    """Answer acks=1 when a batch was shown to followers, before one has it."""
    begun = LeaderPartition.wal_begun

    def hasty(self: LeaderPartition, end_offset: int) -> None:
        self.leadership.copied_end = max(self.leadership.copied_end, end_offset)
        begun(self, end_offset)

    patch.setattr(LeaderPartition, "wal_begun", hasty)


def load_coordinators_empty(patch: pytest.MonkeyPatch) -> None:
    """Begin to coordinate without reading what was committed."""
    patch.setattr(CoordinatorPartition, "log_start_offset", property(lambda self: self.end_offset))


def take_broken_links_for_dead_brokers(patch: pytest.MonkeyPatch) -> None:
    """Replace and fence a broker when one other cannot connect to it, and register at once."""

    async def dead(self: PeerChecks, image: Any, suspect: Any) -> Verdict:
        return Verdict.DEAD

    async def may_join(self: PeerChecks, image: Any) -> bool:
        return True

    patch.setattr(PeerChecks, "verdict", dead)
    patch.setattr(PeerChecks, "may_join", may_join)


def keep_the_first_acls(patch: pytest.MonkeyPatch) -> None:
    """Go on with the ACLs that a broker had when the reader was allowed."""
    current = Authorization.current

    def lazy(self: Authorization, image: Any) -> Any:
        return current(self, image) if len(self._acls) < 1 else self._authorizer

    patch.setattr(Authorization, "current", lazy)


MUTANTS: dict[str, dict[str, Mutate]] = {
    "plain": {
        "skip-the-seal": skip_the_seal,
        "acknowledge-before-the-wal": acknowledge_before_the_wal,
        "flush-above-the-high-watermark": flush_above_the_high_watermark,
        "go-on-when-deposed": go_on_when_deposed,
        "commit-without-followers": commit_without_followers,
        "forget-producers": forget_producers,
        "skip-the-wals": skip_the_wals,
        "take-what-comes-ahead": take_what_comes_ahead,
    },
    "acks-1": {
        "answer-acks-1-from-memory": answer_acks_1_from_memory,
        "count-any-follower-for-acks-1": count_any_follower_for_acks_1,
    },
    "transactions": {
        "ignore-the-last-stable-offset": ignore_the_last_stable_offset,
        "let-fenced-producers-write": let_fenced_producers_write,
        "commit-what-was-aborted": commit_what_was_aborted,
        "write-markers-twice": write_markers_twice,
    },
    "rights": {"keep-the-first-acls": keep_the_first_acls},
    "links": {"take-broken-links-for-dead-brokers": take_broken_links_for_dead_brokers},
    "members": {
        "answer-commits-before-they-are-durable": answer_commits_before_they_are_durable,
        "let-members-of-older-generations-commit": let_members_of_older_generations_commit,
        "load-coordinators-empty": load_coordinators_empty,
    },
    "consumers": {
        "give-away-before-it-is-given-up": give_away_before_it_is_given_up,
        "let-members-of-older-epochs-commit": let_members_of_older_epochs_commit,
        "forget-who-holds-what": load_coordinators_empty,
    },
}
"""By the campaign whose seeds catch them."""
