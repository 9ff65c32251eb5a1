"""A session that was started without Delta Lake is refused before anything is written."""

from __future__ import annotations

from typing import cast

import pytest
from pyspark.sql import SparkSession

from sparklog.core.errors import InvalidRequest
from sparklog.spark.materialize.tables import own_session


class StartedWith:
    """The part of a session that `own_session` reads."""

    def __init__(self, **settings: str) -> None:
        self.conf = settings


def test_error_shows_how_to_start_the_application() -> None:
    session = cast("SparkSession", StartedWith())
    with pytest.raises(InvalidRequest, match=r"--packages io\.delta:.* --conf spark\.sql\.ext"):
        own_session(session)
