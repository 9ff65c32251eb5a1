"""The broker of a task, as `sparklog serve` runs it. Only the task loads it.

The driver does not load the broker's code, which takes half a second of a processor.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping

from sparklog.broker.runtime.identity import Ready
from sparklog.core.hidden_imports import hidden


def run(
    root: str,
    configs: Mapping[str, str],
    *,
    stop: Callable[[], bool],
    ready: Callable[[Ready], None],
    note: Callable[[str], None],
) -> None:
    """Serve until `stop()` is true, drain, and return: the `BrokerEntry` of `sparklog serve`.

    Garbage collection pauses until the broker serves, which then collects once. A start makes
    little garbage and many objects, which the collector would look at again and again.

    Raises:
        SparklogError, OSError: as `sparklog.broker.main.run`.
    """
    _keep_pandas_out()
    gc.disable()
    try:
        from sparklog.broker.main import run as run_broker  # noqa: PLC0415 - not for the driver

        run_broker(root, configs, stop=stop, ready=ready, note=note)
    finally:
        gc.enable()


def _keep_pandas_out() -> None:
    """Have Arrow look for pandas now, and not find it.

    Arrow imports pandas at the first list that it converts, to recognize a series. That takes a
    broker 0.2 s and 32 MB, and it converts no series. `to_pandas` imports it later, if called.
    """
    import pyarrow as pa  # noqa: PLC0415 - not for the driver

    with hidden("pandas"):
        pa.array([0])
