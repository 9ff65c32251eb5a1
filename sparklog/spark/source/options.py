"""The options of a read: those of Spark's Kafka source, a root instead of an address.

Names are case-insensitive, as everywhere in Spark. A job moved from `format("kafka")` keeps its
options. The source accepts consumer settings (`kafka.*`) that have nothing to act on, and rejects
those that Spark's Kafka source rejects.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from sparklog.client.security import SecuritySettings
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.config.model import LONG_MAX
from sparklog.core.errors import InvalidConfig
from sparklog.spark.access.leaders import PartitionLeaders
from sparklog.spark.access.log_options import parse_bootstrap, parse_root, parse_security_options
from sparklog.spark.sink import options as sink_options
from sparklog.spark.source.offset_options import (
    EARLIEST,
    LATEST,
    AtOffsets,
    Everywhere,
    OffsetLimit,
    check_limits,
    parse_limit,
    parse_partitions,
)
from sparklog.spark.source.selection import Assign, Selection, Subscribe, SubscribePattern
from sparklog.store.root_url import refuse_memory

logger = logging.getLogger(__name__)

STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
KNOWN: Final = (
    "path",
    *STRATEGIES,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "farTimestamps",
    "includeHeaders",
    "includeUnflushed",
    "isolationLevel",
    "snapshot",
)
WITHOUT_EFFECT: Final = (
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
"""Options of Spark's Kafka source that are about its connections to brokers."""

MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
_BATCH_IGNORES: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
READ_COMMITTED: Final = "read_committed"
_ISOLATION_LEVELS: Final = (READ_COMMITTED, "read_uncommitted")
_REFUSED: Final = {
    "auto.offset.reset": "set the source option 'startingOffsets' to 'earliest' or 'latest' "
    "instead; it applies when a streaming query starts for the first time, a restarted one "
    "goes on where it was",
    "key.deserializer": "keys are binary; use DataFrame operations to deserialize them",
    "value.deserializer": "values are binary; use DataFrame operations to deserialize them",
    "enable.auto.commit": "the query's checkpoint holds its offsets",
    "interceptor.classes": "change the rows after they are read instead",
}
_TABLE_PROPERTY: Final = "provider"
"""Spark names it among a table's properties, which come as options when a table is made."""
_DELAY: Final = re.compile(r"([0-9]+)\s*(us|ms|s|m|min|h|d)?")
_DELAY_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read, checked."""

    root: str
    selection: Selection
    starting: OffsetLimit
    ending: OffsetLimit
    unmatched_start_is_latest: bool = False
    """The action if no record is at or after the starting time: begin at the end, or fail."""
    fail_on_data_loss: bool = True
    far_timestamps_fail: bool = True
    """The action for a timestamp that Spark cannot hold: fail, or read null."""
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    include_unflushed: bool = True
    """True to read also the records that only the leaders of partitions have."""
    bootstrap: str | None = None
    """Brokers to find the leaders by; by default those that the root's registry names."""
    security: SecuritySettings | None = None
    """TLS and SASL, with references to secrets; None takes those of the process."""
    committed_only: bool = False
    """Leave out what aborted transactions wrote, and stop before what an open one has written."""
    snapshot: str | None = None
    """The named snapshot that a batch reads, instead of what is there now."""
    group_id: str | None = None
    """The group for which a stream commits its offsets."""

    def leaders(self, clock: Clock = SYSTEM_CLOCK) -> PartitionLeaders | None:
        """Return what asks the leaders, unless none are to be asked."""
        if not self.include_unflushed or self.snapshot is not None:
            return None
        return PartitionLeaders(
            self.bootstrap, clock, committed_only=self.committed_only, security=self.security
        )


def parse_batch_options(options: Mapping[str, str]) -> SourceOptions:
    """Check the options of a batch read.

    Raises:
        InvalidConfig: unknown, missing, contradictory or unsupported options.
    """
    given = _lowered(options)
    for name in _BATCH_IGNORES:
        if name.lower() in given:
            logger.warning("option ignored in batch queries. option=%s", name)
    parsed = _parse(given, default_start=EARLIEST)
    _refuse_late_start(parsed.starting)
    _refuse_early_end(parsed.ending)
    check_limits(parsed.starting, parsed.ending)
    return parsed


