"""Brokers: sends requests to any broker or to a certain one, over kept connections.

`BrokerConnections` repeats a read at another broker. It sends a change once, because the outcome is
unknown after that. Kafka's messages load with the first request. So a reader of a topic without a
leader, as in most Spark processes, starts faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from sparklog.client.addresses import TIMEOUT_S, BrokerAddress
from sparklog.client.security import NO_SECURITY, SecuritySettings
from sparklog.core.errors import InvalidRequest, OutcomeUnknown, Unavailable
from sparklog.protocol.api_keys import Api

if TYPE_CHECKING:
    from sparklog.client.wire import WireConnection


ADDRESSES_KEPT: Final = 100
"""Limit for remembered broker addresses."""


class RequestDraft:
    """Builds one request in the version that the broker supports."""

    __slots__ = ("_api", "version")

    def __init__(self, api: Api, version: int) -> None:
        """Build requests of this version."""
        self._api = api
        self.version = version

    def part(self, structure: str, **values: Any) -> Any:
        """Return a nested structure by Kafka's name, without fields this version lacks."""
        from sparklog.protocol.messages.builder import build_request_part  # noqa: PLC0415 - see above

        return build_request_part(self._api, self.version, structure, **values)

    def request(self, **values: Any) -> Any:
        """Return the request, without fields this version lacks."""
        from sparklog.protocol.messages.builder import build_request  # noqa: PLC0415 - see above

        return build_request(self._api, self.version, **values)


class BrokerConnections:
    """The brokers of one cluster. Not thread-safe."""

    def __init__(
        self,
        bootstrap: Sequence[BrokerAddress],
        timeout_s: float = TIMEOUT_S,
        security: SecuritySettings = NO_SECURITY,
    ) -> None:
        """Start from these addresses; nothing is sent yet. `security` acts on each connection."""
        self.timeout_s = timeout_s
        self._security = security
        self._addresses = list(bootstrap)
        self._open: dict[BrokerAddress, WireConnection] = {}

    def learn(self, addresses: Sequence[BrokerAddress]) -> None:
        """Remember further broker addresses."""
        known = set(self._addresses)
        self._addresses += [address for address in addresses if address not in known]
        del self._addresses[ADDRESSES_KEPT:]

    def close(self) -> None:
        """Close every connection."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def offers(self, api_key: int) -> bool:
        """Return True if brokers support an API, by its number.

        Raises:
            Unavailable: no broker responds.
        """
        last: Unavailable | None = None
        for address in self._by_readiness():
            try:
                return self._connection(address).offers(api_key)
            except Unavailable as error:
                last = error
        raise _no_broker(last)

    def ask(self, api: Api, lowest: int, highest: int, draft: Callable[[RequestDraft], Any]) -> Any:
        """Return any broker's response to a request that is safe to repeat.

        Raises:
            Unavailable: no broker responds. InvalidRequest: the brokers do not support this call.
        """
        last: Unavailable | OutcomeUnknown | None = None
        for address in self._by_readiness():
            try:
                return self.tell(address, api, lowest, highest, draft)
            except (Unavailable, OutcomeUnknown) as error:
                last = error
        raise _no_broker(last)

    def change(
        self, api: Api, lowest: int, highest: int, draft: Callable[[RequestDraft], Any]
    ) -> Any:
        """Return any broker's response to a request that changes something; it is sent once.

        Raises:
            OutcomeUnknown: no response; check whether the change was made.
            Unavailable, InvalidRequest: as `ask`; nothing was changed.
        """
        last: Unavailable | None = None
        for address in self._by_readiness():
            try:
                return self.tell(address, api, lowest, highest, draft)
            except Unavailable as error:
                last = error
        raise _no_broker(last)

    def tell(
        self,
        address: BrokerAddress,
        api: Api,
        lowest: int,
        highest: int,
        draft: Callable[[RequestDraft], Any],
    ) -> Any:
        """Return the response of one broker.

        Raises:
            Unavailable: it cannot be reached. OutcomeUnknown: no response.
            InvalidRequest: it does not support this call.
        """
        connection = self._connection(address)
        version = connection.version(api, lowest, highest)
        try:
            return connection.call(draft(RequestDraft(api, version)))
        except OutcomeUnknown:
            self._open.pop(address, None)
            raise

    def _connection(self, address: BrokerAddress) -> WireConnection:
        connection = self._open.get(address)
        if connection is not None and not connection.ended:
            return connection
        if connection is not None:  # the broker closed it while it was idle
            connection.close()
        from sparklog.client.wire import WireConnection  # noqa: PLC0415 - see above

        self._open[address] = WireConnection(address, self.timeout_s, self._security)
        return self._open[address]

    def _by_readiness(self) -> list[BrokerAddress]:
        """Return the addresses, those with a connection first."""
        return sorted(self._addresses, key=lambda address: address not in self._open)


def _no_broker(last: Exception | None) -> Unavailable:
    found = Unavailable(f"no broker answers; check the address, and that one runs. {last}")
    found.__cause__ = last
    return found


def sole(results: Sequence[Any], api: Api) -> Any:
    """Return the only result of a response to a request for one thing.

    Raises:
        InvalidRequest: the broker returned another number of results.
    """
    if len(results) != 1:
        raise InvalidRequest(
            f"a broker answered with {len(results)} results to a request for one. api={api.name}"
        )
    return results[0]
