"""What may happen to an object: bytes flipped, its end cut off, all of it gone."""

from __future__ import annotations

from collections.abc import Callable

from sparklog.store.memory import MemoryStore


def flipped(at: float) -> Callable[[MemoryStore, str], None]:
    def flip(store: MemoryStore, key: str) -> None:
        data = bytearray(store.get(key))
        data[int(at * (len(data) - 1))] ^= 0x10
        store.put(key, bytes(data))

    return flip


def cut(store: MemoryStore, key: str) -> None:
    data = store.get(key)
    store.put(key, data[: len(data) * 2 // 3])


def deleted(store: MemoryStore, key: str) -> None:
    store.delete(key)


HARM: dict[str, Callable[[MemoryStore, str], None]] = {
    **{f"a byte flipped at {at}": flipped(at) for at in (0, 0.02, 0.3, 0.6, 0.9)},
    "cut off": cut,
    "deleted": deleted,
}
