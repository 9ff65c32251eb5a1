"""All compiled kernels: set-up compiles them, so that no process waits for it later."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Final

from sparklog.protocol.kernel_folders import is_kept

KERNEL_MODULES: Final = (
    "sparklog.log.segment.key_kernels",
    "sparklog.protocol.records.decode_kernels",
    "sparklog.protocol.records.encode_kernels",
    "sparklog.protocol.records.schema_kernels",
    "sparklog.protocol.records.timestamp_kernels",
    "sparklog.protocol.partitioner.kernels",
)


def kernels_are_kept() -> bool:
    """Return True if the code of all kernels is in some folder; loads no compiler."""
    environment = os.environ  # noqa: TID251 - numba reads it as well
    return all(is_kept(_source_of(name), environment) for name in KERNEL_MODULES)


def _source_of(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is a module of ours"
    assert spec.origin is not None, f"{name} has a file"
    return Path(spec.origin)


def compile_kernels() -> list[Path]:
    """Compile all kernels that are not kept yet, which takes seconds each; return the folders.

    An empty list means that no folder can keep them: every process compiles them for itself.
    """
    from sparklog.protocol.jit import kept_in  # noqa: PLC0415 - loads numba

    folders = set()
    for name in KERNEL_MODULES:
        for value in vars(importlib.import_module(name)).values():
            folder = kept_in(value)
            if folder is not None:
                folders.add(folder)
    return sorted(folders)
