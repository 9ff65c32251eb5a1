"""The login of a listener with SASL: its mechanisms, its users, and how long a session lasts.

PLAIN and SCRAM have the users of the metadata log, and SCRAM has its delegation tokens, if there is
a `delegation.token.secret.key`. Brokers log in to each other by SCRAM as
`__sparklog_broker`; its password comes from the cluster's secret, which no client can read.

  LOGIN-1: passwords in clear text are accepted with TLS only, unless a setting says otherwise
  LOGIN-2: a user that is removed cannot log in; sessions that have begun end at their time

Source: KIP-43, KIP-84, KIP-368.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from sparklog.broker.network.kerberos import KerberosLogin
from sparklog.broker.network.listeners import Endpoint
from sparklog.broker.network.token_keys import TokenKeys
from sparklog.broker.runtime.token_secrets import token_secrets_of
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.core.clock import Clock
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.config.providers import SecretReader
from sparklog.core.config.security import setting_in_force
from sparklog.core.entropy import Entropy
from sparklog.core.errors import InvalidConfig
from sparklog.security.jaas import PLAIN_MODULE, read_jaas
from sparklog.security.sasl.client import OAUTHBEARER, PLAIN, SaslLogin
from sparklog.security.sasl.credentials import (
    ITERATIONS_MIN,
    SCRAM_NAMES,
    CredentialStore,
    ScramCredential,
    ScramCredentials,
    ScramMechanism,
    credential_of,
)
from sparklog.security.sasl.gssapi import GSSAPI
from sparklog.security.sasl.mechanism import SaslServer
from sparklog.security.sasl.plain import PlainServer
from sparklog.security.sasl.scram import ScramServer, TokenStore, new_scram_nonce

BROKER_USER: Final = "__sparklog_broker"
"""The user as which brokers log in to each other."""
BROKER_MECHANISM: Final = ScramMechanism.SHA_256
_STATIC_USER: Final = "user_"


def broker_login(secret: str) -> SaslLogin:
    """Return the login of a broker at another one."""
    return SaslLogin(BROKER_MECHANISM.sasl_name, BROKER_USER, _broker_password(secret))


def _broker_password(secret: str) -> str:
    return hmac.digest(secret.encode(), b"broker login", "sha256").hex()


@lru_cache(4)
def _broker_credential(secret: str) -> ScramCredential:
    salt = hmac.digest(secret.encode(), b"broker salt", "sha256")
    password = _broker_password(secret)
    salted = BROKER_MECHANISM.salted_password(password, salt, ITERATIONS_MIN)
    return credential_of(BROKER_MECHANISM, salt, salted, ITERATIONS_MIN)


@dataclass(frozen=True, slots=True)
class LoginTools:
    """The parts of a broker that a login needs."""

    image: Callable[[], Awaitable[MetadataImage]]
    """Returns the newest image; waits until the broker has read the metadata log."""
    clock: Clock
    entropy: Entropy


class ListenerLogin:
    """The login of one listener."""

    def __init__(self, config: BrokerConfig, listener: Endpoint, tools: LoginTools) -> None:
        """Read the settings.

        Raises:
            InvalidConfig: a setting cannot be used; the message names it.
        """
        self.listener = listener
        self.clock = tools.clock
        self._tools = tools
        self._config = config
        self._users: CredentialStore | None = None
        self._seen: tuple[ScramCredentials, str] = ({}, "")
        """The users and the secret that `_users` is made of."""
        self._static_users: Mapping[str, str] = {}
        self._secret = tools.entropy.random_bytes(32)
        """Keys the hashes of passwords that were checked."""
        self.receive_bytes_max = config.whole(self._name("sasl.server.max.receive.size"))
        """Largest request before a client has logged in, in bytes."""
        self.failure_delay_s = config.whole("connection.failed.authentication.delay.ms") / 1000
        self._token_secrets = token_secrets_of(config)
        self._mechanisms = config.words(self._name("sasl.enabled.mechanisms"))
        self._check_mechanisms()
        self.token_keys = (
            TokenKeys(config, listener, tools.clock) if OAUTHBEARER in self._mechanisms else None
        )
        """The keys of bearer tokens, whose task the caller runs; None without OAUTHBEARER."""
        self._kerberos = KerberosLogin(config, listener) if GSSAPI in self._mechanisms else None

    def max_reauth_ms(self, mechanism: str) -> int:
        """Return the longest session of a login by a mechanism, in ms; 0 has no end."""
        return self._config.whole(self._name("connections.max.reauth.ms", mechanism))

    async def mechanisms(self) -> Mapping[str, Callable[[], SaslServer]]:
        """Return the makers of an exchange by mechanism, for the users as they are now."""
        image = await self._tools.image()
        users = self._store_of(image)
        secrets = self._token_secrets
        tokens = None if secrets is None else TokenStore(image.tokens, secrets)
        makers: dict[str, Callable[[], SaslServer]] = {}
        for name in self._mechanisms:
            if name in SCRAM_NAMES:
                makers[name] = partial(self._scram, SCRAM_NAMES[name], users, tokens)
            elif name == PLAIN:
                makers[name] = partial(PlainServer, users, self._static_users, self._secret)
            elif name == GSSAPI and self._kerberos is not None:
                makers[name] = self._kerberos.exchange
            elif self.token_keys is not None:
                makers[name] = await self.token_keys.maker()
        if self.listener.is_inter_broker and BROKER_MECHANISM.sasl_name not in makers:
            brokers = CredentialStore({BROKER_USER: users.users[BROKER_USER]}, users.secret)
            makers[BROKER_MECHANISM.sasl_name] = partial(self._scram, BROKER_MECHANISM, brokers)
        return makers

    def _scram(
        self, mechanism: ScramMechanism, users: CredentialStore, tokens: TokenStore | None = None
    ) -> ScramServer:
        return ScramServer(mechanism, users, new_scram_nonce(self._tools.entropy), tokens)

    def _store_of(self, image: MetadataImage) -> CredentialStore:
        """Return the users of an image and the brokers' user; made anew when they change."""
        seen = (image.scram_credentials, image.cluster_secret)
        kept = self._users
        if kept is None or seen[0] is not self._seen[0] or seen[1] != self._seen[1]:
            brokers = {BROKER_MECHANISM: _broker_credential(image.cluster_secret)}
            users = {**image.scram_credentials, BROKER_USER: brokers}
            kept = self._users = CredentialStore(users, image.cluster_secret.encode())
            self._seen = seen
        return kept

    def _check_mechanisms(self) -> None:
        where = f"listener={self.listener.name}"
        if not self._mechanisms:
            raise InvalidConfig(f"a listener with SASL needs sasl.enabled.mechanisms. {where}")
        if PLAIN not in self._mechanisms:
            return
        cleartext = self._name("sparklog.sasl.plain.allow.cleartext", PLAIN)
        if not self.listener.protocol.tls and not self._config.flag(cleartext):
            raise InvalidConfig(
                "PLAIN sends passwords in clear text: use SASL_SSL, or set "
                f"sparklog.sasl.plain.allow.cleartext=true on a network that you trust. {where}"
            )
        self._static_users = self._static_users_of_plain()

    def _static_users_of_plain(self) -> dict[str, str]:
        name = self._name("sasl.jaas.config", PLAIN)
        text = self._config.text(name)
        if not text.strip():
            return {}
        login = read_jaas(text, name, PLAIN_MODULE, PLAIN, SecretReader().value)
        return {
            option.removeprefix(_STATIC_USER): value
            for option, value in login.options.items()
            if option.startswith(_STATIC_USER)
        }

    def _name(self, name: str, mechanism: str = "") -> str:
        return setting_in_force(self._config, name, self.listener.name, mechanism)
