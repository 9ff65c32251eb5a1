"""Gives up unreadable records, so that the rest of the partition can be read.

An operator must ask for it, and name the offsets as verification reported them. A damaged object is
replaced by one that covers the same offsets and has the rows that can still be read. A segment of
the tail with an unreadable footer is replaced by one without rows, after which the chain continues.
An unreadable producer's batch is left out of a copy of its object. All of these are changes of the
manifest: no name of the chain is ever written twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sparklog.core.errors import InvalidRequest, Unavailable
from sparklog.core.types import UNLED_EPOCH, OffsetRange, TimestampType
from sparklog.log.cleanup.merged_footer import MergedFooter
from sparklog.log.cleanup.rewriter import Encoding, RewritePosition, rewritten
from sparklog.log.effects import Program, create
from sparklog.log.manifest.change import is_published, publish_over_gap, swap
from sparklog.log.manifest.view import PartitionView
from sparklog.log.repair.findings import Damage, DamageKind
from sparklog.log.repair.repair import Repair, RepairResult


@dataclass(frozen=True, slots=True)
class LeadNow:
    """The leader of the partition, by the registry: the likely content of an unreadable footer."""

    led: bool = False
    leader_epoch: int = UNLED_EPOCH


class Dropper:
    """Gives up damaged records of one partition."""

    def __init__(self, repair: Repair, lead: LeadNow) -> None:
        """Work on the damages that `repair` has found."""
        self._repair = repair
        self._found = repair.found
        self._layout = repair.layout
        self._lead = lead

    def drop(self, ranges: Collection[OffsetRange]) -> list[RepairResult]:
        """Give up these offsets, each range exactly as verification reported it.

        Raises:
            InvalidRequest: no such damage, or not all damages of an object. Nothing was changed.
            Unavailable: the log changed meanwhile; verify it again.
        """
        chain = {d.lost_base: d for d in self._found.damages if d.kind is DamageKind.CHAIN}
        covered: list[tuple[Damage, OffsetRange]] = []
        replaced: dict[str, list[Damage]] = {}
        for one in sorted(ranges, key=lambda r: r.base_offset):
            broken = chain.get(one.base_offset)
            if broken is not None:
                self._refuse_guess(broken, one)
                covered.append((broken, one))
            else:
                damage = self._damage_at(one)
                self._refuse_half(damage, ranges)
                replaced.setdefault(damage.object, []).append(damage)
        # While the chain is broken no manifest can be planned, so its repair comes first.
        done = [self._covered(damage, one) for damage, one in covered]
        return [*done, *(self._replaced(given_up) for given_up in replaced.values())]

    def _damage_at(self, wanted: OffsetRange) -> Damage:
        for damage in self._found.damages:
            lost_range = (damage.lost_base, damage.lost_end)
            can_go = damage.kind in (DamageKind.SEGMENT, DamageKind.UNREAD)
            if can_go and lost_range == (wanted.base_offset, wanted.end_offset):
                return damage
        lost = [d for d in self._found.damages if d.lost_end > d.lost_base]
        damaged = ", ".join(f"{d.lost_base}-{d.lost_end}" for d in lost) or "none"
        raise InvalidRequest(
            "no damage of just these offsets; name a range as verify tells it. "
            f"partition={self._layout.topic}:{self._layout.partition} "
            f"wanted={wanted.base_offset}-{wanted.end_offset} damaged={damaged}"
        )

    def _refuse_half(self, damage: Damage, ranges: Collection[OffsetRange]) -> None:
        given = {(r.base_offset, r.end_offset) for r in ranges}
        for other in self._found.damages:
            lost_range = (other.lost_base, other.lost_end)
            same = other.object == damage.object and other.kind is DamageKind.SEGMENT
            if same and lost_range not in given:
                raise InvalidRequest(
                    "an object is replaced once; name its other damage, too. "
                    f"range={other.lost_base}-{other.lost_end} object={damage.object}"
                )

    def _refuse_guess(self, damage: Damage, wanted: OffsetRange) -> None:
        if damage.end_known and wanted.end_offset != damage.lost_end:
            raise InvalidRequest(
                "the next segment says where the damaged one ends; name that range. "
                f"range={damage.lost_base}-{damage.lost_end} object={damage.object}"
            )
        if wanted.end_offset <= damage.lost_base and not damage.end_known:
            raise InvalidRequest(
                "a segment has at least one offset; say where it ended. "
                f"range={wanted.base_offset}-{wanted.end_offset} object={damage.object}"
            )
        if not damage.end_known and self._lead.led:
            raise InvalidRequest(
                "only its leader knows where this segment ends: produce a record, and when the "
                "leader has flushed it, verify tells. "
                f"partition={self._layout.topic}:{self._layout.partition}"
            )

    def _replaced(self, damages: Sequence[Damage]) -> RepairResult:
        """Replace an object by one with the readable rows, without the given batches."""
        key = damages[0].object
        entries = [
            e
            for e in self._found.view.entries
            if self._layout.key(e.object) == key
            and any(e.base_offset <= d.lost_base and d.lost_end <= e.end_offset for d in damages)
        ]
        offsets = ", ".join(f"{d.lost_base} to {d.lost_end}" for d in damages)
        result = RepairResult(key, f"offsets {offsets} given up")
        if self._repair.dry_run:
            return result
        unread = [
            OffsetRange(d.lost_base, d.lost_end) for d in damages if d.kind is DamageKind.UNREAD
        ]
        made = [self._repair.rebuilt(entry, given_up=unread) for entry in entries]
        if not is_published(self._repair.change(swap(made)), made):
            raise Unavailable(f"the log changed meanwhile; verify it again. object={key}")
        return result

    def _covered(self, damage: Damage, wanted: OffsetRange) -> RepairResult:
        """Replace an unreadable segment by an object without rows."""
        what = f"offsets {wanted.base_offset} to {wanted.end_offset} given up"
        result = RepairResult(damage.object, what)
        if not self._repair.dry_run:
            self._repair.run(self._cover(wanted))
        return result

    def _cover(self, wanted: OffsetRange) -> Program[None]:
        view, nonces = self._found.view, self._repair.nonces()
        if wanted.base_offset == wanted.end_offset:  # a fence
            epoch = max(view.leader_epoch, self._lead.leader_epoch)
            led, nonce = self._lead.led, next(nonces)
            yield from publish_over_gap(view, (), leader_epoch=epoch, led=led, nonce=nonce)
            return
        yield from cover(view, wanted, self._lead, self._repair.encoding, nonces)


def cover(
    view: PartitionView,
    wanted: OffsetRange,
    lead: LeadNow,
    encoding: Encoding,
    nonces: Iterator[str],
) -> Program[None]:
    """Continue the log with an object that covers offsets and has no rows.

    Args:
        view: of the partition, which ends where `wanted` begins.
        wanted: the offsets.
        lead: of the partition from there on.
        encoding: of the object.
        nonces: two are taken.

    Raises:
        Unavailable: the log changed meanwhile: refresh the view.
    """
    layout = view.layout
    epoch = max(view.leader_epoch, lead.leader_epoch)
    place = RewritePosition(
        layout, wanted.base_offset, wanted.end_offset, epoch, lead.led, TimestampType.CREATE_TIME
    )
    ((entry, data),) = rewritten(place, (), MergedFooter(), encoding, nonces)
    yield from create(layout.key(entry.object), data)
    yield from publish_over_gap(
        view, [entry], leader_epoch=entry.leader_epoch, led=lead.led, nonce=next(nonces)
    )
