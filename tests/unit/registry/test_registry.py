"""Two registries over one log agree: ids, versions, deletes, references, modes and settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparklog.cluster.log import Log
from sparklog.core.errors import DataCorrupt, Unavailable
from sparklog.registry import decisions
from sparklog.registry.model.refusal import RegistryRefused
from sparklog.registry.model.schema import SchemaContent, SubjectVersion, read_content
from sparklog.registry.records import (
    IdsSpent,
    VersionPut,
    VersionsHidden,
    decode_record,
    encode_record,
)
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog, Row
from sparklog.store.memory import MemoryStore


def avro(name: str, *fields: str) -> str:
    made = [{"name": field, "type": "long", "default": 0} for field in fields]
    return json.dumps({"type": "record", "name": name, "fields": made})


def register(registry: SchemaRegistry, subject: str, text: str, **options: Any) -> SubjectVersion:
    content = read_content({"schema": text, **options.pop("document", {})})
    candidate = registry.candidate(subject, content, **options)
    found = registry.change(lambda state, parsed: decisions.register(state, candidate, parsed))
    assert isinstance(found, SubjectVersion)
    return found


def code_of(action: Any) -> int:
    with pytest.raises(RegistryRefused) as refused:
        action()
    return refused.value.code


@pytest.fixture
def log() -> Log:
    return Log(MemoryStore("registry"))


@pytest.fixture
def registry(log: Log) -> SchemaRegistry:
    return SchemaRegistry(RootSchemaLog(log))


def delete(registry: SchemaRegistry, subject: str, version: int, *, permanent: bool = False) -> Any:
    return registry.change(
        lambda state, _: decisions.delete_version(state, subject, version, permanent=permanent)
    )


def test_equal_schemas_share_an_id_and_each_context_counts_for_itself(
    registry: SchemaRegistry,
) -> None:
    first = register(registry, "a", avro("R"))
    again = register(registry, "a", f" {avro('R')} ")
    other = register(registry, "b", avro("R"))
    second = register(registry, "a", avro("R", "x"))
    elsewhere = register(registry, ":.team:a", avro("Q"))
    assert [one.schema_id for one in (first, again, other, second, elsewhere)] == [1, 1, 1, 2, 1]
    assert [one.version for one in (first, again, other, second)] == [1, 1, 1, 2]
    assert first.content.guid == other.content.guid != second.content.guid
    assert registry.content(".team", 1) == elsewhere.content
    assert registry.query(lambda state: state.contexts()) == [".", ".team"]


def test_two_registries_give_no_id_twice_and_see_each_other(log: Log) -> None:
    store = log.store
    both = [SchemaRegistry(RootSchemaLog(Log(store))) for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        made = list(
            pool.map(lambda n: register(both[n % 2], f"s{n % 7}-{n}", avro(f"R{n}")), range(60))
        )
    assert sorted(one.schema_id for one in made) == list(range(1, 61))
    third = SchemaRegistry(RootSchemaLog(Log(store)))
    states = [one.query(lambda state: dict(state.subjects)) for one in (*both, third)]
    assert states[0] == states[1] == states[2]
    assert {v.schema_id: v.content for v in made} == {
        one.schema_id: third.content(".", one.schema_id) for one in made
    }


def test_spent_ids_stay_spent_after_a_permanent_delete_and_compaction(log: Log) -> None:
    registry = SchemaRegistry(RootSchemaLog(log))
    register(registry, "a", avro("A"))
    register(registry, "b", avro("B"))
    assert code_of(lambda: delete(registry, "b", 1, permanent=True)) == 40407
    assert delete(registry, "b", 1) == 1
    assert code_of(lambda: delete(registry, "b", 1)) == 40406
    assert delete(registry, "b", 1, permanent=True) == 1
    rows = list(log.partition("_schemas", 0).read(0, 5, ("key", "value")))
    last = dict(
        row for b in rows for row in zip(*(b.column(n).to_pylist() for n in b.schema.names),
                                         strict=True)
    )  # fmt: skip
    compacted = SchemaRegistry(_FixedLog([(k, v) for k, v in last.items() if v is not None]))
    assert compacted.query(lambda state: state.next_id(".")) == 3
    assert register(registry, "c", avro("B")).schema_id == 3
    assert registry.content(".", 2) is None


class _FixedLog:
    """A log of given rows, whose appends fail as asked."""

    def __init__(self, rows: Sequence[Row], error: Exception | None = None) -> None:
        self.rows = list(rows)
        self.error = error

    def read(self, base_offset: int) -> tuple[int, Any]:
        return len(self.rows), iter(self.rows[base_offset:])

    def append_at(self, rows: Sequence[Row], offset: int) -> int | None:
        if self.error is not None:
            raise self.error
        assert offset == len(self.rows)
        self.rows += rows
        return len(self.rows)

    def close(self) -> None:
        pass


def test_a_failed_append_leaves_the_state_as_it_was() -> None:
    log = _FixedLog([])
    registry = SchemaRegistry(log)
    register(registry, "a", avro("A"))
    log.error = Unavailable("no store")
    with pytest.raises(Unavailable, match="no store"):
        register(registry, "a", avro("A", "x"))
    assert registry.query(lambda s: [v.version for v in s.versions("a")]) == [1]
    assert registry.query(lambda s: (s.next_id("."), s.content(".", 2))) == (2, None)
    log.error = None
    assert register(registry, "a", avro("A", "x")).schema_id == 2


def test_incompatible_schemas_are_refused_by_the_level_of_the_subject(
    registry: SchemaRegistry,
) -> None:
    needed = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]})
    register(registry, "a", avro("R"))
    with pytest.raises(RegistryRefused) as refused:
        register(registry, "a", needed)
    assert refused.value.status == 409
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.value.reasons[0]
    assert "'/fields/0'" in refused.value.reasons[0]
    assert refused.value.reasons[-1] == "{compatibility: 'BACKWARD'}"
    level = {"compatibility": "FORWARD"}
    registry.change(lambda state, _: decisions.put_config(state, "a", level))
    assert register(registry, "a", needed).version == 2
    wrong = {"compatibility": "SOMEHOW"}
    put = decisions.put_config
    assert code_of(lambda: registry.change(lambda s, _: put(s, "a", wrong))) == 42203
    unknown = {"compatibilityGroup": "app"}
    assert code_of(lambda: registry.change(lambda s, _: put(s, "a", unknown))) == 422


def test_transitive_levels_look_at_every_version(registry: SchemaRegistry) -> None:
    texts = [
        '{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}',
        '{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}',
        avro("R", "n", "m").replace(', "default": 0', "", 1),
    ]
    for text in texts[:2]:
        register(registry, "a", text)
    narrow = '{"type":"record","name":"R","fields":[]}'
    candidate = registry.candidate("a", read_content({"schema": texts[2]}))
    forward = {"compatibility": "FORWARD_TRANSITIVE"}
    registry.change(lambda s, _: decisions.put_config(s, None, forward))
    found = registry.query(lambda s: decisions.incompatibilities(s, candidate, registry.parsed))
    assert "{oldSchemaVersion: 1}" in found, "an int reader does not read a long"
    registry.change(lambda s, _: decisions.put_config(s, None, {"compatibility": "FORWARD"}))
    assert register(registry, "a", texts[2]).version == 3
    assert code_of(lambda: register(registry, "a", narrow)) == 409


def test_references_resolve_and_protect_their_schemas(registry: SchemaRegistry) -> None:
    register(registry, "address", '{"type":"record","name":"Address","fields":[]}')
    text = '{"type":"record","name":"U","fields":[{"name":"a","type":"Address"}]}'
    given = {"references": [{"name": "Address", "subject": "address", "version": -1}]}
    made = register(registry, "user", text, document=given)
    assert made.content.references[0].version == 1
    assert code_of(lambda: register(registry, "user2", text)) == 42201
    missing = {"references": [{"name": "Address", "subject": "nowhere", "version": 1}]}
    assert code_of(lambda: register(registry, "user3", text, document=missing)) == 42201
    assert code_of(lambda: delete(registry, "address", 1)) == 42206
    delete(registry, "user", 1)
    assert delete(registry, "address", 1) == 1
    assert code_of(lambda: delete(registry, "address", 1, permanent=True)) == 42206


def test_modes_allow_imports_with_ids_and_forbid_writes(registry: SchemaRegistry) -> None:
    def put(scope: str | None, mode: str, *, force: bool = False) -> Any:
        return registry.change(lambda s, _: decisions.put_mode(s, scope, mode, force=force))

    register(registry, "a", avro("A"))
    assert code_of(lambda: register(registry, "a", avro("B"), schema_id=7)) == 42205
    assert code_of(lambda: put(None, "IMPORT")) == 42205
    put("b", "IMPORT")
    assert register(registry, "b", avro("B"), schema_id=77, version=5).version == 5
    assert register(registry, "b", avro("B"), schema_id=77, version=5).schema_id == 77
    assert code_of(lambda: register(registry, "b", avro("C"), schema_id=77)) == 42205
    assert code_of(lambda: register(registry, "b", avro("C"))) == 42205
    assert register(registry, "a", avro("A", "x")).schema_id == 78
    put(None, "READONLY")
    assert code_of(lambda: register(registry, "a", avro("A", "y"))) == 42205
    assert code_of(lambda: delete(registry, "a", 1)) == 42205
    assert code_of(lambda: put("a", "WRITEONLY")) == 42204
    registry.change(lambda s, _: decisions.delete_mode(s, None))
    assert register(registry, "a", avro("A", "y")).version == 3


def test_a_deleted_subject_comes_back_with_a_new_version(registry: SchemaRegistry) -> None:
    def drop(*, permanent: bool = False) -> Any:
        return registry.change(lambda s, _: decisions.delete_subject(s, "a", permanent=permanent))

    register(registry, "a", avro("A"))
    register(registry, "a", avro("A", "x"))
    assert code_of(lambda: drop(permanent=True)) == 40405
    assert drop() == [1, 2]
    assert code_of(drop) == 40404
    assert registry.content(".", 1) is not None, "readers of old records still need it"
    assert register(registry, "a", avro("A", "x")).version == 3
    assert drop() == [3]
    assert drop(permanent=True) == [1, 2, 3]
    assert code_of(drop) == 40401
    assert registry.content(".", 1) is None


def test_normalized_schemas_match_in_any_order_of_attributes(registry: SchemaRegistry) -> None:
    one = '{"name":"R","type":"record","fields":[{"type":{"type":"long"},"name":"n"}]}'
    two = '{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}'
    first = register(registry, "a", one, normalize=True)
    assert first.content.text == two
    assert register(registry, "a", two, normalize=True) == first
    candidate = registry.candidate("a", SchemaContent("AVRO", one), normalize=True)
    assert registry.query(lambda s: decisions.found_version(s, candidate)) == first


def test_records_are_confluents_and_wrong_ones_are_passed_over() -> None:
    version = SubjectVersion("a", 1, 4, SchemaContent("JSON", "{}"))
    key, value = encode_record(VersionPut(version))
    assert json.loads(key) == {"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1}
    assert json.loads(value or b"")["id"] == 4
    assert decode_record(key, value) == VersionPut(version)
    spent = IdsSpent(".x", 9)
    assert decode_record(*encode_record(spent)) == spent
    hide = b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}'
    assert decode_record(hide, b'{"subject":"a","version":1}') == VersionsHidden("a", 1)
    assert decode_record(b'{"keytype":"NOOP","magic":0}', None) is None
    for wrong in (b"{", b"[]", b'{"keytype":"SCHEMA"}', key[:-3]):
        with pytest.raises(DataCorrupt):
            decode_record(wrong, value)
    with pytest.raises(DataCorrupt):
        decode_record(key, b'{"id":-1,"schema":"{}"}')
    rows = [(b"{", b""), (key, value), (hide, b'{"version":1}')]
    registry = SchemaRegistry(_FixedLog(rows))
    assert registry.query(lambda s: [v.deleted for v in s.versions("a", deleted=True)]) == [True]


def test_hostile_schemas_are_refused_before_they_cost_anything() -> None:
    for document, code in (
        ({"schema": "x" * 1_000_001}, 42209),
        ({"schema": ""}, 422),
        ({"schema": '"\ud800"'}, 422),
        ({"schema": "1", "schemaType": "XML"}, 42201),
        ({"schema": "1", "references": [{}]}, 42201),
        ({"schema": "1", "references": [{"name": "n", "subject": "s", "version": 1}] * 101}, 42201),
        ({"schema": "1", "metadata": {"a": "x" * 100_001}}, 422),
    ):
        assert code_of(lambda given=document: read_content(given)) == code
