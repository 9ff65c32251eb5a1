"""Access of HTTP's users to topics: everyone alike, or each user with rights of their own.

With logins on a root, users are those of the log. If the log has ACLs, they decide, as at brokers.
At brokers each user logs in there, so the brokers' ACLs decide.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from sparklog.client.security import SecuritySettings, with_login
from sparklog.cluster.log import Log
from sparklog.core.counters import RequestCount
from sparklog.core.errors import SaslAuthenticationFailed, UnknownTopicOrPartition
from sparklog.registry.schema_source import SchemaSource
from sparklog.security.acls import AclOperation, ResourceType
from sparklog.security.authorizer import Authorizer
from sparklog.security.principal import USER, Principal
from sparklog.security.sasl.password_check import PasswordCheck
from sparklog.sql.databases import Databases
from sparklog.sql.topics import BrokerTopics, Chosen, Moment, RootTopics, States, TopicReader
from sparklog.store.kept_ends import KeptEnds

CREDENTIAL_CHARS_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class BasicLogin:
    """A user and a password."""

    name: str
    password: str = field(repr=False)


def basic_login(header: str | None) -> BasicLogin | None:
    """Return the login of an `Authorization` header, or None without a readable one."""
    scheme, _, text = (header or "").partition(" ")
    if scheme.lower() != "basic" or len(text) > 2 * CREDENTIAL_CHARS_MAX:
        return None
    try:
        name, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return BasicLogin(name, password) if colon and name else None


class TopicAccess(Protocol):
    """Opens the topics that a user may read. Thread-safe."""

    needs_login: bool

    def opened(self, login: BasicLogin | None, host: str) -> AbstractContextManager[TopicReader]:
        """Open the topics for one request; a context manager.

        Args:
            login: of the request; None only if none is needed.
            host: the client's address.

        Raises:
            SaslAuthenticationFailed: a wrong user or password. Unavailable: try again.
        """


class OpenAccess:
    """Everyone reads all topics."""

    needs_login = False

    def __init__(self, topics: TopicReader) -> None:
        """Read `topics`, which the caller closes."""
        self._topics = topics

    @contextmanager
    def opened(self, login: BasicLogin | None, host: str) -> Iterator[TopicReader]:
        """See `TopicAccess`."""
        yield self._topics


class RootAccess:
    """Users of the log under a root."""

    needs_login = True

    def __init__(self, topics: RootTopics, log: Log) -> None:
        """Read `topics` of `log`, which the caller closes."""
        self._topics = topics
        self._log = log
        self._check = PasswordCheck(lambda: log.refresh().scram_credentials)

    @contextmanager
    def opened(self, login: BasicLogin | None, host: str) -> Iterator[TopicReader]:
        """See `TopicAccess`."""
        if login is None:
            raise SaslAuthenticationFailed("a user and a password are needed")
        self._check.check(login.name, login.password)
        acls = self._log.refresh().acls
        if not acls:
            yield self._topics
            return
        authorizer = Authorizer(acls.values())
        principal = Principal(USER, login.name)

        def may_read(topic: str) -> bool:
            return authorizer.authorize(
                principal, host, AclOperation.READ, ResourceType.TOPIC, topic
            ).allowed

        yield AllowedTopics(self._topics, may_read)


class BrokerAccess:
    """Users of brokers: each request logs in at them."""

    needs_login = True

    def __init__(
        self,
        bootstrap: str,
        settings: Mapping[str, str],
        *,
        committed_only: bool,
        schema_registry: str | None,
    ) -> None:
        """Connect to `bootstrap` with `settings`, and each user's name and password."""
        self._bootstrap = bootstrap
        self._settings = dict(settings)
        self._committed_only = committed_only
        self._schema_registry = schema_registry

    def settings_of(self, login: BasicLogin) -> dict[str, str]:
        """Return the client's settings for a user."""
        return with_login(self._settings, login.name, login.password)

    @contextmanager
    def opened(self, login: BasicLogin | None, host: str) -> Iterator[TopicReader]:
        """See `TopicAccess`."""
        if login is None:
            raise SaslAuthenticationFailed("a user and a password are needed")
        with BrokerTopics(
            self._bootstrap,
            committed_only=self._committed_only,
            settings=self.settings_of(login),
            schema_registry=self._schema_registry,
        ) as topics:
            yield topics


class AllowedTopics:
    """Those topics of a root that a user may read; others do not exist."""

    def __init__(self, topics: RootTopics, may_read: Callable[[str], bool]) -> None:
        """Show the topics of `topics` for which `may_read` returns True."""
        self._topics = topics
        self._may_read = may_read
        self.committed_only: bool = topics.committed_only
        self.security: SecuritySettings | None = topics.security
        self.log: Log | None = topics.log
        self.pool: Executor = topics.pool
        self.databases: Databases = topics.databases

    def names(self) -> list[str]:
        """Return the names of the topics, sorted."""
        return [name for name in self._topics.names() if self._may_read(name)]

    def states(
        self,
        topic: str,
        moment: Moment,
        chosen: Chosen = None,
        through: KeptEnds | None = None,
    ) -> States:
        """Return what each partition holds. Raises as `TopicReader.states`."""
        self._check(topic)
        return self._topics.states(topic, moment, chosen, through)

    def _check(self, topic: str) -> None:
        if not self._may_read(topic):
            raise UnknownTopicOrPartition(f"no such topic. topic={topic}")

    def schemas(self) -> SchemaSource:
        """Return the schema registry. Raises as `TopicReader.schemas`."""
        return self._topics.schemas()

    def counted(self) -> RequestCount:
        """Return the requests to the store and the bytes so far, of all users together."""
        return self._topics.counted()
