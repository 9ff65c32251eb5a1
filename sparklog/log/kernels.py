"""All compiled kernels: what set-up compiles, so that no process has to wait for it later."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Final

from sparklog.protocol.jit import kept_in

KERNEL_MODULES: Final = (
    "sparklog.log.key_kernels",
    "sparklog.protocol.decode_kernels",
    "sparklog.protocol.encode_kernels",
    "sparklog.protocol.partition_kernels",
)


def kernels_are_kept() -> bool:
    """Return whether all kernels' code is beside their sources; loads no compiler."""
    return all(_is_kept(name) for name in KERNEL_MODULES)


def _is_kept(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is a module of ours"
    assert spec.origin is not None, f"{name} has a file"
    place = Path(spec.origin)
    return any(place.with_name("__pycache__").glob(f"{place.stem}.*.nbi"))


def compile_kernels() -> list[Path]:
    """Compile all kernels that are not kept yet, which takes seconds each; return the folders.

    An empty list says that no folder can keep them: every process compiles them for itself.
    """
    folders = set()
    for name in KERNEL_MODULES:
        for value in vars(importlib.import_module(name)).values():
            folder = kept_in(value)
            if folder is not None:
                folders.add(folder)
    return sorted(folders)
