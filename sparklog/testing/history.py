"""History of clients' sends and polls, and its checker. Pure.

Clients of a simulation or of a real cluster record their sends and polls. Values are unique
integers. After all faults ended, the `final` polls read every partition from its start to its end.
A lost write is detected only if a reader passes it. Offsets are those of single records; times are
seconds on one clock.
Source: the Kafka workload of Jepsen, with its names of anomalies where it has them.

History of transactional producers and `read_committed` consumers, and its checker. Pure.

Values are unique integers. A transaction is committed or aborted once its producer has the
response. Between the request and the response it may be either, but as a whole.

History of a consumer group's members, and its checker. Pure.

Members commit rising offsets only, and restart after a commit without a response. So committed
offsets never go back. Times are seconds on one clock.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from itertools import pairwise

from sparklog.core.bounded_json import parse_json
from sparklog.core.types import TopicPartition


class SendOutcome(Enum):
    """The result of a send, as far as its sender knows."""

    OK = "ok"
    FAILED = "failed"
    """The record is not in the log and never will be."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Send:
    """One record, its retries included."""

    producer: str
    partition: TopicPartition
    value: int
    number: int
    """Index among the producer's sends to the partition."""
    invoked_s: float
    completed_s: float
    outcome: SendOutcome
    offset: int | None = None
    """The record's offset, if it was acknowledged."""
    idempotent: bool = True
    durable: bool = True
    """True if no fault may remove it after its acknowledgement: acks=all, or acks=1 with one
    replica. With acks=1 and more replicas the next leader may lack it, as in Kafka. Another record
    then has its offset.
    """


@dataclass(frozen=True, slots=True)
class Poll:
    """The result of one fetch by a consumer that assigns its partitions itself."""

    consumer: str
    partition: TopicPartition
    position: int
    """The requested offset."""
    records: tuple[tuple[int, int], ...]
    """(offset, value), in the order of the response."""
    completed_s: float
    final: bool = False


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A violation of a log's guarantees."""

    kind: str
    partition: TopicPartition
    what: str

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.kind} {self.partition.topic}-{self.partition.partition}: {self.what}"


@dataclass(slots=True)
class _PartitionEvents:
    """The history of one partition, indexed."""

    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    values_at: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By offset, from acknowledgements and polls."""
    offsets_of: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    read: set[int] = field(default_factory=set)
    """All values in polls."""
    final: dict[int, int] = field(default_factory=dict)
    """Offset to value, from the final polls."""

    @property
    def highest_read(self) -> int:
        return max((at for poll in self.polls for at, _ in poll.records), default=-1)


def check(history: Iterable[Send | Poll]) -> list[Anomaly]:
    """Return the anomalies of a history; `Send` records the guarantees of each send."""
    found = []
    for partition, events in sorted(_events_by_partition(history).items()):
        for kind, search in _SEARCHES.items():
            found += [Anomaly(kind, partition, what) for what in search(events)]
    return found


def _events_by_partition(history: Iterable[Send | Poll]) -> dict[TopicPartition, _PartitionEvents]:
    stories: dict[TopicPartition, _PartitionEvents] = defaultdict(_PartitionEvents)
    for one in history:
        events = stories[one.partition]
        if isinstance(one, Send):
            events.sends.append(one)
            if one.offset is not None and one.durable:
                _learn(events, one.offset, one.value)
            continue
        events.polls.append(one)
        for offset, value in one.records:
            _learn(events, offset, value)
            events.read.add(value)
            if one.final:
                events.final[offset] = value
    return stories


def _learn(events: _PartitionEvents, offset: int, value: int) -> None:
    events.values_at[offset].add(value)
    events.offsets_of[value].add(offset)


def _inconsistent_offsets(events: _PartitionEvents) -> Iterator[str]:
    """Two values at one offset."""
    for offset, values in sorted(events.values_at.items()):
        if len(values) > 1:
            yield f"offset={offset} values={sorted(values)}"


def _duplicates(events: _PartitionEvents) -> Iterator[str]:
    """One value at two offsets."""
    for send in events.sends:
        offsets = events.offsets_of.get(send.value, set())
        if send.idempotent and len(offsets) > 1:
            yield f"value={send.value} offsets={sorted(offsets)} producer={send.producer}"


def _unread(events: _PartitionEvents) -> Iterator[Send]:
    for send in events.sends:
        if send.outcome is SendOutcome.OK and send.durable and send.value not in events.read:
            yield send


def _lost_writes(events: _PartitionEvents) -> Iterator[str]:
    """Acknowledged, and a reader passed its offset without reading it."""
    highest = events.highest_read
    for send in _unread(events):
        if send.offset is not None and send.offset <= highest:
            yield f"value={send.value} offset={send.offset} highest_read={highest}"


def _unseen(events: _PartitionEvents) -> Iterator[str]:
    """Acknowledged, and beyond the last record that any reader read."""
    highest = events.highest_read
    for send in _unread(events):
        if send.offset is None or send.offset > highest:
            yield f"value={send.value} offset={send.offset} highest_read={highest}"


def _failed_reads(events: _PartitionEvents) -> Iterator[str]:
    """Rejected for good, but read."""
    for send in events.sends:
        if send.outcome is SendOutcome.FAILED and send.value in events.read:
            yield f"value={send.value} offsets={sorted(events.offsets_of[send.value])}"


def _invented_reads(events: _PartitionEvents) -> Iterator[str]:
    """Read, but never sent."""
    for value in sorted(events.read - {send.value for send in events.sends}):
        yield f"value={value} offsets={sorted(events.offsets_of[value])}"


def _vanished_reads(events: _PartitionEvents) -> Iterator[str]:
    """Read once, but missing in the end: a consumer got it before it was committed."""
    for poll in events.polls if events.final else ():
        for offset, value in poll.records:
            if not poll.final and events.final.get(offset) != value:
                yield f"value={value} offset={offset} consumer={poll.consumer}"


def _nonmonotonic_sends(events: _PartitionEvents) -> Iterator[str]:
    """One producer's records, in another order than it sent them."""
    by_producer: dict[str, list[Send]] = defaultdict(list)
    for send in events.sends:
        if send.idempotent:
            by_producer[send.producer].append(send)
    for producer, sends in by_producer.items():
        placed = [
            (send, min(events.offsets_of[send.value]))
            for send in sorted(sends, key=lambda send: send.number)
            if send.value in events.offsets_of
        ]
        for (one, at), (other, other_at) in pairwise(placed):
            if other_at < at:
                yield f"producer={producer} {one.value}@{at} sent before {other.value}@{other_at}"


