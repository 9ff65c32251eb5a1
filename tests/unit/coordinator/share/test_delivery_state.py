"""Keys by which FindCoordinator finds the coordinator of a share group's state."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.core.errors import InvalidRequest

TOPIC = "AAAAAAAAAAAAAAAAAAAABw"


@given(st.text(min_size=1), st.uuids(), st.integers(0, 2**31 - 1))
def test_any_key_is_read_again(group_id: str, topic_id: UUID, partition: int) -> None:
    key = SharePartitionKey(group_id, topic_id, partition)
    if topic_id.int:
        assert SharePartitionKey.parse(key.coordinator_key) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "g",
        f"g:{TOPIC}",
        f":{TOPIC}:0",
        f"g:{TOPIC}:",
        f"g:{TOPIC}:x",
        f"g:{TOPIC}:-1",
        f"g:{TOPIC}:+1",
        f"g:{TOPIC}:01",
        f"g:{TOPIC}: 1",
        f"g:{TOPIC}==:0",
        f"g:{TOPIC[1:]}:0",
        "g:AAAAAAAAAAAAAAAAAAAAAA:0",
        "g:AAAAAAAAAAAAAAAAAAAAA!!!!:0",
    ],
)
def test_other_texts_are_no_keys(text: str) -> None:
    with pytest.raises(InvalidRequest, match="group:topicId:partition"):
        SharePartitionKey.parse(text)
