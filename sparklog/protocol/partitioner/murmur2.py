"""Kafka's key hash, murmur2 of 32 bits, in plain Python that numba compiles as it is.

Every Kafka client uses it to choose a key's partition, so it never changes. It imports nothing.
Source: Java's org.apache.kafka.common.utils.Utils.murmur2.
"""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes, start: int, end: int) -> int:
    """Return the hash of `data[start:end]`, as an unsigned number of 32 bits.

    In compiled code `data` is an array of `uint8`.
    """
    length = end - start
    state = _SEED ^ length
    position = start
    while position + 4 <= end:
        word = (
            (data[position] & 0xFF)
            | (data[position + 1] & 0xFF) << 8
            | (data[position + 2] & 0xFF) << 16
            | (data[position + 3] & 0xFF) << 24
        )
        word = (word * _MULTIPLIER) & _MASK
        word = ((word ^ (word >> 24)) * _MULTIPLIER) & _MASK
        state = ((state * _MULTIPLIER) & _MASK) ^ word
        position += 4
    if position < end:
        for index in range(end - position):
            state ^= (data[position + index] & 0xFF) << (8 * index)
        state = (state * _MULTIPLIER) & _MASK
    state = ((state ^ (state >> 13)) * _MULTIPLIER) & _MASK
    return state ^ (state >> 15)
