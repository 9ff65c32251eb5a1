"""Responses to requests that the broker refuses, wholly or for some of their items.

An item of a request, as a topic, has an item of its own in the response. `ItemList` relates both
lists. The fields of a refused item are the names that the client sent, the error, and zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.responses import code_of, message_of
from sparklog.core.errors import SparklogError
from sparklog.protocol.messages.schemas import response_schema

ITSELF: Final = ""
"""In `ItemList.keys`: the item is a plain value, and the field is that value."""
_ERROR_CODES: Final = frozenset({"error_code", "partition_error_code"})
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class ItemList:
    """A list of a request, and the list of the response that answers its items."""

    asked: str
    """The field of the request."""
    answered: str
    """The field of the response."""
    keys: Mapping[str, str]
    """Fields of an item of the response, each with the field of the request that it repeats."""
    parts: ItemList | None = None
    """The same for the lists within the items, as partitions within topics."""

    def refused(self, structure: Any, items: Iterable[Any], error: SparklogError) -> Any:
        """Return the items of the response for refused items of the request.

        Args:
            structure: the structure of the response with the field `answered`.
            items: the refused items of the request.
            error: the reason.
        """
        item_type = _item_type(structure, self.answered)
        return tuple(self._refused(item_type, item, error) for item in items)

    def _refused(self, item_type: Any, item: Any, error: SparklogError) -> Any:
        values = {
            field: item if source == ITSELF else getattr(item, source, None)
            for field, source in self.keys.items()
        }
        if self.parts is not None:
            inner = getattr(item, self.parts.asked)
            values[self.parts.answered] = self.parts.refused(item_type, inner, error)
        return blank(item_type, error, **values)


def same(*names: str) -> dict[str, str]:
    """Return the keys of lists whose items have the same fields on both sides."""
    return {name: name for name in names}


def blank(structure: Any, error: SparklogError | None, **values: Any) -> Any:
    """Return a structure of a response with an error, with these values, and zeros elsewhere.

    A value is left out if it is None, or if this version of the structure has no such field.
    """
    zeros = _zeros(structure)
    found = {k: v for k, v in values.items() if v is not None and k in zeros.names}
    made = {**zeros.values, **found}
    for name in zeros.names & _ERROR_CODES:
        made[name] = code_of(error)
    if error is not None and zeros.has_message:
        made["error_message"] = message_of(error)
    return structure(**made)


def blank_response(request: Any, error: SparklogError | None = None, **values: Any) -> Any:
    """Return the response to a request as `blank` does."""
    return blank(response_type(request), error, **values)


def refused(request: Any, error: SparklogError, lists: Iterable[ItemList] = ()) -> Any:
    """Return the response that refuses all of a request, with an error in each place for one."""
    structure = response_type(request)
    items = {
        one.answered: one.refused(structure, getattr(request, one.asked) or (), error)
        for one in lists
    }
    return blank(structure, error, **items)


def response_type(request: Any) -> Any:
    """Return the type of the response to a request."""
    return response_schema(request.__api_key__, request.__version__)


def merged(is_refused: Sequence[bool], answered: Sequence[Any], refusals: Iterable[Any]) -> Any:
    """Return the items of a response in the order of the request.

    Refused items come last if the handler answered another number of items than it got. It does so
    for items that a request names twice.

    Args:
        is_refused: for each item of the request, whether it is refused.
        answered: the items of the handler's response, in the order of the request.
        refusals: the refused items of the response, in the order of the request.
    """
    if len(answered) != is_refused.count(False):
        return (*answered, *refusals)
    others, own = iter(answered), iter(refusals)
    return tuple(next(own if one else others) for one in is_refused)


@dataclass(frozen=True, slots=True)
class _Zeros:
    names: frozenset[str]
    values: Mapping[str, Any]
    """Of the fields without a default of their own."""
    has_message: bool
    """True if the structure has a text for the error."""


@cache
def _zeros(structure: Any) -> _Zeros:
    hints = get_type_hints(structure)
    names = frozenset(field.name for field in fields(structure))
    required = (
        f.name for f in fields(structure) if f.default is MISSING and f.default_factory is MISSING
    )
    values = {name: _zero(hints[name]) for name in required}
    return _Zeros(names, values, "error_message" in names)


def _zero(kind: Any) -> Any:
    """Return the value of a field that says nothing.

    Raises:
        TypeError: the field is a structure; give it a value.
    """
    if get_origin(kind) is tuple:
        return ()
    if type(None) in get_args(kind):
        return None
    for base, zero in _ZEROS:
        if issubclass(kind, base):
            return zero
    raise TypeError(f"no zero for fields of this type. type={kind}")


_ZEROS: Final[tuple[tuple[type[Any], Any], ...]] = (
    (ErrorCode, ErrorCode.none),
    (bool, False),
    (int, -1),
    (str, ""),
    (bytes, b""),
    (float, 0.0),
    (timedelta, timedelta(0)),
    (datetime, _NO_TIME),
)
"""In the order in which they are tried: a truth value is an int, too."""


@cache
def _item_type(structure: Any, field: str) -> Any:
    kind = get_type_hints(structure)[field]
    if get_origin(kind) is not tuple:  # a list that may be null
        kind = next(one for one in get_args(kind) if get_origin(one) is tuple)
    return get_args(kind)[0]
