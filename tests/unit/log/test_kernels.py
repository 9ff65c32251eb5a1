"""Set-up compiles every kernel there is."""

from __future__ import annotations

from sparklog.log.kernels import KERNEL_MODULES, compile_kernels, kernels_are_kept
from tests.tidy.tree import python_sources


def test_every_module_with_kernels_is_compiled_at_set_up() -> None:
    having = {
        source.path.removesuffix(".py").replace("/", ".")
        for source in python_sources("sparklog")
        if "\n@kernel(" in source.text
    }
    assert having == set(KERNEL_MODULES)


def test_compiled_kernels_are_kept_in_folders_that_are_named() -> None:
    folders = compile_kernels()
    assert folders
    assert all(list(folder.glob("*.nbc")) for folder in folders)
    assert kernels_are_kept()
