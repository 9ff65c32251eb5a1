"""Broker ids that applications take from the metadata log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.cluster.log import Log
from sparklog.cluster.metadata import snapshot
from sparklog.cluster.metadata.broker_ids import BLOCK, ids_of, take_ids
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import RegisterBrokerRecord
from sparklog.core.errors import InvalidRequest
from sparklog.store.memory import MemoryStore


def taken(image: MetadataImage, application: str, count: int) -> tuple[MetadataImage, range]:
    records = take_ids(image, application, count)
    after = image.applied(records, image.end_offset + len(records))
    return after, ids_of(after, application)


def test_applications_get_blocks_and_keep_them() -> None:
    image, blue = taken(MetadataImage(), "blue", 3)
    image, green = taken(image, "green", 3)
    assert (blue, green) == (range(1, 4), range(101, 104))
    again, same = taken(image, "blue", 3)
    assert (again, same) == (image, blue), "no record: they are its own already"
    image, fewer = taken(image, "blue", 2)
    assert fewer == blue
    image, more = taken(image, "blue", 5)
    assert more == range(1, 6)
    image, many = taken(image, "blue", BLOCK + 1)
    assert many == range(201, 302), "the next block is another application's"
    assert snapshot.decode(snapshot.encode(image), image.end_offset) == image


def test_a_block_avoids_brokers_with_ids_of_their_own_choice() -> None:
    image = MetadataImage().applied([RegisterBrokerRecord(2, "a", "localhost", 9092)], 1)
    assert taken(image, "blue", 3)[1] == range(101, 104)
    assert taken(image, "blue", 1)[1] == range(1, 2)


def test_applications_that_start_at_once_share_no_id() -> None:
    store = MemoryStore("ids")

    def take(name: str) -> range:
        with Log(store) as log:
            return log.take_broker_ids(name, 3)

    names = [f"app-{n}" for n in range(8)]
    with ThreadPoolExecutor(len(names)) as pool:
        blocks = list(pool.map(take, names))
    assert len({one for block in blocks for one in block}) == 24
    assert [take(name) for name in names] == blocks


@pytest.mark.parametrize("name", ["", "-x", "two words", "x" * 101, "a/b", "ä"])
def test_an_application_has_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidRequest, match="name of an application"):
        take_ids(MetadataImage(), name, 1)


def test_ids_run_out_at_kafkas_limit() -> None:
    with pytest.raises(InvalidRequest, match="no broker ids are left"):
        take_ids(MetadataImage(), "blue", 2**31)