def parse_stream_options(options: Mapping[str, str]) -> SourceOptions:
    """Check the options of a streaming read.

    Raises:
        InvalidConfig: unknown, missing, contradictory or unsupported options.
    """
    given = _lowered(options)
    if "snapshot" in given:
        raise InvalidConfig("a snapshot does not grow: read it as a batch. option=snapshot")
    if "endingoffsets" in given:
        raise InvalidConfig("ending offset not valid in streaming queries. option=endingOffsets")
    for name in ("endingOffsetsByTimestamp", "endingTimestamp"):
        if name.lower() in given:
            raise InvalidConfig(f"ending timestamp not valid in streaming queries. option={name}")
    return _parse(given, default_start=LATEST)


def check_read_or_write_options(options: Mapping[str, str]) -> None:
    """Check as much as can be before Spark has said whether it is a read or a write.

    Raises:
        InvalidConfig: a name neither knows, or, where topics to read are chosen, anything that
            neither a batch read nor a stream would take.
    """
    given = _lowered(options)
    if _TABLE_PROPERTY in given:
        _check_table(given)
        return
    _check_names(given, (*KNOWN, *WITHOUT_EFFECT, *sink_options.KNOWN))
    refuse_memory(given.get("path", ""))
    if any(name.lower() in given for name in STRATEGIES):
        _parse(given, default_start=EARLIEST)


def _check_table(given: Mapping[str, str]) -> None:
    """Refuse what `CREATE TABLE … USING sparklog` would take and every read of it ignore."""
    lost = [name for name in KNOWN if name.lower() in given and name != "includeHeaders"]
    if lost:
        raise InvalidConfig(
            "Spark does not hand a table's options or location to its reads. Make the table "
            "without them and name them behind it where it is read: WITH (path = '...', "
            "subscribe = '...'), for example in a view per topic (see "
            f"sparklog.spark.views.create_topic_views). options={lost}"
        )


def _committed_only(given: Mapping[str, str]) -> bool:
    names = ("isolationLevel", "kafka.isolation.level")
    levels = {n: given[n.lower()].strip().lower() for n in names if n.lower() in given}
    for name, level in levels.items():
        if level not in _ISOLATION_LEVELS:
            raise InvalidConfig(f"choose from {', '.join(_ISOLATION_LEVELS)}. {name}={level}")
    if len(set(levels.values())) > 1:
        raise InvalidConfig(f"one isolation level only, under one of the two names. {levels}")
    return READ_COMMITTED in levels.values()


