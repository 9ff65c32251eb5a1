"""The broker of a task, as `sparklog serve` runs it. Only the task loads it.

The driver does not load the broker's code, which takes half a second of a processor. In the task,
pyarrow would import pandas with the first list that it converts, though a broker has no tables of
pandas. That would take 0.3 s and 40 MB in each broker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa

from sparklog.broker.runtime.identity import Ready
from sparklog.core.hidden_imports import hidden

_PANDAS: Final = "pandas"


@contextmanager
def arrow_without_pandas() -> Iterator[None]:
    """Have pyarrow convert lists without pandas; at the end it knows pandas again.

    A process that has imported pandas already keeps it.
    """
    arrow: Any = pa.lib
    hides = _PANDAS not in sys.modules
    if hides:
        with hidden(_PANDAS):
            assert not arrow._pandas_api.have_pandas  # noqa: SLF001 - it looks once, and remembers
    try:
        yield
    finally:
        if hides:
            with suppress(ImportError):
                arrow._pandas_api.pd  # noqa: B018, SLF001 - it looks again


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
    with arrow_without_pandas():
        from sparklog.broker.main import run as run_broker  # noqa: PLC0415 - not for the driver

        run_broker(root, configs, stop=stop, ready=ready, note=note)
