"""A server with TLS and logins over real sockets, and raw clients of it."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.network.login import LoginTools
from sparklog.broker.network.served_listeners import AdvertisedAddresses, BrokerListeners
from sparklog.broker.network.server import Server
from sparklog.broker.runtime.async_store import ThreadedCompute
from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.entropy import SYSTEM_ENTROPY
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages import frames
from sparklog.protocol.messages.builder import build_request
from sparklog.security.sasl.client import SaslLogin, sasl_exchange
from sparklog.security.sasl.credentials import ScramMechanism, new_credential
from tests.harness.certificates import CertificateAuthority
from tests.unit.broker.network.test_server import answer_any, versions

SECRET = "7" * 32
AUTHORITY = CertificateAuthority()
ALICE = {
    mechanism: new_credential(mechanism, "wonder land", SYSTEM_ENTROPY)
    for mechanism in ScramMechanism
}
IMAGE = MetadataImage(scram_credentials={"alice": ALICE}, cluster_secret=SECRET)
SASL_PLAIN = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
    "sparklog.sasl.plain.allow.cleartext": "true",
}


@dataclass
class Secured:
    """A server with the listeners of its settings, and the requests that reached its handler."""

    server: Server
    listeners: BrokerListeners
    addresses: AdvertisedAddresses
    metrics: BrokerMetrics
    contexts: list[RequestContext] = field(default_factory=list)

    def at(self, listener: str) -> Address:
        for one in self.addresses.endpoints:
            if one.listener == listener:
                return Address(one.host, one.port)
        raise AssertionError(listener)

    @property
    def principals(self) -> list[str]:
        return [str(context.principal) for context in self.contexts]


Story = Callable[[Secured], Coroutine[Any, Any, None]]


def serve(
    story: Story,
    settings: dict[str, str],
    image: MetadataImage = IMAGE,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> None:
    async def run() -> None:
        async def newest() -> MetadataImage:
            return image

        config = parse_broker_configs({"node.id": "1", **settings})
        metrics, compute = BrokerMetrics(), ThreadedCompute(1)
        contexts: list[RequestContext] = []

        async def handle(request: Any, context: RequestContext) -> Any:
            contexts.append(context)
            return await answer_any(request, context)

        tools = LoginTools(newest, SYSTEM_CLOCK, SYSTEM_ENTROPY)
        listeners = BrokerListeners(config, tools, compute)
        refuse = partial(versions, ErrorCode.unsupported_version)
        server = Server(handle, lambda _: refuse(), config, metrics)
        addresses = await listeners.open(server)
        try:
            async with asyncio.timeout(20):
                await story(Secured(server, listeners, addresses, metrics, contexts))
        finally:
            await server.stop()
            await listeners.close()
            compute.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


class Peer:
    """A raw client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, at: Address, context: ssl.SSLContext | None = None) -> Peer:
        return cls(*await asyncio.open_connection(at.host, at.port, ssl=context))

    async def ask(self, request: Any) -> Any:
        self.writer.write(frames.encode_request(request, 1, "test"))
        return frames.decode_response(await self.frame(), type(request))

    async def frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def closed(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True
        finally:
            self.writer.close()

    async def log_in(self, login: SaslLogin) -> tuple[ErrorCode, str | None, int]:
        """Return the last answer: its code, its message, and the session's length in ms."""
        chosen = await self.ask(build_request(Api.SASL_HANDSHAKE, 1, mechanism=login.mechanism))
        if chosen.error_code is not ErrorCode.none:
            return chosen.error_code, None, 0
        exchange = sasl_exchange(login, SYSTEM_ENTROPY)
        token = next(exchange)
        while True:
            answer = await self.ask(build_request(Api.SASL_AUTHENTICATE, 1, auth_bytes=token))
            session_ms = round(answer.session_lifetime.total_seconds() * 1000)
            if answer.error_code is not ErrorCode.none:
                return answer.error_code, answer.error_message, session_ms
            try:
                token = exchange.send(answer.auth_bytes)
            except StopIteration:
                return answer.error_code, answer.error_message, session_ms
