"""Kinds of requests, by how they go together with others of the same connection."""

from __future__ import annotations

from typing import Final

from sparklog.protocol.api_keys import SHARE_STATE_APIS, Api

PIPELINED: Final = SHARE_STATE_APIS | {
    Api.PRODUCE,
    Api.FETCH,
    Api.LIST_OFFSETS,
    Api.METADATA,
    Api.API_VERSIONS,
    Api.BROKER_HEARTBEAT,
    Api.OFFSET_COMMIT,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.WRITE_TXN_MARKERS,
}
"""Requests that may overlap: appends, which the partition itself puts in order, reads, and requests
that a coordinator decides in order of arrival."""

WAITING: Final = frozenset({Api.FETCH, Api.SHARE_FETCH})
"""Requests that wait for records: in vain once the client has gone."""
