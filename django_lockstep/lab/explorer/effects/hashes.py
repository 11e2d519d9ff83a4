"""PostgreSQL's hash of a text, by which names become keys of advisory locks.

Partitions by hash are stored by it, so that it is the same on every version since 11.
"""

from __future__ import annotations

__all__ = ["hashed_text"]

_MASK = 0xFFFFFFFF
_MIX, _FINAL = (4, 6, 8, 16, 19, 4), (14, 11, 25, 16, 4, 14, 24)
_BLOCK = 12


def hashed_text(text: str, seed: int) -> int:
    """Return what ``hashtextextended`` does for an ASCII text: a signed number of 64 bits.

    After B. Jenkins, "lookup3", 2006, with the start and the seed of ``hash_bytes_extended`` in the server's hashfn.c.
    """
    data = text.encode("ascii")
    state = [(0x9E3779B9 + len(data) + 3923095) & _MASK] * 3
    if seed:
        _add(state, [seed >> 32, seed, 0])
        _mix(state)
    whole = len(data) - len(data) % _BLOCK
    for start in range(0, whole, _BLOCK):
        _add(state, _words(data[start : start + _BLOCK]))
        _mix(state)
    rest = data[whole:]
    # The lowest byte of the last word is left to the length.
    _add(state, _words(rest[:8].ljust(9, b"\0") + rest[8:]))
    _finish(state)
    number = state[1] << 32 | state[2]
    return number - (1 << 64) if number >> 63 else number


def _words(data: bytes) -> list[int]:
    padded = data.ljust(_BLOCK, b"\0")
    return [int.from_bytes(padded[start : start + 4], "little") for start in (0, 4, 8)]


def _add(state: list[int], words: list[int]) -> None:
    state[:] = [(one + other) & _MASK for one, other in zip(state, words, strict=True)]


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _MASK


def _mix(state: list[int]) -> None:
    for turn, bits in enumerate(_MIX):
        to, by, other = turn % 3, (turn + 2) % 3, (turn + 1) % 3
        state[to] = (state[to] - state[by] & _MASK) ^ _rotated(state[by], bits)
        state[by] = state[by] + state[other] & _MASK


def _finish(state: list[int]) -> None:
    for turn, bits in enumerate(_FINAL):
        to, by = (turn + 2) % 3, (turn + 1) % 3
        state[to] = (state[to] ^ state[by]) - _rotated(state[by], bits) & _MASK
