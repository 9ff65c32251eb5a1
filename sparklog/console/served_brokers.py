"""ServedBrokers: the brokers that a root's metadata names, asked as one principal.

The console of `serve` reads the root. Members of groups, states and transactions are in the
brokers' memory, so it asks them, as the user who logged in. It looks for their addresses at each
use: brokers may start after the console, and get other ports when they start again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock

from sparklog.client.security import SecuritySettings
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.console.broker_view import BrokerView
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import Unavailable
from sparklog.core.types import Closeable
from sparklog.spark.access.leaders import registered


class ServedBrokers(Closeable):
    """The registered brokers for one principal. Thread-safe."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        settings: Mapping[str, str],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Find brokers in what `image` returns; `settings` are the client's TLS and SASL."""
        self._image = image
        self._settings = dict(settings)
        self._clock = clock
        self._view: BrokerView | None = None
        self._closed = False
        self._lock = Lock()

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._closed = True
            if self._view is not None:
                self._view.close()

    def view(self) -> BrokerView:
        """Return the view of the live brokers.

        Raises:
            Unavailable: no broker is registered. InvalidConfig: none has a listener with the
                protocol of the settings.
        """
        bootstrap = registered(self._image(), SecuritySettings(self._settings))
        if not bootstrap:
            raise Unavailable("no broker of this log runs; start one to see what only brokers know")
        with self._lock:
            if self._closed:
                raise Unavailable("the session has ended; log in again")
            if self._view is not None and self._view.place != bootstrap:
                self._view.close()
                self._view = None
            if self._view is None:
                self._view = BrokerView(bootstrap, self._settings, self._clock)
            return self._view
