"""JSON Schemas: checked against their draft, with references that resolve without the network.

A reference leads into the document itself, or to a registered schema by its name. Drafts 4, 6, 7,
2019-09 and 2020-12 are known; a schema without `$schema` is one of draft 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import InvalidJson
from sparklog.registry.model.refusal import invalid_schema
from sparklog.registry.model.schema import compact_json

_DRAFTS: Final = (
    "draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12",
)  # fmt: skip
DEFAULT_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_NO_SCHEMAS: Final = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values are data: a `$ref` in them is none."""


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A parsed schema, with the documents it refers to by name."""

    document: Any
    referred: Mapping[str, Any]
    canonical: str
    """The text without blanks."""
    normalized: str
    """The text with sorted keys."""

    def resolved(self, base: Any, reference: str) -> tuple[Any, Any]:
        """Return the document and the schema in it that a `$ref` leads to.

        Args:
            base: the document that has the reference.
            reference: its value.

        Raises:
            KeyError: it leads nowhere.
        """
        name, _, fragment = reference.partition("#")
        document = base
        if name and name != _id_of(base):
            document = self.referred[name] if name in self.referred else self._by_id(name)
        if not fragment:
            return document, document
        if not fragment.startswith("/"):
            return document, _anchor(document, fragment)
        found = document
        for part in unquote(fragment[1:]).split("/"):
            step = part.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (ValueError, IndexError, TypeError):
                raise KeyError(reference) from None
        return document, found

    def _by_id(self, name: str) -> Any:
        for document in (self.document, *self.referred.values()):
            if _id_of(document) == name:
                return document
        raise KeyError(name)


def _id_of(document: Any) -> str | None:
    if not isinstance(document, Mapping):
        return None
    found = document.get("$id", document.get("id"))
    return found.rstrip("#") if isinstance(found, str) else None


def _anchor(document: Any, name: str) -> Any:
    for schema in _schemas(document):
        if schema.get("$anchor") == name or schema.get("$id") == f"#{name}":
            return schema
    raise KeyError(name)


def parse_json_schema(text: str, referred: Mapping[str, str]) -> JsonSchema:
    """Return a parsed schema.

    Args:
        text: the schema.
        referred: the texts of schemas that it refers to, by the name of the reference.

    Raises:
        RegistryRefused: no valid schema, of a draft that is not known, or a `$ref` leads nowhere.
    """
    document = _parsed(text)
    if not isinstance(document, (Mapping, bool)):
        raise invalid_schema("a JSON Schema is an object or a boolean")
    found = JsonSchema(
        document,
        {name: _parsed(other) for name, other in referred.items()},
        compact_json(document),
        compact_json(_sorted(document)),
    )
    try:
        _check_draft(document)
        for base in (document, *found.referred.values()):
            _check_references(found, base)
    except RecursionError:
        raise invalid_schema("it nests too deeply") from None
    return found


def _parsed(text: str) -> Any:
    try:
        return parse_json(text, "the JSON Schema")
    except InvalidJson as error:
        raise invalid_schema(str(error)) from error


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


def draft_of(document: Any) -> str:
    """Return the draft of a document, such as `draft-07`; empty for one that is not known."""
    given = document.get("$schema", DEFAULT_DRAFT) if isinstance(document, Mapping) else ""
    text = given if isinstance(given, str) and given else DEFAULT_DRAFT
    return next((known for known in _DRAFTS if f"/{known}/" in text), "")


def _check_draft(document: Any) -> None:
    from jsonschema import exceptions, validators  # noqa: PLC0415 - of the extra `registry`

    draft = DEFAULT_DRAFT if isinstance(document, bool) else document.get("$schema", DEFAULT_DRAFT)
    if not isinstance(draft, str) or not draft_of(document):
        raise invalid_schema(f"the draft is not known. $schema={str(draft)[:200]!r}")
    validator = validators.validator_for({"$schema": draft}, default=None)
    if validator is None:
        raise invalid_schema(f"the draft is not known. $schema={draft[:200]!r}")
    try:
        validator.check_schema(document)
    except exceptions.SchemaError as error:
        raise invalid_schema(f"JSON Schema: {error.message[:500]} (at {error.json_path})") from None


def _check_references(schema: JsonSchema, base: Any) -> None:
    for one in _schemas(base):
        reference = one.get("$ref")
        if isinstance(reference, str):
            try:
                schema.resolved(base, reference)
            except KeyError:
                raise invalid_schema(f"a $ref leads nowhere: {reference[:200]!r}") from None


def _schemas(document: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object of a document that may be a schema."""
    if isinstance(document, Mapping):
        yield document
        for key, value in document.items():
            if key not in _NO_SCHEMAS:
                yield from _schemas(value)
    elif isinstance(document, list):
        for one in document:
            yield from _schemas(one)
