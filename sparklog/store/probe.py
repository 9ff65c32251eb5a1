"""Refuses a store on which two writers of one key both succeed.

The whole log rests on put-if-absent. Some S3-compatible stores ignore If-None-Match; others honour
it only when requests come one after the other. On both, writers overwrite each other's records. So
before the first write under a root a store must pass a race (`probe_race`).

The race is run once per root. Its result is kept under a name in the root, so a later process sends
one GET. The name is made of endpoint and bucket: a copy on another store is raced again. A process
that has seen a bucket pass asks no more. Readers never probe.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from threading import Lock
from typing import Final

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy
from sparklog.core.errors import InvalidConfig
from sparklog.core.per_process import PerProcess
from sparklog.store.base import (
    Data,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    PutOutcome,
    TransientStoreError,
)
from sparklog.store.delegating_store import DelegatingStore
from sparklog.store.probe_race import NAMES, RACERS, race

PROBE_PREFIX: Final = "put-if-absent-probe"
"""Keys that begin so are the probe's. Older versions created this key itself."""
_RESULT: Final = json.dumps(
    {"put-if-absent": "holds", "names": NAMES, "racers": RACERS}, separators=(",", ":")
).encode()
_PROBED: PerProcess[set[str]] = PerProcess(set)
"""Buckets that passed, by endpoint and name."""
_PROBING = PerProcess(Lock)


def result_key(identity: str) -> str:
    """Return the key under which the result for a bucket at an endpoint is kept."""
    return f"{PROBE_PREFIX}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def probe(store: ObjectStore, identity: str, clock: Clock, entropy: Entropy) -> None:
    """Check that `store` lets one writer of several create a key. Cost: one GET, or a race.

    Raises:
        InvalidConfig: it does not; use another store.
        `TransientStoreError`: the store gave no clear answer; try again.
    """
    key = result_key(identity)
    try:
        if store.get(key) == _RESULT:
            return
    except ObjectNotFound:
        pass
    try:
        race(store, key, clock, entropy)
    except InvalidConfig as error:
        raise InvalidConfig(f"{error} endpoint={identity.partition(' ')[0]}") from error
    store.put(key, _RESULT)


class ProbingStore(DelegatingStore):
    """Passes everything on; probes before the first write of this process to this bucket."""

    def __init__(
        self,
        store: ObjectStore,
        identity: str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        """Probe `store` unless one of that `identity` has passed in this process.

        `identity` is the endpoint, a blank, and the bucket's URL.
        """
        super().__init__(store)
        self._identity = identity
        self._clock = clock
        self._entropy = entropy

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`.

        Raises:
            InvalidConfig: the store lets two writers create one key.
        """
        self.check_puts()
        return self._store.put_if_absent(key, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`. The probe's own keys are not listed."""
        found = self._store.list(prefix, start_after)
        return (info for info in found if not info.key.startswith(PROBE_PREFIX))

    def check_puts(self) -> None:
        """See `ObjectStore.check_puts`."""
        if self._identity in _PROBED.get():
            return
        with _PROBING.get():
            if self._identity in _PROBED.get():
                return
            try:
                probe(self._store, self._identity, self._clock, self._entropy)
            except TransientStoreError as transient:
                # The put itself was not sent, even if the probe's keys are unsettled.
                raise TransientStoreError(str(transient), unsettled=False) from transient
            _PROBED.get().add(self._identity)
