"""Types of messages by API and version: kio's, and our own where Kafka 4.4 is newer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.static.constants import EntityType

from sparklog.protocol.api_keys import Api

_NEWER: Final[Mapping[tuple[int, int], str]] = {
    (Api.API_VERSIONS, 5): "api_versions_v5",
    (Api.TXN_OFFSET_COMMIT, 6): "txn_offset_commit_v6",
    (Api.DELETE_GROUPS, 3): "delete_groups_v3",
}


def payload_module(api: int, version: int, side: EntityType) -> ModuleType:
    """Return the module with the structures of a request or a response.

    Raises:
        kio.index.UnknownAPIKey, UnknownEntity: there is no such message.
    """
    newer = _NEWER.get((api, version))
    if newer is not None:
        return import_module(f"sparklog.protocol.messages.newer.{newer}")
    return load_payload_module(api, version, side)  # type: ignore[arg-type]


@cache
def request_schema(api: int, version: int) -> Any:
    """Return the type of a request. Raises as `payload_module`."""
    if (api, version) in _NEWER:
        return _sole(payload_module(api, version, EntityType.request), EntityType.request)
    return load_request_schema(api, version)


@cache
def response_schema(api: int, version: int) -> Any:
    """Return the type of a response. Raises as `payload_module`."""
    if (api, version) in _NEWER:
        return _sole(payload_module(api, version, EntityType.response), EntityType.response)
    return load_response_schema(api, version)


def _sole(module: ModuleType, side: EntityType) -> Any:
    """Return the message of one side; the module has both, and their structures."""
    (found,) = (
        one
        for one in vars(module).values()
        if isinstance(one, type)
        and one.__module__ == module.__name__
        and getattr(one, "__type__", None) is side
    )
    return found
