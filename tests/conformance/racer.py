"""A process that races for names: python racer.py ROOT ME NAMES. A line on stdin starts it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from sparklog.store.open import open_store


def main(root: str, me: str, names: int) -> None:
    store = open_store(root)
    list(store.list("warm/"))
    print("ready", flush=True)
    sys.stdin.readline()
    outcomes = [store.put_if_absent(f"race/{n:03}", me.encode()).value for n in range(names)]
    print(json.dumps(outcomes), flush=True)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
