"""Requests of a protocol to a store, recorded while it runs."""

from __future__ import annotations

from sparklog.log.effects import Effect, Program, Result, perform
from sparklog.store.base import ObjectStore


def run_noting(protocol: Program[Result], store: ObjectStore, effects: list[Effect]) -> Result:
    """Run a protocol and return its result; `effects` holds what it asked for, and nothing else."""
    effects.clear()
    try:
        effect = next(protocol)
        while True:
            effects.append(effect)
            effect = protocol.send(perform(effect, store))
    except StopIteration as end:
        result: Result = end.value
        return result