def _against_real_time(events: _PartitionEvents) -> Iterator[str]:
    """Sent after another was acknowledged, but placed before it."""
    done = sorted(
        (
            send
            for send in events.sends
            if send.outcome is SendOutcome.OK and send.durable and send.offset is not None
        ),
        key=lambda send: send.completed_s,
    )
    completed = iter(done)
    coming = next(completed, None)
    newest: Send | None = None
    for send in sorted(done, key=lambda send: send.invoked_s):
        while coming is not None and coming.completed_s < send.invoked_s:
            if newest is None or (coming.offset or 0) > (newest.offset or 0):
                newest = coming
            coming = next(completed, None)
        if newest is not None and (send.offset or 0) < (newest.offset or 0):
            yield (
                f"{newest.value}@{newest.offset} acknowledged before "
                f"{send.value}@{send.offset} was sent"
            )


def _by_consumer(events: _PartitionEvents) -> dict[str, list[tuple[int, int]]]:
    records: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for poll in events.polls:
        records[poll.consumer] += poll.records
    return records


def _nonmonotonic_polls(events: _PartitionEvents) -> Iterator[str]:
    """A consumer's position went back."""
    for consumer, records in _by_consumer(events).items():
        for (offset, _), (later, _) in pairwise(records):
            if later <= offset:
                yield f"consumer={consumer} offset={offset} then={later}"


def _skipping_polls(events: _PartitionEvents) -> Iterator[str]:
    """A consumer skipped an existing record."""
    known = sorted(events.final or events.values_at)
    place = {offset: index for index, offset in enumerate(known)}
    for consumer, records in _by_consumer(events).items():
        for (offset, _), (later, _) in pairwise(records):
            if offset in place and later in place and place[later] > place[offset] + 1:
                yield f"consumer={consumer} from={offset} to={later}"


_SEARCHES: dict[str, Callable[[_PartitionEvents], Iterator[str]]] = {
    "inconsistent-offsets": _inconsistent_offsets,
    "duplicate": _duplicates,
    "lost-write": _lost_writes,
    "unseen": _unseen,
    "failed-read": _failed_reads,
    "invented-read": _invented_reads,
    "vanished-read": _vanished_reads,
    "nonmonotonic-send": _nonmonotonic_sends,
    "real-time-order": _against_real_time,
    "nonmonotonic-poll": _nonmonotonic_polls,
    "poll-skip": _skipping_polls,
}

ANOMALIES = tuple(_SEARCHES)


def to_lines(history: Sequence[Send | Poll]) -> str:
    """Return a history as JSON, one object a line."""
    lines = []
    for one in history:
        fields = asdict(one)
        fields["partition"] = [one.partition.topic, one.partition.partition]
        fields["f"] = "send" if isinstance(one, Send) else "poll"
        if isinstance(one, Send):
            fields["outcome"] = one.outcome.value
        lines.append(json.dumps(fields))
    return "".join(f"{line}\n" for line in lines)


def from_lines(text: str) -> list[Send | Poll]:
    """Return the history that `to_lines` wrote."""
    history: list[Send | Poll] = []
    for line in text.splitlines():
        fields = parse_json(line, "line of a history")
        fields["partition"] = TopicPartition(*fields["partition"])
        if fields.pop("f") == "send":
            history.append(Send(**{**fields, "outcome": SendOutcome(fields["outcome"])}))
        else:
            records = tuple((offset, value) for offset, value in fields["records"])
            history.append(Poll(**{**fields, "records": records}))
    return history


