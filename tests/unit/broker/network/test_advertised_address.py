"""Advertised addresses are tried over real connections, and what leads elsewhere is reported."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.handlers import metadata
from sparklog.broker.network import advertised_address
from sparklog.broker.network.advertised_address import Reach
from sparklog.broker.network.broker_client import TcpNetwork
from sparklog.broker.network.server import Server
from sparklog.broker.node.authorization import Authorization
from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.request import ExpectedClose, RequestContext
from sparklog.cluster.metadata.image import Broker, MetadataImage
from sparklog.core.config.broker import parse_broker_configs
from sparklog.testing.wire_proxy import WireProxy


class Identity:
    """As much of a broker as ApiVersions looks at."""

    cluster_id = "cluster"

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.config = parse_broker_configs({})
        self.authorization = Authorization(self.config)
        self.metadata = Metadata()


class Place:
    """A broker's listener with its tries; a context manager."""

    def __init__(self, broker_id: int) -> None:
        self.notes: list[str] = []
        self._identity: Any = Identity(broker_id)
        self.reach = Reach(broker_id, f"nonce{broker_id}", TcpNetwork, self.notes.append)
        self._server = Server(self._handle, metadata.refuse, parse_broker_configs({}))
        self.bound = Address("", 0)

    async def _handle(self, request: Any, context: RequestContext) -> Any:
        if self.reach.arrived(context):
            raise ExpectedClose("it is here")
        return await metadata.api_versions(self._identity, request, context)

    async def __aenter__(self) -> Place:
        self.bound = await self._server.start(Address("127.0.0.1", 0))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.reach.close()
        await self._server.stop()

    async def tried(self) -> list[str]:
        """Wait until all tries have ended; returns the notes."""
        await asyncio.gather(*self.reach._tasks)
        return self.notes


class Metadata:
    """Brokers that are registered. As much of a `MetadataLog` as is asked for."""

    def __init__(self, *brokers: Broker) -> None:
        self.image = MetadataImage(brokers={b.broker_id: b for b in brokers})

    def subscribe(self, listener: Callable[[MetadataImage], None]) -> None:
        """Nothing changes here."""


def run(story: Callable[[Place, Place], Coroutine[Any, Any, None]]) -> None:
    async def both() -> None:
        async with asyncio.timeout(60), Place(1) as one, Place(2) as two:
            await story(one, two)

    asyncio.run(both())


def registered(broker_id: int, address: Address) -> Broker:
    return Broker(broker_id, f"incarnation{broker_id}", address.host, address.port, None, 7)


def watch(place: Place, *brokers: Broker) -> None:
    place.reach.watch(cast("MetadataLog", Metadata(*brokers)))


def test_address_that_leads_here_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "sparklog.broker.network.connection")

    async def story(one: Place, two: Place) -> None:
        one.reach.try_own(one.bound, one.bound)
        watch(one, registered(1, one.bound), registered(2, two.bound))
        assert await one.tried() == []

    run(story)
    closed = [r.levelno for r in caplog.records if "closing a connection" in r.getMessage()]
    assert closed
    assert set(closed) == {logging.DEBUG}


def test_address_that_leads_here_through_a_proxy_is_not_reported() -> None:
    async def story(one: Place, two: Place) -> None:
        proxy = WireProxy()
        try:
            proxy.lead_to(one.bound.port)
            one.reach.try_own(Address("127.0.0.1", proxy.port), one.bound)
            assert await one.tried() == []
        finally:
            proxy.close()

    run(story)


def test_address_without_a_listener_is_reported_with_the_options() -> None:
    async def story(one: Place, two: Place) -> None:
        one.reach.try_own(Address("127.0.0.2", one.bound.port), one.bound)
        (note,) = await one.tried()
        assert note.startswith(f"broker 1 is advertised at 127.0.0.2:{one.bound.port}, and nobody")
        assert "refused" in note
        assert f"It listens on 127.0.0.1, port {one.bound.port}" in note
        assert "--advertised-host" in note
        assert "--listen-host" in note

    run(story)


def test_an_address_that_leads_to_another_broker_is_reported() -> None:
    async def story(one: Place, two: Place) -> None:
        one.reach.try_own(two.bound, one.bound)
        (note,) = await one.tried()
        assert "something else answers there" in note

    run(story)


def test_a_name_that_does_not_resolve_is_reported() -> None:
    async def story(one: Place, two: Place) -> None:
        one.reach.try_own(Address("no-such-host.invalid", 9092), one.bound)
        (note,) = await one.tried()
        assert "no-such-host.invalid:9092, and nobody answers there" in note

    run(story)


def test_peer_is_reported_when_its_address_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(advertised_address, "RETRY_S", 0.0)

    async def story(one: Place, two: Place) -> None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        watch(one, registered(2, Address("127.0.0.1", port)))
        (note,) = await one.tried()
        assert note.startswith(f"broker 1 does not reach broker 2 at 127.0.0.1:{port}: nobody")

    run(story)


def test_another_broker_is_reported_when_its_address_leads_back_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(advertised_address, "RETRY_S", 0.0)

    async def story(one: Place, two: Place) -> None:
        watch(one, registered(2, one.bound))
        (note,) = await one.tried()
        assert "that address leads back here" in note

    run(story)
