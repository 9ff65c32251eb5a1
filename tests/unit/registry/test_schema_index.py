"""The ids and GUIDs that brokers know: those that the registry itself has."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from sparklog.cluster.log import Log
from sparklog.registry import decisions, schema_index
from sparklog.registry.model.schema import read_content
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_index import SchemaIndex
from sparklog.registry.schema_log import RootSchemaLog
from sparklog.store.memory import MemoryStore


def test_an_index_knows_ids_until_they_are_deleted() -> None:
    log = RootSchemaLog(Log(MemoryStore("known")))
    registry = SchemaRegistry(log)

    def register(subject: str, name: str) -> tuple[int, bytes]:
        content = read_content(
            {"schema": json.dumps({"type": "enum", "name": name, "symbols": []})}
        )
        made = registry.candidate(subject, content)
        version = registry.change(lambda state, parsed: decisions.register(state, made, parsed))
        return version.schema_id, UUID(version.content.guid).bytes

    first, second = register("a", "A"), register("b", "B")
    assert register("c", "B") == second
    other = register(":.team:a", "T")
    registry.change(lambda state, _: decisions.delete_subject(state, "a", permanent=False))
    index = SchemaIndex()
    index.apply(log.read(0)[1])
    known = index.known()
    assert known.ids.tolist() == sorted([first[0], second[0]]), "soft-deleted ids can be read"
    assert len(known.guids) == len({first[1], second[1], other[1]})

    def delete(subject: str, permanent: bool) -> None:
        registry.change(
            lambda state, _: decisions.delete_subject(state, subject, permanent=permanent)
        )

    for subject, permanent in (("a", True), ("b", False), ("b", True)):
        delete(subject, permanent)
    index = SchemaIndex()
    index.apply([(b"{", b"?"), (None, None), *log.read(0)[1]])
    assert index.known().ids.tolist() == [second[0]], "the subject c has it still"


def test_an_index_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_index, "VERSIONS_MAX", 2)
    index = SchemaIndex()
    for number in (1, 2, 3):
        key = json.dumps({"keytype": "SCHEMA", "subject": "s", "version": number, "magic": 1})
        index.apply([(key.encode(), json.dumps({"id": number, "schema": '"int"'}).encode())])
    assert index.known().ids.tolist() == [1, 2]