class Fate(Enum):
    """The outcome of a transaction, as far as its producer knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class TransactionHistory:
    """The acknowledged records of one transaction."""

    producer: str
    written: list[tuple[TopicPartition, int]] = field(default_factory=list)
    """Partition and value, in the order of writing."""
    fate: Fate = Fate.UNKNOWN


@dataclass(frozen=True, slots=True)
class CommittedRead:
    """One record that a `read_committed` consumer got."""

    partition: TopicPartition
    offset: int
    value: int
    final: bool
    """True if it was read from start to end, after all faults ended."""


def check_transactions(
    transactions: list[TransactionHistory], reads: list[CommittedRead]
) -> Iterator[Anomaly]:
    """Yield the anomalies of transactions."""
    final: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
    for read in reads:
        if read.final:
            final[read.partition][read.offset] = read.value
    shown = {value for records in final.values() for value in records.values()}
    for transaction in transactions:
        yield from _torn(transaction, shown)
    values = [value for transaction in transactions for _, value in transaction.written]
    aborted = {
        value: transaction
        for transaction in transactions
        if transaction.fate is Fate.ABORTED
        for _, value in transaction.written
    }
    assert len(values) == len(set(values)), "a value was written twice by the test itself"
    for read in reads:
        if read.value in aborted:
            facts = f"value={read.value} offset={read.offset} of={aborted[read.value].producer}"
            yield Anomaly("aborted-read", read.partition, facts)
        elif final and final[read.partition].get(read.offset) != read.value:
            facts = f"value={read.value} offset={read.offset}"
            yield Anomaly("uncommitted-read", read.partition, facts)


def _torn(transaction: TransactionHistory, shown: set[int]) -> Iterator[Anomaly]:
    """Yield transactions that were read in part, or committed ones that were not read."""
    missing = [(p, value) for p, value in transaction.written if value not in shown]
    if not missing or transaction.fate is Fate.ABORTED:
        return
    is_whole = len(missing) == len(transaction.written)
    if transaction.fate is Fate.COMMITTED or not is_whole:
        kind = "lost-transaction" if is_whole else "torn-transaction"
        facts = f"missing={missing[:5]} of={len(transaction.written)} {transaction.producer}"
        yield Anomaly(kind, missing[0][0], facts)


@dataclass(frozen=True, slots=True)
class Owned:
    """An assignment of a partition to a member."""

    generation: int
    member: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class CommittedHistory:
    """A commit that the coordinator acknowledged."""

    partition: TopicPartition
    offset: int
    completed_s: float


@dataclass(frozen=True, slots=True)
class Looked:
    """A committed offset that the coordinator returned; -1 if there was none."""

    partition: TopicPartition
    offset: int
    invoked_s: float


@dataclass(frozen=True, slots=True)
class OwnershipClaim:
    """A time span in which a partition surely belongs to a member.

    It begins with the member's assignment, and ends when the member revokes the partition or its
    session may end.
    """

    member: str
    partition: TopicPartition
    since_s: float
    until_s: float


@dataclass(slots=True)
class GroupLog:
    """The observations of all members of one group."""

    owned: list[Owned] = field(default_factory=list)
    claims: list[OwnershipClaim] = field(default_factory=list)
    commits: list[CommittedHistory] = field(default_factory=list)
    looks: list[Looked] = field(default_factory=list)
    tried: set[tuple[TopicPartition, int]] = field(default_factory=set)
    """Offsets in commit requests."""


def check_group(log: GroupLog) -> Iterator[Anomaly]:
    """Yield the anomalies in a group's history."""
    owners: dict[tuple[int, TopicPartition], str] = {}
    for one in log.owned:
        owner = owners.setdefault((one.generation, one.partition), one.member)
        if owner != one.member:
            facts = f"generation={one.generation} members={owner},{one.member}"
            yield Anomaly("two-owners", one.partition, facts)
    yield from _read_by_two(log.claims)
    for look in log.looks:
        before = (
            commit.offset
            for commit in log.commits
            if commit.partition == look.partition and commit.completed_s < look.invoked_s
        )
        newest = max(before, default=-1)
        if look.offset < newest:
            facts = f"committed={newest} told={look.offset} at_s={look.invoked_s:.3f}"
            yield Anomaly("lost-commit", look.partition, facts)
        if look.offset >= 0 and (look.partition, look.offset) not in log.tried:
            yield Anomaly("invented-commit", look.partition, f"told={look.offset}")


def _read_by_two(claims: list[OwnershipClaim]) -> Iterator[Anomaly]:
    """Yield partitions that a member got while they belonged to another one."""
    newest: dict[TopicPartition, OwnershipClaim] = {}
    for claim in sorted(claims, key=lambda c: (c.since_s, c.until_s, c.member)):
        before = newest.get(claim.partition)
        if before is not None and before.member != claim.member and claim.since_s < before.until_s:
            facts = f"members={before.member},{claim.member} at_s={claim.since_s:.3f}"
            yield Anomaly("read-by-two", claim.partition, facts)
        if before is None or claim.until_s > before.until_s:
            newest[claim.partition] = claim
