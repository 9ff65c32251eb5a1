"""The leaders of partitions that brokers serve: what they have beyond the segments.

An end is the high watermark, as a Kafka consumer sees it. Records below the end of the segments
are read from them; the rest is fetched from the leader, by offset. So neither a flush nor a new
leader in between makes a gap or a record twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from sparklog.cluster.metadata.image import MetadataImage
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import InvalidConfig, SparklogError, Unavailable
from sparklog.core.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.connections import BrokerConnections
    from sparklog.client.security import SecuritySettings
    from sparklog.client.values import ListedOffset

REQUEST_TIMEOUT_S: Final = 10.0
"""A broker that is silent for so long is asked again, or another one is."""
NO_BROKERS: Final = Unavailable(
    "brokers lead the topic, and none is registered; start brokers, name one that can be reached "
    "with the option kafka.bootstrap.servers, or read without what is not flushed yet with the "
    "option includeUnflushed=false"
)


class PartitionLeaders:
    """Asks the leaders of partitions. Keeps its connections; not for threads."""

    def __init__(
        self,
        bootstrap: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        committed_only: bool = False,
        security: SecuritySettings | None = None,
    ) -> None:
        """Find brokers at `bootstrap`, or else where the cluster's metadata says they are.

        Args:
            bootstrap: bootstrap servers.
            clock: for waits.
            committed_only: the ends are last stable offsets, not high watermarks.
            security: TLS and SASL; None takes those of the process.
        """
        self._security = security
        self.committed_only = committed_only
        self._bootstrap = bootstrap
        self._clock = clock
        self._brokers: BrokerConnections | None = None
        self._addresses = ""

    def ends(
        self, image: MetadataImage, places: Collection[TopicPartition], patience_s: float
    ) -> dict[TopicPartition, int | SparklogError]:
        """Return the ends, or why a partition's is not known after `patience_s`."""
        from sparklog.client.values import LATEST  # noqa: PLC0415 - as `_offsets`

        found = self._offsets(image, dict.fromkeys(places, LATEST), patience_s)
        return {
            place: answer if isinstance(answer, SparklogError) else answer.offset
            for place, answer in found.items()
        }

    def offset_at_time(
        self, image: MetadataImage, place: TopicPartition, timestamp_ms: int, patience_s: float
    ) -> int | None:
        """Return the first offset at or after a time, or None.

        Raises:
            SparklogError: the leader does not say.
        """
        answer = self._offsets(image, {place: timestamp_ms}, patience_s)[place]
        if isinstance(answer, SparklogError):
            raise answer
        return answer.offset if answer.offset >= 0 else None

    def addresses(self, image: MetadataImage) -> str:
        """Return brokers for a task to start from, as bootstrap servers."""
        return self._bootstrap or registered(image, self._security)

    def close(self) -> None:
        """Drop the connections."""
        if self._brokers is not None:
            self._brokers.close()
            self._brokers = None

    def _offsets(
        self, image: MetadataImage, wanted: Mapping[TopicPartition, int], patience_s: float
    ) -> Mapping[TopicPartition, ListedOffset | SparklogError]:
        # A query of topics without leaders shall start without a Kafka client.
        from sparklog.client.offsets import find_offsets  # noqa: PLC0415

        addresses = self.addresses(image)
        if not addresses:
            return dict.fromkeys(wanted, NO_BROKERS)
        if self._brokers is None or addresses != self._addresses:
            self.close()
            self._addresses = addresses
            self._brokers = connect_brokers(addresses, REQUEST_TIMEOUT_S, self._security)
        ids = {place.topic: image.topics[place.topic].topic_id for place in wanted}
        try:
            return find_offsets(
                self._brokers,
                wanted,
                self._clock,
                committed_only=self.committed_only,
                patience_s=patience_s,
                topic_ids=ids,
            )
        except Unavailable as error:
            return dict.fromkeys(wanted, error)


def connect_brokers(
    addresses: str, timeout_s: float, security: SecuritySettings | None
) -> BrokerConnections:
    """Return connections to bootstrap servers; nothing is sent yet.

    Args:
        addresses: bootstrap servers.
        timeout_s: limit for one response.
        security: TLS and SASL; None takes those of the process, see `process_security`.
    """
    from sparklog.client.addresses import bootstrap_addresses  # noqa: PLC0415 - as above
    from sparklog.client.connections import BrokerConnections  # noqa: PLC0415
    from sparklog.client.security import process_security  # noqa: PLC0415

    chosen = process_security() if security is None else security
    return BrokerConnections(bootstrap_addresses(addresses), timeout_s, chosen)


def registered(image: MetadataImage, security: SecuritySettings | None = None) -> str:
    """Return the brokers that the cluster's metadata names, as bootstrap servers; '' for none.

    Args:
        image: the metadata.
        security: chooses the listener by its protocol; None: as the process' settings do.

    Raises:
        InvalidConfig: the brokers have no listener with the protocol.
    """
    brokers = image.live_brokers()
    if not brokers:
        return ""
    from sparklog.client.addresses import BrokerAddress  # noqa: PLC0415 - as above
    from sparklog.client.security import CONFIG_VARIABLE, process_security  # noqa: PLC0415

    protocol = (process_security() if security is None else security).protocol
    found = [at for one in brokers if (at := one.with_protocol(protocol)) is not None]
    if not found:
        known = sorted({end.protocol for one in brokers for end in one.endpoints})
        raise InvalidConfig(
            "the brokers have no listener with this protocol: set security.protocol, in options "
            f"with the prefix kafka. or in the file that {CONFIG_VARIABLE} names. "
            f"security.protocol={protocol} protocols={','.join(known)}"
        )
    return ",".join(str(BrokerAddress(b.host, b.port)) for b in found)
