"""A process that uses a store, forks, and uses it on both sides: python forker.py ROOT CHILDREN."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from sparklog.store.base import ObjectStore, PutOutcome
from sparklog.store.open import open_store

ROUNDS = 20


def use(store: ObjectStore, who: str) -> None:
    for n in range(ROUNDS):
        key = f"{who}/{n:03}"
        assert store.put_if_absent(key, key.encode()) is PutOutcome.CREATED, key
        assert store.get(key) == key.encode(), key
    assert len(list(store.list(f"{who}/"))) == ROUNDS


def fork(store: ObjectStore, who: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        use(store, who)
        store.close()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(root: str, children: int) -> None:
    store = open_store(root)
    use(store, "before")
    pids = [fork(store, f"child-{n}") for n in range(children)]
    use(store, "parent")
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids), "a child failed"
    use(store, "after")
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
