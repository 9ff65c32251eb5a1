"""Log: a whole log under one root, the registry and its partitions, without a server.

It does the I/O for `registry` (decisions), `image` (state) and `log` (partitions). Thread-safe.

The configuration of a partition's log, from its topic's settings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import RLock
from typing import Self

from sparklog.cluster.metadata import access_changes, broker_ids, snapshot
from sparklog.cluster.metadata import changes as client_quotas
from sparklog.cluster.metadata import changes as registry
from sparklog.cluster.metadata import records as codec
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.cluster.metadata.new_root import check_root_is_new
from sparklog.cluster.metadata.records import EVERY_BROKER, Record
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.config.model import understood_configs
from sparklog.core.config.topic import TOPIC_SETTINGS
from sparklog.core.counters import RequestCounters, Snapshot
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce, new_topic_id
from sparklog.core.errors import DataCorrupt, Unavailable, UnknownTopicOrPartition
from sparklog.core.quotas import Quotas, entity_of
from sparklog.core.types import Closeable, TimestampType
from sparklog.log.effects import Program, Result, run
from sparklog.log.layout import METADATA_TOPIC, METADATA_TOPIC_ID, PartitionLayout, topic_of_key
from sparklog.log.manifest.tombstone import deletable_objects, write_tombstone
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.partition_log import LogConfig, PartitionLog
from sparklog.security.acls import AclBinding, AclFilter, check_binding
from sparklog.security.sasl.credentials import ITERATIONS_MIN, ScramMechanism, new_credential
from sparklog.store.base import ObjectNotFound, ObjectStore
from sparklog.store.kept_ends import KeptEnds
from sparklog.store.open import open_store

_CODEC_OF = {
    # `producer` keeps the producer's codec on the wire; a direct append has no wire and uses lz4.
    "producer": "lz4",
    "lz4": "lz4",
    "zstd": "zstd",
    "uncompressed": "none",
    # Arrow bodies support two codecs; Kafka's other two map to the one with the same purpose.
    "gzip": "zstd",
    "snappy": "lz4",
}


def log_config(configs: Mapping[str, str]) -> LogConfig:
    """Return the log's configuration for a topic's stored `configs`; ignore unknown ones."""
    parsed = understood_configs(configs, TOPIC_SETTINGS)
    log_append = parsed.text("message.timestamp.type") == "LogAppendTime"
    return LogConfig(
        codec=_CODEC_OF[parsed.text("compression.type")],
        zstd_level=parsed.whole("compression.zstd.level"),
        max_message_bytes=parsed.whole("max.message.bytes"),
        timestamp_type=TimestampType.LOG_APPEND_TIME if log_append else TimestampType.CREATE_TIME,
        requires_keys="compact" in parsed.words("cleanup.policy"),
        indexes_keys=parsed.text("sparklog.key.index") == "bloom",
    )


READ_THREADS = 16
LOST_RACES_MAX = 1000

Decision = Callable[[MetadataImage], list[Record]]


class Log(Closeable):
    """Topics and partitions under one root."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        read_threads: int = READ_THREADS,
    ) -> None:
        """Use `store`, by up to `read_threads` reads at a time; nothing is read before that."""
        self.store = store
        self._clock = clock
        self._entropy = entropy
        self._pool = ThreadPoolExecutor(read_threads, "sparklog-read")
        self._lock = RLock()
        layout = PartitionLayout(METADATA_TOPIC, METADATA_TOPIC_ID, 0)
        self._metadata = PartitionLog(store, layout, clock=clock, entropy=entropy, pool=self._pool)
        self._image: MetadataImage | None = None
        self._snapshot_end = 0
        self._partitions: dict[tuple[str, int], tuple[Mapping[str, str], PartitionLog]] = {}

    @classmethod
    def open(
        cls, root: str, *, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY
    ) -> Self:
        """Open the log under `root` (`file://…`, a path, `s3://…`, `memory://…`); it may be empty.

        Raises:
            InvalidConfig: sparklog does not support this root. Unavailable: the store does not
                respond.
        """
        store = open_store(root, clock=clock, entropy=entropy, label_of=topic_of_key)
        return cls(store, clock=clock, entropy=entropy)

    def close(self) -> None:
        """Stop the threads and release the store's connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    def requests(self) -> Snapshot:
        """Return the requests of this process to the log's store so far."""
        counters: RequestCounters | None = getattr(self.store, "counters", None)
        return {} if counters is None else counters.snapshot()

    def run_program(self, program: Program[Result]) -> Result:
        """Run a program on the log's store, with several reads at a time. Raises as the program."""
        return run(program, self.store, self._pool)

    def refresh(self, *, probing: bool = False) -> MetadataImage:
        """Return the current registry.

        Cost: three listings. With `probing` one request if nothing has changed, for frequent
        callers; see `PartitionLog.probe`.
        """
        with self._lock:
            ends = KeptEnds(self.store)
            newest = None if self._image is not None else self._pool.submit(self._newest_snapshot)
            view = self._metadata.probe() if probing else self._metadata.view(through=ends)
            image = self._image
            if newest is not None:
                image, self._snapshot_end = newest.result()
            image = MetadataImage() if image is None else image
            if image.end_offset > view.end_offset and newest is not None:
                view = self._metadata.view(through=ends)  # the snapshot was listed later
            if image.end_offset > view.end_offset:
                raise DataCorrupt(
                    "the metadata log ends before its snapshot: objects at its end are gone; run "
                    f"verify. snapshot_end={image.end_offset} log_end_offset={view.end_offset} "
                    f"partition={view.layout.folder}"
                )
            for batch in self._metadata.read(
                image.end_offset, view.end_offset, ("value",), view=view, through=ends
            ):
                image = image.read_on(batch)
            self._image = image
            return image

    @property
    def known_image(self) -> MetadataImage | None:
        """Return the registry as it was at the last refresh, without a request."""
        return self._image

    def topics(self) -> Mapping[str, Topic]:
        """Return every topic, by name."""
        return self.refresh().topics

    def topic(self, name: str) -> Topic:
        """Return one topic.

        Raises:
            UnknownTopicOrPartition: no such topic.
        """
        return registry.known_topic(self.refresh(), name)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
        *,
        by_cluster: bool = False,
    ) -> Topic:
        """Create a topic; `by_cluster` one that holds the cluster's own state.

        Raises:
            InvalidTopic, TopicAlreadyExists, InvalidPartitions, InvalidConfig,
                InvalidReplicationFactor: see `registry`.
        """
        topic_id = new_topic_id(self._entropy)
        wanted = dict(configs or {})
        image = self._decide(
            lambda now: registry.create_topic(
                now,
                name,
                topic_id,
                partitions,
                wanted,
                replication_factor=replication_factor,
                by_cluster=by_cluster,
            )
        )
        return image.topics[name]

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its objects.

        The topic is deleted when the registry has the record. Objects that cannot be deleted now
        are orphans, which retention deletes later. Each partition keeps a tombstone manifest, so
        that a writer that missed the deletion fails. Objects in named snapshots stay until the
        snapshots are dropped.

        Raises:
            UnknownTopicOrPartition: no such topic. InvalidTopic: one of the cluster's own.
            DataCorrupt: deleted, but a snapshot's objects in it are unknown; run verify.
        """
        topic = self.topic(name)
        self._decide(lambda now: registry.delete_topic(now, name))
        with self._lock:
            for key in [k for k in self._partitions if k[0] == topic.topic_id]:
                del self._partitions[key]
        kept = list(self._pool.map(self._clear, topic.layouts()))
        if any(kept):
            raise DataCorrupt(f"the topic is deleted, but objects of it stay: {max(kept)}")

    def _clear(self, layout: PartitionLayout) -> str:
        """Publish a tombstone and delete a partition's objects; return why some stay, or ''."""
        tombstone = run(
            write_tombstone(PartitionView(layout), new_nonce(self._entropy)), self.store
        )
        doomed, problem = run(deletable_objects(layout, tombstone), self.store)
        for info in doomed:
            self.store.delete(info.key)
        return problem

    def add_partitions(self, name: str, total: int) -> Topic:
        """Grow a topic to `total` partitions.

        Raises:
            InvalidTopic, UnknownTopicOrPartition, InvalidPartitions: see `registry`.
        """
        return self._decide(lambda now: registry.add_partitions(now, name, total)).topics[name]

    def alter_configs(
        self, name: str, values: Mapping[str, str] | None = None, remove: Iterable[str] = ()
    ) -> Topic:
        """Change a topic's settings.

        Raises:
            UnknownTopicOrPartition, InvalidConfig: see `registry`.
        """
        wanted, removed = dict(values or {}), tuple(remove)
        image = self._decide(lambda now: registry.alter_configs(now, name, wanted, removed))
        return image.topics[name]

    def topic_defaults(self) -> Mapping[str, str]:
        """Return the settings for all topics, under brokers' names: `log.retention.ms`."""
        return dict(self.refresh().broker_configs.get(EVERY_BROKER, {}))

    def alter_topic_defaults(
        self, values: Mapping[str, str] | None = None, remove: Iterable[str] = ()
    ) -> None:
        """Change the defaults of all topics; a topic's own settings take precedence.

        Raises:
            InvalidConfig: see `registry`.
        """
        wanted, removed = dict(values or {}), tuple(remove)
        self._decide(lambda now: registry.alter_topic_defaults(now, wanted, removed))

    def client_quotas(self) -> Quotas:
        """Return the clients' quotas, by entity."""
        return self.refresh().client_quotas

    def alter_client_quotas(
        self, parts: Mapping[str, str | None], changes: Mapping[str, float | None]
    ) -> None:
        """Set some quotas of a client or user, and remove those whose value is None.

        Raises:
            InvalidRequest: see `core.client_quotas`.
        """
        entity = entity_of(parts)
        self._decide(lambda now: client_quotas.alter(now, entity, changes))

    def take_broker_ids(self, application: str, count: int) -> range:
        """Return `count` broker ids for an application; the same ones whenever it asks again.

        Raises:
            InvalidRequest: a bad name, or no ids are left.
        """
        image = self._decide(lambda now: broker_ids.take_ids(now, application, count))
        return broker_ids.ids_of(image, application)[:count]

    def users(self) -> Mapping[str, Mapping[ScramMechanism, int]]:
        """Return the users: for each name, the iterations of its credentials by mechanism."""
        return {
            name: {mechanism: one.iterations for mechanism, one in credentials.items()}
            for name, credentials in self.refresh().scram_credentials.items()
        }

    def set_password(
        self,
        user: str,
        password: str,
        mechanisms: Collection[ScramMechanism] = tuple(ScramMechanism),
        iterations: int = ITERATIONS_MIN,
    ) -> None:
        """Create a user or change a password; the log gets only keys that derive from it.

        A credential of a mechanism that is not among `mechanisms` keeps its password.
        Cost: a derivation for each mechanism, 1.5 to 20 ms.

        Raises:
            UnacceptableCredential: the name, the password or the iterations; see `credentials`.
        """
        made = {
            mechanism: new_credential(mechanism, password, self._entropy, iterations)
            for mechanism in mechanisms
        }

        def decide(now: MetadataImage) -> list[Record]:
            users = access_changes.UserChanges(now)
            return [r for m, credential in made.items() for r in users.set(user, m, credential)]

        self._decide(decide)

    def remove_password(
        self, user: str, mechanisms: Collection[ScramMechanism] | None = None
    ) -> None:
        """Delete a user's credentials, by default all of them; without any there is no user.

        Raises:
            ResourceNotFound: no such user, or not one of the mechanisms.
        """

        def decide(now: MetadataImage) -> list[Record]:
            users = access_changes.UserChanges(now)
            own = tuple(now.scram_credentials.get(user, ())) or tuple(ScramMechanism)
            removed = own if mechanisms is None else mechanisms
            return [record for one in removed for record in users.delete(user, one)]

        self._decide(decide)

    def acls(self, wanted: AclFilter | None = None) -> list[AclBinding]:
        """Return the ACLs that a filter matches, by default all, in the order of creation."""
        acls = self.refresh().acls.values()
        return [acl for acl in acls if wanted is None or wanted.matches(acl)]

    def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Create ACLs, all or none; those that exist stay as they are.

        Raises:
            InvalidRequest: an ACL that Kafka rejects, or the cluster would have too many.
        """
        named = {acl: new_topic_id(self._entropy) for acl in acls}
        for acl in named:
            check_binding(acl)

        def decide(now: MetadataImage) -> list[Record]:
            known = access_changes.NewAcls(now)
            return [r for acl, acl_id in named.items() for r in known.create(acl, acl_id)]

        self._decide(decide)

    def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete each ACL that one of the filters matches, and return the deleted ones."""
        given = list(filters)
        deletion = access_changes.AclDeletion(MetadataImage())

        def decide(now: MetadataImage) -> list[Record]:
            nonlocal deletion
            deletion = access_changes.AclDeletion(now)
            return [record for wanted in given for record in deletion.delete(wanted)[0]]

        self._decide(decide)
        return list(deletion.deleted.values())

    def partition(self, topic: str, partition: int) -> PartitionLog:
        """Return one partition's log; the same object for the same topic id and settings.

        Cost: no request if the topic is known, else a refresh of the registry.

        Raises:
            UnknownTopicOrPartition: no such topic or partition.
        """
        with self._lock:
            image = self._image
            known = image.topics.get(topic) if image is not None else None
            if known is None or not 0 <= partition < known.partitions:
                known = self.topic(topic)
            if not 0 <= partition < known.partitions:
                raise UnknownTopicOrPartition(
                    "no such partition. "
                    f"topic={topic} partition={partition} partitions={known.partitions}"
                )
            return self._partition(known, partition)

    def expected_partition(self, layout: PartitionLayout) -> PartitionLog:
        """Return the log of a partition that the registry may not have. For reads only."""
        return PartitionLog(
            self.store, layout, clock=self._clock, entropy=self._entropy, pool=self._pool
        )

    def _partition(self, topic: Topic, partition: int) -> PartitionLog:
        key = (topic.topic_id, partition)
        configs, found = self._partitions.get(key, (None, None))
        if found is None or configs != topic.settings:
            found = PartitionLog(
                self.store,
                PartitionLayout(topic.name, topic.topic_id, partition),
                log_config(topic.settings),
                clock=self._clock,
                entropy=self._entropy,
                pool=self._pool,
            )
            self._partitions[key] = (topic.settings, found)
        return found

    def _decide(self, decision: Decision) -> MetadataImage:
        """Append the records of `decision` on the newest image; repeat after a lost race."""
        with self._lock:
            for _ in range(LOST_RACES_MAX):
                image = self.refresh()
                made = decision(image)
                if not made:
                    return image
                if not image.end_offset:
                    run(check_root_is_new(), self.store)
                done = self._metadata.append_at([codec.encode(made)], image.end_offset)
                if done is not None:
                    self._image = image.applied(made, done.end_offset)
                    self._take_snapshot(self._image)
                    return self._image
        raise Unavailable(f"lost too many races for the metadata log. races={LOST_RACES_MAX}")

    def _take_snapshot(self, image: MetadataImage) -> None:
        if not snapshot.is_due(image, self._snapshot_end):
            return
        layout = self._metadata.layout
        key = layout.key(layout.snapshot_name(image.end_offset))
        self.store.put(key, snapshot.encode(image))
        self._snapshot_end = image.end_offset

    def _newest_snapshot(self) -> tuple[MetadataImage | None, int]:
        """Return the image of the newest snapshot and its end, or None and 0."""
        layout = self._metadata.layout
        ends = [layout.snapshot_end(i.key) for i in self.store.list(layout.snapshot_prefix)]
        for end in sorted((e for e in ends if e is not None), reverse=True):
            try:
                image = snapshot.decode(self.store.get(layout.key(layout.snapshot_name(end))), end)
            except ObjectNotFound:
                continue
            if image is not None:
                return image, end
        return None, 0


open_log = Log.open
