"""The option that names brokers: `kafka.bootstrap.servers`, of reads and of writes."""

from __future__ import annotations

from sparklog.client.addresses import bootstrap_addresses
from sparklog.core.errors import InvalidConfig, InvalidRequest


def parse_bootstrap(servers: str | None) -> str | None:
    """Return the addresses of brokers, or None: they are found by the log's root.

    Raises:
        InvalidConfig: not such addresses.
    """
    if servers is None or not servers.strip():
        return None
    try:
        bootstrap_addresses(servers)
    except InvalidRequest as error:
        raise InvalidConfig(f"option kafka.bootstrap.servers: {error}") from None
    return servers.strip()
