"""Bounds on the sizes that an Avro value claims, in each JVM that reads values.

A few bytes may claim a text of two gigabytes, or a list of two billion items. Avro reserves memory
for the claim before it reads on. Java properties bound claims; Avro reads them when its first
value arrives. Source: `org.apache.avro.SystemLimitException` of Avro 1.12.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

from sparklog.core.errors import InvalidRequest
from sparklog.spark.access.json_text import BYTES_MAX

ITEMS_MAX: Final = 1 << 20
"""Items of one array or map of a value."""

_LIMITS: Final = {
    "org.apache.avro.limits.bytes.maxLength": BYTES_MAX,
    "org.apache.avro.limits.string.maxLength": BYTES_MAX,
    "org.apache.avro.limits.collectionItems.maxLength": ITEMS_MAX,
}
_EXECUTORS: Final = "spark.executor.defaultJavaOptions"


def avro_limits_conf() -> dict[str, str]:
    """Return the Spark setting that bounds claimed sizes on executors."""
    return {_EXECUTORS: _as_options()}


def bound_avro(spark: SparkSession) -> None:
    """Bound claimed sizes in the driver's JVM, which also runs the tasks of a local master.

    Raises:
        InvalidRequest: the executors of the session have no bounds, since another setting replaced
            `avro_limits_conf`.
    """
    bridge: Any = spark.sparkContext
    jvm, gateway = bridge._jvm, bridge._gateway  # noqa: SLF001 - Python has no other way
    for name, limit in _LIMITS.items():
        jvm.java.lang.System.setProperty(name, str(limit))
    # Another query of this JVM may have read Avro before.
    kind = jvm.java.lang.Class.forName("org.apache.avro.SystemLimitException")
    again = kind.getDeclaredMethod("resetLimits", gateway.new_array(jvm.java.lang.Class, 0))
    again.setAccessible(True)
    again.invoke(None, gateway.new_array(jvm.java.lang.Object, 0))
    conf = spark.sparkContext.getConf()
    given = (conf.get(_EXECUTORS, "") or "").split()
    missing = [option for option in _as_options().split() if option not in given]
    if missing and not _runs_tasks_itself(conf.get("spark.master", "") or ""):
        raise InvalidRequest(
            "executors would read Avro without bounds on claimed sizes. Add this to "
            f"{_EXECUTORS}: {' '.join(missing)}"
        )


def _runs_tasks_itself(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _as_options() -> str:
    return " ".join(f"-D{name}={limit}" for name, limit in _LIMITS.items())
