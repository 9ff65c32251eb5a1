"""Requests from plain dictionaries and lists, with zeros in the fields that are not given.

plain_request(Api.LIST_OFFSETS, 11, topics=[{"name": "t", "partitions": [{"timestamp": -1}]}])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from typing import Any, get_args, get_origin, get_type_hints

from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.schemas import request_schema


def plain_request(api: Api, version: int, **values: Any) -> Any:
    """Return a request of one version.

    Raises:
        TypeError: the version has no such field.
    """
    return _structure(request_schema(api, version), values)


def _structure(kind: Any, values: Mapping[str, Any]) -> Any:
    hints = get_type_hints(kind)
    unknown = values.keys() - {one.name for one in fields(kind)}
    if unknown:
        raise TypeError(f"no such fields. structure={kind} fields={unknown}")
    made = {name: _value(hints[name], value) for name, value in values.items()}
    for one in fields(kind):
        given = one.name in made
        if not given and one.default is MISSING and one.default_factory is MISSING:
            made[one.name] = _zero(hints[one.name])
    return kind(**made)


def _value(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if type(None) in get_args(kind):
        kind = next(one for one in get_args(kind) if one is not type(None))
    if get_origin(kind) is tuple:
        return tuple(_value(get_args(kind)[0], one) for one in value)
    return _structure(kind, value) if is_dataclass(kind) else value


def _zero(kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return ()
    if type(None) in get_args(kind):
        return None
    if is_dataclass(kind):
        return _structure(kind, {})
    if issubclass(kind, timedelta):
        return timedelta(0)
    return next(base() for base in (bool, int, str, bytes, float) if issubclass(kind, base))


def codes_of(answer: Any) -> list[int]:
    """Return each error code of a message, in the order of its fields."""
    found: list[int] = []
    for one in fields(answer):
        value = getattr(answer, one.name)
        if one.name.endswith("error_code"):
            found.append(int(value))
        elif isinstance(value, tuple):
            for part in filter(is_dataclass, value):
                found += codes_of(part)
    return found
