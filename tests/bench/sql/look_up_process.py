"""Fills a log on S3, or looks a key up there: the process whose seconds `look_ups` takes.

It loads what a program needs that looks up keys, and nothing else: each collection of garbage
goes through all that is loaded.
"""

from __future__ import annotations

import json
import sys
from typing import Final

import sparklog.sql.key_state
import sparklog.store.s3  # noqa: F401 - loaded before the clock starts
from sparklog.sql.queryable_log import QueryableLog, open_log
from sparklog.store.open import open_store
from tests.bench.common.rounds import timed
from tests.harness.log_records import batch

SEGMENTS: Final = 12
ROWS: Final = 1000
"""Of a segment."""
TOPIC: Final = "keys"
KEY: Final = b"deep"
VALUE: Final = b"of the ninth newest segment"
ROOT: Final = "s3://bench/log"
FILL: Final = "fill"
SECONDS: Final = "seconds"


def fill() -> None:
    """Write the segments; one has the key."""
    with open_log(ROOT) as log:
        log.create_topic(TOPIC, 1, {"sparklog.key.index": "bloom"})
        for number in range(SEGMENTS):
            keys = [b"%d" % (row * SEGMENTS + number) for row in range(ROWS)]
            values = [b"%064d" % row for row in range(ROWS)]
            if number == SEGMENTS - 9:
                keys, values = [*keys, KEY], [*values, VALUE]
            log.partition(TOPIC, 0).append([batch(values, keys=keys)])


def seconds() -> list[float]:
    """Return the seconds of the first and of the second look-up."""

    def opened() -> tuple[QueryableLog, bytes | None]:
        log = QueryableLog(open_store(ROOT))
        return log, log.get(TOPIC, KEY)

    first_s, (log, found) = timed(opened)
    next_s, again = timed(lambda: log.get(TOPIC, KEY))
    assert found == again == VALUE
    log.close()
    return [first_s, next_s]


if __name__ == "__main__":
    if sys.argv[1] == FILL:
        fill()
    else:
        print(json.dumps(seconds()))