def _snapshot(text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise InvalidConfig("the option snapshot is empty; name a snapshot, or leave it out")
    return None if text is None else text.strip()


def _group_id(text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise InvalidConfig("the option kafka.group.id is empty; name a group, or leave it out")
    return None if text is None else text.strip()


def include_headers(options: Mapping[str, str]) -> bool:
    """Return whether a read without a schema of its own has a column of headers.

    Raises:
        InvalidConfig: neither true nor false.
    """
    return _flag(_lowered(options), "includeHeaders", default=False)


def _parse(given: Mapping[str, str], default_start: int) -> SourceOptions:
    _check_names(given, (*KNOWN, *WITHOUT_EFFECT))
    _flag(given, "includeHeaders", default=False)
    at_most = _positive(given, "maxOffsetsPerTrigger")
    at_least = _positive(given, "minOffsetsPerTrigger")
    if at_least is not None and at_most is not None and at_least > at_most:
        raise InvalidConfig(
            f"The value of minOffsetsPerTrigger({at_least}) is higher than the "
            f"maxOffsetsPerTrigger({at_most})."
        )
    selection = _selection(given)
    return SourceOptions(
        root=parse_root(given.get("path")),
        selection=selection,
        starting=_limit(given, "starting", default_start),
        ending=_limit(given, "ending", LATEST),
        unmatched_start_is_latest=_unmatched_start_is_latest(given),
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
        far_timestamps_fail=_far_timestamps_fail(given),
        min_partitions=_positive(given, "minPartitions"),
        max_records_per_partition=_positive(given, "maxRecordsPerPartition"),
        max_offsets_per_trigger=at_most,
        min_offsets_per_trigger=at_least,
        max_trigger_delay_ms=_delay_ms(given.get("maxtriggerdelay")),
        include_unflushed=_flag(given, "includeUnflushed", default=True),
        bootstrap=parse_bootstrap(given.get("kafka.bootstrap.servers")),
        security=parse_security_options(given),
        committed_only=_committed_only(given),
        snapshot=_snapshot(given.get("snapshot")),
        group_id=_group_id(given.get("kafka.group.id")),
    )


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _check_names(given: Mapping[str, str], names: Iterable[str]) -> None:
    known = {name.lower(): name for name in names}
    for name in given:
        if name.startswith("kafka."):
            _check_consumer_setting(name.removeprefix("kafka."))
        elif name not in known:
            close = get_close_matches(name, known, n=2)
            hint = f"did you mean {' or '.join(known[c] for c in close)}?" if close else ""
            if name == "topic":
                hint = "it is an option of writes; read with subscribe."
            raise InvalidConfig(
                f"the sparklog source has no such option; {hint or 'it may be misspelt.'} "
                f"It knows {', '.join(KNOWN)} and kafka.*. option={name}"
            )


def _check_consumer_setting(name: str) -> None:
    if name in _REFUSED:
        raise InvalidConfig(f"Kafka option '{name}' is not supported: {_REFUSED[name]}.")


def _selection(given: Mapping[str, str]) -> Selection:
    specified = [name for name in STRATEGIES if name.lower() in given]
    if len(specified) != 1:
        how = "Only one" if specified else "One"
        verb = "can" if specified else "must"
        raise InvalidConfig(
            f"{how} of the following options {verb} be specified for sparklog source: "
            f"{', '.join(STRATEGIES)}. specified={specified}"
        )
    value = given[specified[0].lower()]
    if specified[0] == "assign":
        return Assign(parse_partitions(value))
    if specified[0] == "subscribe":
        topics = tuple(dict.fromkeys(t.strip() for t in value.split(",") if t.strip()))
        if not topics:
            raise InvalidConfig(
                f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'"
            )
        return Subscribe(topics)
    if not value.strip():
        raise InvalidConfig(
            "Pattern to subscribe is empty as specified value for option 'subscribePattern' is "
            f"'{value}'"
        )
    try:
        re.compile(value.strip())
    except re.error as error:
        raise InvalidConfig(
            f"not a regular expression: {error}. subscribePattern={value}"
        ) from None
    return SubscribePattern(value.strip())


def _limit(given: Mapping[str, str], end: str, default: int) -> OffsetLimit:
    return parse_limit(
        end,
        time=given.get(f"{end}timestamp"),
        times=given.get(f"{end}offsetsbytimestamp"),
        offsets=given.get(f"{end}offsets"),
        default=default,
    )


def _refuse_late_start(starting: OffsetLimit) -> None:
    if starting == Everywhere(LATEST):
        raise InvalidConfig("starting offset can't be latest for batch queries on sparklog")
    if isinstance(starting, AtOffsets):
        for place, offset in starting.offsets.items():
            if offset == LATEST:
                raise InvalidConfig(
                    f"startingOffsets for {place} can't be latest for batch queries on sparklog"
                )


def _refuse_early_end(ending: OffsetLimit) -> None:
    if ending == Everywhere(EARLIEST):
        raise InvalidConfig("ending offset can't be earliest for batch queries on sparklog")
    if isinstance(ending, AtOffsets):
        for place, offset in ending.offsets.items():
            if offset == EARLIEST:
                raise InvalidConfig(
                    f"ending offset for {place} can't be earliest for batch queries on sparklog"
                )


def _unmatched_start_is_latest(given: Mapping[str, str]) -> bool:
    word = given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if word not in ("error", "latest"):
        raise InvalidConfig(f"choose from error, latest. startingOffsetsByTimestampStrategy={word}")
    return word == "latest"


def _far_timestamps_fail(given: Mapping[str, str]) -> bool:
    word = given.get("fartimestamps", "").strip().lower()
    if word not in ("", "fail", "null"):
        raise InvalidConfig(f"choose from fail, null. farTimestamps={word}")
    return word == "fail" if word else _flag(given, "failOnDataLoss", default=True)


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    word = given.get(name.lower(), str(default)).strip().lower()
    if word not in ("true", "false"):
        raise InvalidConfig(f"choose from true, false. {name}={given[name.lower()]}")
    return word == "true"


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not re.fullmatch(r"\+?[0-9]{1,19}", text.strip()) or not 0 < int(text) <= LONG_MAX:
        raise InvalidConfig(f"{name} must be positive. {name}={text}")
    return int(text)


def _delay_ms(text: str | None) -> int:
    if text is None:
        return MAX_TRIGGER_DELAY_MS
    match = _DELAY.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidConfig(
            "a delay is a number with one of the units us, ms, s, m, h, d, for example 15m. "
            f"maxTriggerDelay={text}"
        )
    number, unit = int(match[1]), match[2] or "ms"
    return number // 1000 if unit == "us" else number * _DELAY_MS[unit]
