"""Compiles kernels with numba, and caches the machine code for later processes.

Compiling takes seconds, loading milliseconds, and Spark starts many processes. numba caches code
beside the source, else in the user's cache folder (`NUMBA_CACHE_DIR` precedes both). A read-only
install or a user without a home can write to neither. Then a private folder under the system's
temporary folder is used. If that fails too, each process compiles the kernels. `sparklog warm-up`
may leave code beside the source. Users without write permission load it there, too; numba itself
looks only where it can write. Code is specific to a kind of processor.

JIT-1: A kernel calls only functions of its own module, because numba notices changes in that file
    alone. The exceptions, `copy_bytes` and `murmur2`, never change.
JIT-2: Cached code is loaded only from folders that no other user can write.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from sparklog.protocol.arrays import Bytes
from sparklog.protocol.kernel_folders import private_cache_folder

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger(__name__)

_numba = importlib.import_module("numba")
_numba_caching = importlib.import_module("numba.core.caching")
_numba_types = importlib.import_module("numba.core.types")
_numba_codegen = importlib.import_module("numba.core.cgutils")
_numba_extending = importlib.import_module("numba.extending")

_OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False}
"""Kernels allocate nothing, so numba's reference counts (`_nrt`) only cost:

with them a scan took fifteen times as long.
"""

_UNUSABLE_CACHE = (RuntimeError, OSError, EOFError, pickle.UnpicklingError)
"""numba's errors if it finds no folder, or cannot write or read the files in it."""


def kernel(signature: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function for exactly `signature`, without the interpreter lock, cached on disk."""

    def compile_now(function: Callable[P, R]) -> Callable[P, R]:
        if (kept := _kept_beside_source(function, signature)) is not None:
            return kept
        try:
            return _compile(function, signature, cache=True)
        except _UNUSABLE_CACHE as error:
            logger.debug("kernel cache unusable kernel=%s error=%s", function.__name__, error)
        try:
            with _private_cache():
                return _compile(function, signature, cache=True)
        except _UNUSABLE_CACHE as error:
            logger.debug("no kernel cache kernel=%s error=%s", function.__name__, error)
        return _compile(function, signature, cache=False)

    return compile_now


def kept_in(value: object) -> Path | None:
    """Return the folder with a kernel's cached code; None without a cache, or if not a kernel."""
    folder = getattr(getattr(value, "stats", None), "cache_path", None)
    return Path(folder) if isinstance(folder, str) else None


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function callable from kernels of its module; it is compiled into each of them."""
    return cast("Callable[P, R]", _numba.njit(**_OPTIONS, forceinline=True)(function))


def _copy_bytes_code(
    _typing: object, target: Any, target_at: object, source: Any, source_at: object, count: object
) -> tuple[Any, Callable[[Any, Any, Any, Any], Any]]:
    """Type and emit `copy_bytes` for numba: one memcpy, ten times a loop's speed."""
    position = _numba_types.int64
    signature = _numba_types.void(target, position, source, position, position)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        out_of = context.make_array(signature.args[2])(context, builder, arguments[2]).data
        _numba_codegen.raw_memcpy(
            builder,
            builder.gep(into, [arguments[1]]),
            builder.gep(out_of, [arguments[3]]),
            arguments[4],
            1,
        )
        return context.get_dummy_value()

    return signature, emit


copy_bytes = cast(
    "Callable[[Bytes, int, Bytes, int, int], None]",
    _numba_extending.intrinsic(_copy_bytes_code),
)
"""For kernels: copy (target, position, source, position, count). The caller checks bounds."""


def _compile(function: Callable[P, R], signature: str, *, cache: bool) -> Callable[P, R]:
    compiler = _numba.njit(signature, **_OPTIONS, cache=cache)
    return cast("Callable[P, R]", compiler(function))


class BesideSource(_numba_caching.InTreeCacheLocator):  # type: ignore[misc, name-defined]
    """Finds code beside the source, with or without write permission for that folder."""

    def ensure_cache_path(self) -> None:
        """Check only that the folder exists."""
        if not Path(self.get_cache_path()).is_dir():
            raise FileNotFoundError(self.get_cache_path())


def _kept_beside_source(function: Callable[P, R], signature: str) -> Callable[P, R] | None:
    """Return the kernel that set-up left beside the source, None if there is none."""
    folder = Path(inspect.getfile(function)).with_name("__pycache__")
    if _numba.config.CACHE_DIR or not folder.is_dir() or os.access(folder, os.W_OK):
        return None
    before = _numba.config.CACHE_LOCATOR_CLASSES
    _numba.config.CACHE_LOCATOR_CLASSES = f"{__name__}.{BesideSource.__name__}"
    try:
        found = _numba.njit(**_OPTIONS, cache=True)(function)
        if found._cache.load_overload(signature, found.targetctx) is None:  # noqa: SLF001 - see test_jit
            return None
        found.compile(signature)
        found.disable_compile()
        return cast("Callable[P, R]", found)
    except _UNUSABLE_CACHE as error:
        logger.debug("no kernel beside the source kernel=%s error=%s", function.__name__, error)
        return None
    finally:
        _numba.config.CACHE_LOCATOR_CLASSES = before


@contextmanager
def _private_cache() -> Iterator[None]:
    """Set numba's cache to a private folder during one compilation."""
    before = _numba.config.CACHE_DIR
    _numba.config.CACHE_DIR = str(private_cache_folder())
    try:
        yield
    finally:
        _numba.config.CACHE_DIR = before
