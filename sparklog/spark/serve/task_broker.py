"""The broker of a task, as `sparklog serve` runs it. Only the task loads it.

The driver does not load the broker's code, which takes half a second of a processor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparklog.broker.runtime.identity import Ready


def run(
    root: str,
    configs: Mapping[str, str],
    *,
    stop: Callable[[], bool],
    ready: Callable[[Ready], None],
    note: Callable[[str], None],
) -> None:
    """Serve until `stop()` is true, drain, and return: the `BrokerEntry` of `sparklog serve`.

    Raises:
        SparklogError, OSError: as `sparklog.broker.main.run`.
    """
    from sparklog.broker.main import run as run_broker  # noqa: PLC0415 - not for the driver

    run_broker(root, configs, stop=stop, ready=ready, note=note)
