"""Refuses a store that creates one key twice.

The whole log rests on put-if-absent, and some S3-compatible stores ignore If-None-Match: two
writers would overwrite each other without noticing. So before a process first writes under a root,
it creates the probe's key; unless that is refused because the key exists, it creates it again, and
that must be refused. The key stays, so one request is the usual cost. Readers never probe.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparklog.core.errors import InvalidConfig
from sparklog.core.forking import PerProcess
from sparklog.store.base import Data, ObjectInfo, ObjectStore, PutOutcome, Weather

PROBE_KEY = "put-if-absent-probe"
_PROBED: PerProcess[set[str]] = PerProcess(set)
"""Roots that passed, by URL and endpoint."""


def probe(store: ObjectStore) -> None:
    """Check that `store` refuses to create a key twice. Cost: one put, or two.

    Raises:
        InvalidConfig: it does not; use another store.
        Weather: it does not tell just now; try again.
    """
    for _ in range(2):
        outcome = store.put_if_absent(PROBE_KEY, b"")
        if outcome is PutOutcome.EXISTS:
            return
        if outcome is PutOutcome.UNKNOWN:
            raise Weather(f"no answer to the probe. root={store.url}", unsettled=False)
    raise InvalidConfig(
        "this store creates an object that exists already, so two writers would overwrite each "
        f"other; use a store that honours If-None-Match on puts. root={store.url} key={PROBE_KEY}"
    )


class ProbingStore(ObjectStore):
    """Passes everything on; probes before the first write of this process under this root."""

    def __init__(self, store: ObjectStore, identity: str) -> None:
        """Probe `store` unless one of that `identity` has passed in this process."""
        self.url = store.url
        self._store = store
        self._identity = identity

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        return self._store.get(key, start, end)

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`.

        Raises:
            InvalidConfig: the store creates one key twice.
        """
        self._probe()
        return self._store.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        self._store.put(key, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`. The probe's own key is not listed."""
        return (i for i in self._store.list(prefix, start_after) if i.key != PROBE_KEY)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self._store.delete(key)

    def retire(self, key: str) -> None:
        """See `ObjectStore.retire`."""
        self._store.retire(key)

    def tidy(self, prefix: str) -> None:
        """See `ObjectStore.tidy`."""
        self._store.tidy(prefix)

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        return self._store.head(key)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _probe(self) -> None:
        probed = _PROBED.get()
        if self._identity in probed:
            return
        try:
            probe(self._store)
        except Weather as weather:
            # Whatever became of the probe's key, the put itself was not sent.
            raise Weather(str(weather), unsettled=False) from weather
        probed.add(self._identity)
