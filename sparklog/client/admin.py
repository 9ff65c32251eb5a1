"""Admin: administers a cluster of brokers, as `Log` does for a root without brokers.

    with Admin("localhost:9092") as admin:
        admin.create_topic("flights", partitions=3)

Methods and values are those of `sparklog.Log`, so code can use either. Any reachable broker may
handle a request, so it works while others are down. librdkafka's admin client instead waits for the
last known controller. Not thread-safe. Source: KIP-4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sparklog.client.access import (
    drop_credentials,
    make_acls,
    put_credentials,
    read_acls,
    read_users,
    remove_acls,
)
from sparklog.client.addresses import TIMEOUT_S, bootstrap_addresses
from sparklog.client.configs import (
    change_configs,
    change_quotas,
    groups_with_configs,
    read_configs,
    read_creators,
    read_quotas,
)
from sparklog.client.connections import BrokerConnections
from sparklog.client.features import FeatureLevels, describe_features, finalize_feature
from sparklog.client.groups import Groups
from sparklog.client.metadata import read_metadata
from sparklog.client.offsets import delete_before, find_offsets
from sparklog.client.security import SecuritySettings
from sparklog.client.share_groups import ShareGroupAdmin
from sparklog.client.tokens import (
    AT_ONCE_MS,
    BROKERS_LIMIT_MS,
    create_token,
    expire_token,
    read_tokens,
    renew_token,
)
from sparklog.client.topics import (
    Assignment,
    LogDir,
    Reassignment,
    add_partitions,
    create_topic,
    delete_topic,
    elect,
    list_moves,
    move,
    read_log_dirs,
)
from sparklog.client.transactions import TransactionAdmin
from sparklog.client.values import (
    ConfigResource,
    ConfigValue,
    Election,
    ListedOffset,
    ServingBroker,
)
from sparklog.cluster.metadata.image import Topic
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY
from sparklog.core.errors import SparklogError, UnknownTopicOrPartition
from sparklog.core.quotas import Quotas
from sparklog.core.types import Closeable, TopicPartition
from sparklog.protocol.api_keys import Api
from sparklog.security.acls import AclBinding, AclFilter, check_binding
from sparklog.security.principal import Principal
from sparklog.security.sasl.credentials import ITERATIONS_MIN, ScramMechanism, salted
from sparklog.security.sasl.delegation_tokens import IssuedToken

JOIN_GROUP: Final = 11
ASKED_AGAIN_S: Final = 0.05
"""A broker may learn of a new topic shortly after another one created it."""


class Admin(Closeable):
    """Administers the cluster behind `bootstrap_servers`. A context manager."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        settings: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare the connections; nothing is sent yet.

        Args:
            bootstrap_servers: brokers to start from, as `host:port,host:port`.
            settings: `security.protocol`, `sasl.*` and `ssl.*` by Kafka's names.
            timeout_s: limit for one response.
            clock: for waits.

        Raises:
            InvalidRequest: not host:port,host:port. InvalidConfig: an unknown setting.
        """
        self._brokers = BrokerConnections(
            bootstrap_addresses(bootstrap_servers), timeout_s, SecuritySettings(settings)
        )
        self._clock = clock
        self.groups = Groups(self._brokers, clock)
        self.share_groups = ShareGroupAdmin(self._brokers, self.groups, clock)
        self.transactions = TransactionAdmin(self._brokers, clock)

    def close(self) -> None:
        """Close the connections. Repeated calls have no effect."""
        self._brokers.close()

    def brokers(self) -> list[ServingBroker]:
        """Return the live brokers, by id.

        Raises:
            Unavailable: no broker responds.
        """
        return sorted(read_metadata(self._brokers, ()).brokers.values())

    def cluster_id(self) -> str | None:
        """Return the cluster's id. Raises as `brokers`."""
        return read_metadata(self._brokers, ()).cluster_id

    def offers_groups(self) -> bool:
        """Return True if brokers coordinate consumer groups. Raises as `brokers`."""
        return self._brokers.offers(JOIN_GROUP)

    def offers_share_groups(self) -> bool:
        """Return True if brokers coordinate share groups. Raises as `brokers`."""
        return self._brokers.offers(Api.SHARE_GROUP_DESCRIBE)

    def topic_names(self) -> list[str]:
        """Return the names of all topics, sorted. Raises as `brokers`."""
        return sorted(read_metadata(self._brokers).topics)

    def listed_topics(self, names: Sequence[str] | None = None) -> Mapping[str, Topic]:
        """Return some topics, or all, by name and without settings; unknown ones are missing.

        Raises as `brokers`; TopicAuthorizationFailed for a given name. Cost: 1 request.
        """
        return read_metadata(self._brokers, names).topics

    def listed_topic(self, name: str) -> Topic:
        """Return a topic without settings, which a principal with Read alone may not see.

        Raises:
            UnknownTopicOrPartition: no such topic. Others as `listed_topics`.
        """
        found = self.listed_topics([name]).get(name)
        if found is None:
            raise UnknownTopicOrPartition(f"no such topic. topic={name}")
        return found

    def topics(self) -> Mapping[str, Topic]:
        """Return every topic with its settings, by name. Raises as `brokers`. Cost: 2 requests."""
        return self._described(None)

    def topic(self, name: str) -> Topic:
        """Return one topic with its settings.

        Raises:
            UnknownTopicOrPartition: no such topic. Unavailable: no broker responds.
        """
        found = self._described([name])
        if name not in found:
            raise UnknownTopicOrPartition(f"no such topic. topic={name}")
        return found[name]

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
        assignment: Assignment | None = None,
    ) -> Topic:
        """Create a topic; omitted values are the cluster's defaults.

        Raises:
            TopicAlreadyExists, InvalidTopic, InvalidPartitions, InvalidConfig, InvalidRequest.
            OutcomeUnknown: no response. Unavailable: no broker got the request.
        """
        create_topic(self._brokers, name, partitions, configs or {}, replication_factor, assignment)
        deadline_s = self._clock.monotonic_s() + self._brokers.timeout_s
        while True:
            try:
                return self.topic(name)
            except UnknownTopicOrPartition:
                if self._clock.monotonic_s() >= deadline_s:
                    raise
                self._clock.sleep_s(ASKED_AGAIN_S)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records.

        Raises:
            UnknownTopicOrPartition: no such topic. OutcomeUnknown, Unavailable.
        """
        delete_topic(self._brokers, name)

    def add_partitions(self, name: str, total: int, assignment: Assignment | None = None) -> None:
        """Grow a topic to `total` partitions; `assignment` places the new ones.

        Raises:
            UnknownTopicOrPartition, InvalidPartitions, InvalidRequest, OutcomeUnknown, Unavailable.
        """
        add_partitions(self._brokers, name, total, assignment)

    def configs(self, kind: ConfigResource, names: Sequence[str]) -> dict[str, list[ConfigValue]]:
        """Return all settings of topics, brokers or groups, defaults included, by their names.

        Raises:
            UnknownTopicOrPartition: no such topic. InvalidRequest: no such broker. Unavailable.
        """
        return read_configs(self._brokers, kind, names) if names else {}

    def topic_creators(self, names: Sequence[str]) -> dict[str, str]:
        """Return the principal that created each topic, such as `User:alice`.

        A topic is left out if its creator is unknown, or if the client may not see its settings.

        Raises:
            Unavailable: no broker responds.
        """
        return read_creators(self._brokers, names) if names else {}

    def alter_configs(
        self,
        name: str,
        values: Mapping[str, str] | None = None,
        remove: Iterable[str] = (),
        *,
        kind: ConfigResource = ConfigResource.TOPIC,
    ) -> None:
        """Set some settings of a topic, broker or group, and reset those in `remove` to defaults.

        Raises:
            UnknownTopicOrPartition, InvalidConfig, OutcomeUnknown, Unavailable.
        """
        change_configs(self._brokers, kind, name, values or {}, remove)

    def groups_with_configs(self) -> list[str]:
        """Return the groups that have settings of their own, sorted.

        Raises:
            InvalidRequest: the brokers do not support this call. Unavailable: no broker responds.
        """
        return groups_with_configs(self._brokers)

    def client_quotas(self) -> Quotas:
        """Return the configured quotas, which hold at each broker, by entity.

        Raises:
            InvalidRequest: the brokers do not support this call. Unavailable: no broker responds.
        """
        return read_quotas(self._brokers)

    def alter_client_quotas(
        self, parts: Mapping[str, str | None], changes: Mapping[str, float | None]
    ) -> None:
        """Set some quotas of a client or user, and remove those whose value is None.

        Args:
            parts: a name of type `client-id`, `user` or both; None stands for all others.
            changes: by the names in `core.quotas`; the bytes or partitions per second.

        Raises:
            InvalidRequest, OutcomeUnknown, Unavailable.
        """
        change_quotas(self._brokers, parts, changes)

    def users(self) -> dict[str, dict[ScramMechanism, int]]:
        """Return the users: for each name, the iterations of its credentials by mechanism.

        Raises:
            InvalidRequest: not allowed, or not supported. Unavailable: no broker responds.
        """
        return read_users(self._brokers)

    def set_password(
        self,
        user: str,
        password: str,
        mechanisms: Collection[ScramMechanism] = tuple(ScramMechanism),
        iterations: int = ITERATIONS_MIN,
    ) -> None:
        """Create a user or change a password. The brokers get a salted derivation of it.

        Each mechanism is one request, so an error may leave the first ones changed. The derivation
        is as good as the password: send it with TLS.

        Raises:
            UnacceptableCredential: a wrong name, password or number of iterations.
            InvalidRequest: not allowed. OutcomeUnknown, Unavailable.
        """
        made = {one: salted(one, password, SYSTEM_ENTROPY, iterations) for one in mechanisms}
        put_credentials(self._brokers, user, made)

    def remove_password(
        self, user: str, mechanisms: Collection[ScramMechanism] | None = None
    ) -> None:
        """Delete a user's credentials, by default all of them, each by one request.

        Raises:
            ResourceNotFound: no such user, or not one of the mechanisms.
            InvalidRequest: not allowed. OutcomeUnknown, Unavailable.
        """
        drop_credentials(self._brokers, user, mechanisms)

    def acls(self, wanted: AclFilter | None = None) -> list[AclBinding]:
        """Return the ACLs that a filter matches, by default all.

        Raises:
            SecurityDisabled: the brokers have no authorizer. InvalidRequest: not allowed.
            Unavailable: no broker responds.
        """
        return read_acls(self._brokers, AclFilter() if wanted is None else wanted)

    def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Create ACLs; those that exist stay as they are.

        Raises:
            SecurityDisabled: the brokers have no authorizer.
            InvalidRequest: an ACL that Kafka rejects, or not allowed; others may be created.
            OutcomeUnknown, Unavailable.
        """
        given = list(acls)
        for acl in given:
            check_binding(acl)
        make_acls(self._brokers, given)

    def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete each ACL that one of the filters matches, and return the deleted ones.

        Raises:
            SecurityDisabled: the brokers have no authorizer. InvalidRequest: not allowed.
            OutcomeUnknown, Unavailable.
        """
        return remove_acls(self._brokers, list(filters))

    def create_token(
        self,
        owner: Principal | None = None,
        renewers: Iterable[Principal] = (),
        lifetime_ms: int = BROKERS_LIMIT_MS,
    ) -> IssuedToken:
        """Create a delegation token of `owner`, by default of the user that this client logs in as.

        Args:
            owner: the principal of those who log in by the token.
            renewers: principals that may renew and expire it, as its owner may.
            lifetime_ms: its longest life with all renewals; the brokers have a limit.

        Raises:
            DelegationTokenError: the brokers have no tokens, or this client may not create it.
            OutcomeUnknown, Unavailable.
        """
        return create_token(self._brokers, owner, renewers, lifetime_ms)

    def tokens(self, owners: Iterable[Principal] | None = None) -> list[IssuedToken]:
        """Return the delegation tokens of some owners, or all, that this client may see.

        Raises:
            DelegationTokenError: as `create_token`. Unavailable: no broker responds.
        """
        return read_tokens(self._brokers, owners)

    def renew_token(self, token_hmac: bytes, period_ms: int = BROKERS_LIMIT_MS) -> int:
        """Renew a delegation token; return its new expiry in ms since the Unix epoch.

        Raises:
            DelegationTokenError: it is unknown or expired, or this client may not renew it.
            OutcomeUnknown, Unavailable.
        """
        return renew_token(self._brokers, token_hmac, period_ms)

    def expire_token(self, token_hmac: bytes, period_ms: int = AT_ONCE_MS) -> int:
        """Let a delegation token expire `period_ms` from now, by default remove it at once.

        Returns:
            The new expiry in ms since the Unix epoch; the period itself if the token is removed.

        Raises:
            As `renew_token`.
        """
        return expire_token(self._brokers, token_hmac, period_ms)

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, ListedOffset | SparklogError]:
        """Return an offset per partition: EARLIEST, LATEST, MAX_TIMESTAMP, or by a time in ms.

        A time gives the first record from it on, or -1 if no record is that new. `committed_only`
        stops at open transactions.

        Raises:
            Unavailable: no broker responds at all.
        """
        return find_offsets(self._brokers, wanted, self._clock, committed_only=committed_only)

    def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | SparklogError]:
        """Delete records before an offset of each partition (-1: all); return the new log starts.

        Raises:
            Unavailable: no broker responds at all.
        """
        return delete_before(self._brokers, before, self._clock)

    def elect_leaders(
        self, election: Election, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, bool | SparklogError]:
        """Elect leaders of some partitions, or of all.

        Returns:
            Per partition True for a new leader, False if the right one leads already, or an error.

        Raises:
            OutcomeUnknown, Unavailable.
        """
        return elect(self._brokers, election, partitions)

    def reassignments(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the running reassignments of some partitions, or of all.

        Raises:
            InvalidRequest: the brokers do not support this call. Unavailable: no broker responds.
        """
        return list_moves(self._brokers, partitions)

    def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, SparklogError | None]:
        """Start to move partitions to these replicas; None cancels a reassignment.

        Returns:
            Per partition None if the reassignment has begun (or ended), else the error.

        Raises:
            InvalidRequest, OutcomeUnknown, Unavailable.
        """
        return move(self._brokers, wanted)

    def log_dirs(self, broker: ServingBroker) -> list[LogDir]:
        """Return one broker's log directories with the replicas in them.

        Raises:
            InvalidRequest, OutcomeUnknown, Unavailable.
        """
        return read_log_dirs(self._brokers, broker.address)

    def features(self) -> list[FeatureLevels]:
        """Return the levels of features that brokers support and have finalized.

        Raises:
            Unavailable: no broker responds.
        """
        return describe_features(self._brokers)

    def finalize_feature(self, name: str, level: int) -> None:
        """Finalize the level of a feature, which cannot be undone.

        Raises:
            InvalidRequest: the cluster cannot have the level now. OutcomeUnknown, Unavailable.
        """
        finalize_feature(self._brokers, name, level)

    def _described(self, names: Sequence[str] | None) -> dict[str, Topic]:
        found = read_metadata(self._brokers, names).topics
        try:
            configs = self.configs(ConfigResource.TOPIC, sorted(found))
        except UnknownTopicOrPartition:  # a topic was deleted in between
            found = read_metadata(self._brokers, names).topics
            configs = self.configs(ConfigResource.TOPIC, sorted(found))
        return {
            name: replace(topic, configs=_explicit(configs[name])) for name, topic in found.items()
        }


def _explicit(configs: Iterable[ConfigValue]) -> dict[str, str]:
    return {c.name: c.value for c in configs if c.set_here and c.value is not None}
