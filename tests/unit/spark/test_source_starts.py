"""Imports of Spark's Python processes with the data source: each process waits for them."""

from __future__ import annotations

import subprocess
import sys


def test_the_source_loads_neither_kafkas_messages_nor_a_compiler() -> None:
    code = (
        "import sys, sparklog.spark.datasource\n"
        "heavy = {'kio', 'numba', 'pandas', 'confluent_kafka', 'asyncio', 's3fs'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=400, check=True
    )
    assert done.stdout == "[]\n"
