"""Building messages of any version from one description.

A handler says everything it knows; the version of the message takes the fields it has. A field that
neither the oldest nor the newest version knows is a mistake and raises.

    respond = Answer.to(request)
    respond.entity("MetadataResponseBroker", node_id=1, host="h", port=9092, rack=None)
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.static.constants import EntityType

from sparklog.protocol.api import APIS, Api


class Answer:
    """The structures of the response to one version of an API."""

    __slots__ = ("_api", "version")

    def __init__(self, api: Api, version: int) -> None:
        """Build structures for this version of an API's response."""
        self._api = api
        self.version = version

    @classmethod
    def to(cls, request: Any) -> Answer:
        """Return what builds the answer to a request."""
        return cls(Api(request.__api_key__), request.__version__)

    def entity(self, structure: str, **values: Any) -> Any:
        """Return a nested structure by Kafka's name, without the fields this version lacks.

        Raises:
            TypeError: a field that no version has, or a field without a value.
        """
        return _build(self._api, self.version, EntityType.response, structure, values)

    def response(self, **values: Any) -> Any:
        """Return the response itself.

        Raises:
            TypeError: as `entity`.
        """
        name = load_response_schema(self._api, self.version).__name__
        return _build(self._api, self.version, EntityType.response, name, values)


def build_request(api: Api, version: int, **values: Any) -> Any:
    """Return a request of one version, without the fields this version lacks.

    Raises:
        TypeError: a field that no version has, or a field without a value.
    """
    name = load_request_schema(api, version).__name__
    return _build(api, version, EntityType.request, name, values)


def build_request_part(api: Api, version: int, structure: str, **values: Any) -> Any:
    """Return a nested structure of a request, as `build_request`."""
    return _build(api, version, EntityType.request, structure, values)


def _build(api: Api, version: int, side: EntityType, structure: str, values: dict[str, Any]) -> Any:
    found = _structure(api, version, side, structure)
    if found is None:
        raise TypeError(f"no such structure. api={api.name} version={version} name={structure}")
    entity_type, known = found
    if values.keys() <= known:
        return entity_type(**values)
    unknown = values.keys() - known - _ever_known(api, side, structure)
    if unknown:
        raise TypeError(f"no version has it. api={api.name} name={structure} fields={unknown}")
    return entity_type(**{name: value for name, value in values.items() if name in known})


@cache
def _structure(
    api: Api, version: int, side: EntityType, structure: str
) -> tuple[type[Any], frozenset[str]] | None:
    """Return a structure and the names of its fields, if this version has it."""
    module = load_payload_module(api, version, side)  # type: ignore[arg-type]
    entity_type = getattr(module, structure, None)
    if entity_type is None:
        return None
    return entity_type, frozenset(f.name for f in fields(entity_type))


@cache
def _ever_known(api: Api, side: EntityType, structure: str) -> frozenset[str]:
    versions = APIS[api]
    ends = (_structure(api, v, side, structure) for v in {versions.min, versions.max})
    return frozenset().union(*(found[1] for found in ends if found is not None))
