"""Brokers of the test kit over one root, at addresses without proxies.

with Brokers("memory://name", count=3) as brokers:
    brokers.bootstrap   # "127.0.0.1:40123,…"
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.testing.cluster import SparklogCluster


class Brokers(SparklogCluster):
    """Some brokers over one root; a context manager."""

    def __init__(
        self,
        root: str,
        count: int = 1,
        settings: Mapping[str, str] | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare brokers 1 to `count` on free ports of this machine.

        `client` has a client's settings for the listener by which brokers reach each other.
        """
        config = {"listeners": "PLAINTEXT://127.0.0.1:0", **(settings or {})}
        super().__init__(count, config=config, root=root, security=client)

    @property
    def bootstrap(self) -> str:
        """Return the addresses of all brokers, as clients take them."""
        return self.bootstrap_servers
