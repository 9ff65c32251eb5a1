"""Public names of `import sparklog`, and the few modules that it loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sparklog

PUBLIC_NAMES = [
    "Admin",
    "CommitKey",
    "Consumer",
    "Log",
    "PartitionLog",
    "Producer",
    "SparklogError",
    "Topic",
    "TopicPartition",
    "open_log",
    "reported_usage",
]

HEAVY = (
    "pyspark", "delta", "numba", "pandas", "aiobotocore", "s3fs", "grpc", "confluent_kafka", "kio",
)  # fmt: skip


def loaded_by(statement: str) -> list[str]:
    """Return the heavy packages that a fresh interpreter has loaded after `statement`."""
    script = f"{statement}\nimport sys\nprint([m for m in {HEAVY!r} if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    return [word for word in HEAVY if f"'{word}'" in answer.stdout]


def test_the_public_names_are_these_and_no_others() -> None:
    assert sparklog.__all__ == sorted(PUBLIC_NAMES)
    assert all(hasattr(sparklog, name) for name in PUBLIC_NAMES)


def test_a_heavy_import_would_be_seen() -> None:
    assert loaded_by("import numba") == ["numba"]


@pytest.mark.parametrize(
    "statement",
    [
        "import sparklog",
        "import sparklog.cli.main",
        "import sparklog; sparklog.open_log('memory://empty').topics()",
    ],
)
def test_start_loads_no_spark_no_compiler_and_no_kafka_client(statement: str) -> None:
    assert loaded_by(statement) == []


def test_spark_finds_the_data_source_by_listing_modules() -> None:
    script = "import pkgutil; print([m.name for m in pkgutil.iter_modules()])"
    answer = subprocess.run(
        [sys.executable, "-c", script], cwd="/", check=True, capture_output=True, text=True
    )
    assert "'pyspark_sparklog'" in answer.stdout
