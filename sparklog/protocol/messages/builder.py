"""Builds messages of any version from one description.

A handler passes all fields; the message takes those of its version. A field that no version has is
a bug and raises.

    respond = Answer.to(request)
    respond.entity("MetadataResponseBroker", node_id=1, host="h", port=9092, rack=None)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from kio.static.constants import EntityType

from sparklog.protocol.api_keys import APIS, Api
from sparklog.protocol.messages.schemas import payload_module, request_schema, response_schema


class ResponseBuilder:
    """The structures of the response to one version of an API."""

    __slots__ = ("_api", "_kept", "_response", "version")

    def __init__(self, api: Api, version: int) -> None:
        """Build structures for this version of an API's response."""
        self._api = api
        self.version = version
        self._response: str = response_schema(api, version).__name__
        self._kept: dict[tuple[str, tuple[str, ...]], _Kept] = {}

    @classmethod
    def to(cls, request: Any) -> ResponseBuilder:
        """Return the builder of the response to a request."""
        request_type: Any = type(request)
        return _answer_to(request_type)

    def entity(self, structure: str, **values: Any) -> Any:
        """Return a nested structure by Kafka's name, without the fields this version lacks.

        Raises:
            TypeError: a field that no version has, or a field without a value.
        """
        key = structure, tuple(values)
        kept = self._kept.get(key)
        if kept is None:
            kept = _kept(self._api, self.version, EntityType.response, structure, key[1])
            self._kept[key] = kept
        return kept.build(values)

    def response(self, **values: Any) -> Any:
        """Return the response itself.

        Raises:
            TypeError: as `entity`.
        """
        return self.entity(self._response, **values)


@cache
def _answer_to(request_type: Any) -> ResponseBuilder:
    return ResponseBuilder(Api(request_type.__api_key__), request_type.__version__)


def build_request(api: Api, version: int, **values: Any) -> Any:
    """Return a request of one version, without the fields this version lacks.

    Raises:
        TypeError: a field that no version has, or a field without a value.
    """
    return _build(api, version, EntityType.request, _request_name(api, version), values)


@cache
def _request_name(api: Api, version: int) -> str:
    name: str = request_schema(api, version).__name__
    return name


def build_request_part(api: Api, version: int, structure: str, **values: Any) -> Any:
    """Return a nested structure of a request, as `build_request`."""
    return _build(api, version, EntityType.request, structure, values)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A structure, and those of the given field names that this version has."""

    entity_type: type[Any]
    names: tuple[str, ...] | None
    """None: all of the given names."""

    def build(self, values: dict[str, Any]) -> Any:
        if self.names is None:
            return self.entity_type(**values)
        return self.entity_type(**{name: values[name] for name in self.names})


def _build(api: Api, version: int, side: EntityType, structure: str, values: dict[str, Any]) -> Any:
    return _kept(api, version, side, structure, tuple(values)).build(values)


@cache
def _kept(
    api: Api, version: int, side: EntityType, structure: str, names: tuple[str, ...]
) -> _Kept:
    """Return the cached structure and names for these fields.

    Raises:
        TypeError: no such structure, or a field that no version has.
    """
    found = _structure(api, version, side, structure)
    if found is None:
        raise TypeError(f"no such structure. api={api.name} version={version} name={structure}")
    entity_type, known = found
    if known.issuperset(names):
        return _Kept(entity_type, None)
    unknown = set(names) - known - _known_at_ends(api, side, structure)
    if unknown and (unknown := unknown - _ever_known(api, side, structure)):
        raise TypeError(f"no version has it. api={api.name} name={structure} fields={unknown}")
    return _Kept(entity_type, tuple(name for name in names if name in known))


@cache
def _structure(
    api: Api, version: int, side: EntityType, structure: str
) -> tuple[type[Any], frozenset[str]] | None:
    """Return a structure and the names of its fields, if this version has it."""
    module = payload_module(api, version, side)
    entity_type = getattr(module, structure, None)
    if entity_type is None:
        return None
    return entity_type, frozenset(f.name for f in fields(entity_type))


@cache
def _known_at_ends(api: Api, side: EntityType, structure: str) -> frozenset[str]:
    """Return the fields of the oldest and the newest version: usually these are all."""
    return _known_in(api, side, structure, {APIS[api].min, APIS[api].max})


@cache
def _ever_known(api: Api, side: EntityType, structure: str) -> frozenset[str]:
    """Return the fields of any version; this loads all versions."""
    return _known_in(api, side, structure, range(APIS[api].min, APIS[api].max + 1))


def _known_in(
    api: Api, side: EntityType, structure: str, versions: Iterable[int]
) -> frozenset[str]:
    found = (_structure(api, v, side, structure) for v in versions)
    return frozenset().union(*(known[1] for known in found if known is not None))
