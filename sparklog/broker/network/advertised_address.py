"""Checks that advertised addresses lead where they should: a broker tries its own and the others'.

A broker that listens at one address and advertises another is useless to clients, and its peers
take it for dead. Only a connection to the advertised address shows that. The broker opens one under
a client id that is unique. If that client id arrives here, the address leads here, through any
proxy or address translation in between.

A broker tries its own address once, and the address of each new incarnation of another broker once.
A fault is reported and changes nothing else: an address may be meant for clients elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, Final

from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.network.listener_sockets import EVERY_INTERFACE
from sparklog.broker.runtime.environment import Address, Network, Unreachable
from sparklog.broker.runtime.request import BROKERS_CLIENT, RequestContext
from sparklog.cluster.metadata.image import Broker, MetadataImage
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request

logger = logging.getLogger(__name__)

TRY_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 0.5
TRIES_OF_OTHERS: Final = 10
"""Another broker may just end, and be listed until the controller fences it."""
OPTIONS: Final = "advertised.listeners (serve --advertised-host) or listeners (serve --listen-host)"


class Reach:
    """Tries the addresses of one broker's cluster, and reports those that lead elsewhere."""

    def __init__(
        self,
        broker_id: int,
        nonce: str,
        open_network: Callable[[str], Network],
        report: Callable[[str], None],
    ) -> None:
        """Try by connections of `open_network(client id)`; `report` takes a sentence per fault."""
        self._broker_id = broker_id
        self._prefix = f"{BROKERS_CLIENT}{broker_id}-reach-{nonce}-"
        self._numbers = count(1)
        self._open_network = open_network
        self._report = report
        self._arrivals: dict[str, asyncio.Event] = {}
        """Set when the try of this client id has come here."""
        self._tried: set[str] = set()
        """Incarnations of other brokers."""
        self._image: MetadataImage | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def arrived(self, context: RequestContext) -> bool:
        """Return whether a request is one of these tries, and record that it came here."""
        arrival = self._arrivals.get(context.client_id or "")
        if arrival is not None:
            arrival.set()
        return arrival is not None

    def try_own(self, advertised: Address, bound: Address) -> None:
        """Begin to try this broker's own address; `bound` is where it listens."""
        self._start(self._own(advertised, bound))

    def watch(self, metadata: MetadataLog) -> None:
        """Begin to try the addresses of all others, now and whenever one registers."""
        self._seen(metadata.image)
        metadata.subscribe(self._seen)

    async def close(self) -> None:
        """End all tries."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _own(self, advertised: Address, bound: Address) -> None:
        leads_here, fault = await self._try(advertised)
        if not leads_here:
            listens = "every interface" if bound.host in EVERY_INTERFACE else bound.host
            self._say(
                f"broker {self._broker_id} is advertised at {advertised}, and "
                f"{fault or 'something else answers there'}. It listens on {listens}, port "
                f"{bound.port}. Clients and other brokers are sent to the advertised address: set "
                f"{OPTIONS} so that it leads here"
            )

    def _seen(self, image: MetadataImage) -> None:
        self._image = image
        for broker in image.live_brokers():
            if broker.broker_id != self._broker_id and broker.incarnation not in self._tried:
                self._tried.add(broker.incarnation)
                self._start(self._other(broker))

    async def _other(self, broker: Broker) -> None:
        address = Address(broker.host, broker.port)
        fault: str | None = None
        for _ in range(TRIES_OF_OTHERS):
            leads_here, fault = await self._try(address)
            if leads_here:
                fault = "that address leads back here"
            if fault is None:
                return
            await asyncio.sleep(RETRY_S)
            if not self._is_current(broker):
                return
        self._say(
            f"broker {self._broker_id} does not reach broker {broker.broker_id} at {address}: "
            f"{fault}. Brokers need addresses by which every other one reaches them: set {OPTIONS}"
        )

    def _is_current(self, broker: Broker) -> bool:
        now = self._image.brokers.get(broker.broker_id) if self._image is not None else None
        return now is not None and not now.fenced and now.incarnation == broker.incarnation

    async def _try(self, address: Address) -> tuple[bool, str | None]:
        """Return whether an address leads here, and why a connection failed, if it did."""
        client_id = f"{self._prefix}{next(self._numbers)}"
        arrival = self._arrivals[client_id] = asyncio.Event()
        network = self._open_network(client_id)
        request = build_request(Api.API_VERSIONS, 0)
        fault = None
        try:
            await network.call(address, request, timeout_s=TRY_TIMEOUT_S)
        except TimeoutError:
            fault = f"nobody answers there within {TRY_TIMEOUT_S:g} s"
        except Unreachable as error:
            fault = f"nobody answers there ({_reason(error)})"
        finally:
            del self._arrivals[client_id]
            await network.close()
        return arrival.is_set(), fault

    def _say(self, text: str) -> None:
        logger.warning("%s", text)
        self._report(text)


def _reason(error: Unreachable) -> str:
    cause = error.__cause__
    if not isinstance(cause, OSError):
        return str(error)
    # The event loop's own words repeat the address, or hold several of them.
    if cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno)
    return cause.strerror or str(cause)
