"""A session that was started without Delta Lake is refused before anything is written."""

from __future__ import annotations

from typing import cast

import pytest
from pyspark.sql import SparkSession

from sparklog.core.errors import InvalidRequest
from sparklog.spark.jars import DELTA_SESSION
from sparklog.spark.materialize_tables import own_session


class StartedWith:
    """What `own_session` looks at of a session."""

    def __init__(self, **settings: str) -> None:
        self.conf = settings


@pytest.mark.parametrize("missing", list(DELTA_SESSION))
def test_the_error_says_how_to_start_the_application(missing: str) -> None:
    settings = {name: value for name, value in DELTA_SESSION.items() if name != missing}
    session = cast("SparkSession", StartedWith(**settings))
    with pytest.raises(InvalidRequest, match=f"--packages io.delta:.* --conf {missing}="):
        own_session(session)
