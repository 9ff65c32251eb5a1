"""The state of a registry: trials leave nothing behind, and a replay gives the same state."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.registry.model.schema import SchemaContent, SchemaReference, SubjectVersion
from sparklog.registry.records import (
    ConfigPut,
    IdsSpent,
    ModePut,
    RegistryRecord,
    VersionErased,
    VersionPut,
    VersionsHidden,
    decode_record,
    encode_record,
)
from sparklog.registry.state import RegistryState, replayed

SUBJECTS = st.sampled_from(["a", "b", ":.c:a"])
NUMBERS = st.integers(1, 3)
CONTENTS = st.builds(
    SchemaContent,
    st.just("AVRO"),
    st.sampled_from(['"int"', '"long"', '"string"']),
    st.lists(st.builds(SchemaReference, st.just("r"), SUBJECTS, NUMBERS), max_size=1).map(tuple),
)
RECORDS: st.SearchStrategy[RegistryRecord] = st.one_of(
    st.builds(SubjectVersion, SUBJECTS, NUMBERS, st.integers(1, 4), CONTENTS, st.booleans()).map(
        VersionPut
    ),
    st.builds(VersionErased, SUBJECTS, NUMBERS),
    st.builds(VersionsHidden, SUBJECTS, NUMBERS),
    st.builds(ConfigPut, SUBJECTS | st.none(), st.none() | st.just({"compatibilityLevel": "FULL"})),
    st.builds(ModePut, SUBJECTS | st.none(), st.none() | st.just("IMPORT")),
    st.builds(IdsSpent, st.sampled_from([".", ".c"]), st.integers(1, 9)),
)


def contents_of(state: RegistryState) -> dict[str, Any]:
    return {name: value for name, value in vars(state).items() if not name.endswith("journal")}


def plain(value: Any) -> Any:
    """Return dictionaries without those that are empty."""
    if isinstance(value, dict):
        return {k: p for k, v in value.items() if (p := plain(v)) not in ({}, frozenset())}
    return value


@settings(deadline=None)
@given(st.lists(RECORDS, max_size=12), st.lists(RECORDS, max_size=12))
def test_a_trial_leaves_the_state_as_it_was(
    first: list[RegistryRecord], tried: list[RegistryRecord]
) -> None:
    state = replayed(first)
    with state.trial():
        for record in tried:
            state.apply(record)
        during = plain(contents_of(state))
    assert contents_of(state) == contents_of(replayed(first))
    assert during == plain(contents_of(replayed(first + tried)))


@settings(deadline=None)
@given(st.lists(RECORDS, max_size=16))
def test_ids_and_references_are_found_by_every_index(records: list[RegistryRecord]) -> None:
    assert [decode_record(*encode_record(record)) for record in records] == records
    state = replayed(records)
    versions = [one for some in state.subjects.values() for one in some.values()]
    for one in versions:
        context = ".c" if one.subject.startswith(":") else "."
        assert state.content(context, one.schema_id) == one.content
        assert one in state.uses(context, one.schema_id)
        assert state.next_id(context) > one.schema_id
        place = state.place_of_guid(one.content.guid)
        assert place is not None
        assert state.content(*place) == one.content
        found = state.id_of(context, one.content.guid)
        assert found is not None
        assert state.content(context, found) == one.content
        for ref in one.content.references:
            assert one in state.referrers(ref.subject, ref.version)
    lost = state.content(".", 1) is not None and not state.uses(".", 1)
    assert not lost, "an id without a version has no content"
