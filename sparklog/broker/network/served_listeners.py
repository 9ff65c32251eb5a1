"""Makes the listeners of a broker ready to serve: TLS, logins, and the way to other brokers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from sparklog.broker.network.broker_client import PeerAccess
from sparklog.broker.network.client_login import ClientLogin
from sparklog.broker.network.connection_gate import ConnectionGate, no_handshake
from sparklog.broker.network.listeners import Endpoint, advertised_of, listeners_of
from sparklog.broker.network.login import ListenerLogin, LoginTools, broker_login
from sparklog.broker.network.login_checks import LoginChecks
from sparklog.broker.network.server import ServedListener, Server
from sparklog.broker.network.service import ListenerAccess, anonymous
from sparklog.broker.network.tls import ListenerTls
from sparklog.broker.runtime.environment import Address, Compute, spawn
from sparklog.cluster.metadata.records import BrokerEndpoint
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.config.security import setting_in_force
from sparklog.core.errors import InvalidConfig
from sparklog.security.distinguished_name import PrincipalRules, subject_name
from sparklog.security.principal import ANONYMOUS, USER, Principal
from sparklog.security.protocol import SecurityProtocol
from sparklog.security.sasl.client import SaslLogin


@dataclass(frozen=True, slots=True)
class AdvertisedAddresses:
    """The addresses of a broker whose listeners are open."""

    inter_broker: Address
    """By which other brokers reach it."""
    bound: Address
    """The address at which it listens for other brokers."""
    endpoints: tuple[BrokerEndpoint, ...]
    """All listeners; empty for a single plain one, which needs no description."""


class BrokerListeners:
    """All listeners of one broker."""

    def __init__(self, config: BrokerConfig, tools: LoginTools, compute: Compute) -> None:
        """Read the settings, certificates and keys.

        Raises:
            InvalidConfig: a setting or a file cannot be used; the message names it.
        """
        self._config = config
        self._checks = LoginChecks(compute)
        self._listeners = listeners_of(config)
        self._tls = {one.name: ListenerTls(config, one) for one in self._listeners
                     if one.protocol.tls}  # fmt: skip
        self._logins = {one.name: ListenerLogin(config, one, tools) for one in self._listeners
                        if one.protocol.sasl}  # fmt: skip
        self._tasks: list[asyncio.Task[None]] = []
        self._principals = {one.name: self._principal_of(one) for one in self._listeners}

    @property
    def _inter_broker(self) -> Endpoint:
        return next(one for one in self._listeners if one.is_inter_broker)

    def peer_access(self, secret: Callable[[], str] | None) -> PeerAccess:
        """Return the way to other brokers.

        `secret` returns the cluster's secret; without it, there is no login.
        """
        tls = self._tls.get(self._inter_broker.name)
        logs_in = secret is not None and self._inter_broker.protocol.sasl
        return PeerAccess(
            None if tls is None else tls.peer_context,
            partial(_login, secret) if secret is not None and logs_in else None,
        )

    def metrics_tls(self) -> Callable[[], ssl.SSLContext] | None:
        """Return the context of the page for Prometheus; None: it has no TLS.

        Raises:
            InvalidConfig: `metrics.listener.name` names no listener with TLS.
        """
        name = self._config.text("metrics.listener.name").upper()
        if not name:
            return None
        tls = self._tls.get(name)
        if tls is None:
            raise InvalidConfig(
                "metrics.listener.name takes the name of a listener with TLS. "
                f"metrics.listener.name={name} known={','.join(self._tls)}"
            )
        return tls.context

    async def open(self, server: Server) -> AdvertisedAddresses:
        """Open every listener.

        Raises:
            InvalidConfig: a listener has no address that can be advertised.
            OSError: an address is taken, or not this machine's.
        """
        for login in self._logins.values():
            if login.token_keys is not None:
                self._tasks.append(spawn(login.token_keys.run()))
        bound: dict[str, Address] = {}
        for one in self._listeners:
            bound[one.name] = await server.start(one.address, self._served(one))
        advertised = advertised_of(self._config, bound)
        own = self._inter_broker.name
        return AdvertisedAddresses(advertised[own], bound[own], self._endpoints(advertised))

    async def close(self) -> None:
        """End the tasks of the logins; the server closes the listeners."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _served(self, one: Endpoint) -> ServedListener:
        login, tls = self._logins.get(one.name), self._tls.get(one.name)
        passes_limit = one.is_inter_broker and len(self._listeners) > 1
        is_gated = (login is not None or tls is not None) and not passes_limit
        handshake_s = no_handshake if tls is None else tls.handshake_s
        gate = ConnectionGate(handshake_s=handshake_s) if is_gated else None
        access = ListenerAccess(
            one.name,
            self._principals[one.name],
            None if login is None else partial(ClientLogin, login, self._checks, gate),
        )
        return ServedListener(access, tls, passes_limit, gate)

    def _endpoints(self, advertised: Mapping[str, Address]) -> tuple[BrokerEndpoint, ...]:
        if [one.name for one in self._listeners] == [SecurityProtocol.PLAINTEXT]:
            return ()
        return tuple(
            BrokerEndpoint(one.name, one.protocol, at.host, at.port)
            for one in self._listeners
            for at in (advertised[one.name],)
        )

    def _principal_of(self, one: Endpoint) -> Callable[[asyncio.BaseTransport], Principal | None]:
        name = setting_in_force(self._config, "ssl.client.auth", one.name)
        if not one.protocol.tls or one.protocol.sasl or self._config.text(name) == "none":
            return anonymous
        rules = setting_in_force(self._config, "ssl.principal.mapping.rules", one.name)
        return partial(certified_principal, PrincipalRules(self._config.text(rules)))


def certified_principal(
    rules: PrincipalRules, transport: asyncio.BaseTransport
) -> Principal | None:
    """Return the principal of a client's certificate; None if no rule matches its name."""
    certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if not certificate:
        return ANONYMOUS
    user = rules.user_name(subject_name(certificate))
    return None if user is None else Principal(USER, user)


def _login(secret: Callable[[], str]) -> SaslLogin:
    return broker_login(secret())
