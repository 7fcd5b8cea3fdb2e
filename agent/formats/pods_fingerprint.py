"""The pods fingerprint of NodeResourceTopology: `pfp0v001` and a hash over the names of pods.

A scheduler compares it with the pods it knows of: only an object about the same pods may replace what it has reserved. Each pod
is hashed as its name, seeded with the hash of its namespace; the hashes, sorted, are hashed in order. Source:
k8stopologyawareschedwg/podfingerprint.
"""

from __future__ import annotations

from collections.abc import Iterable

PREFIX = "pfp0v001"
ATTRIBUTE = "nodeTopologyPodsFingerprint"
METHOD_ATTRIBUTE = "nodeTopologyPodsFingerprintMethod"

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """The fingerprint of these (namespace, name) pairs, in any order."""
    hashes = sorted(xxh64(name.encode(), seed=xxh64(namespace.encode())) for namespace, name in pods)
    return f"{PREFIX}{xxh64(b''.join(each.to_bytes(8, 'little') for each in hashes)):016x}"


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64 as an unsigned 64-bit number (xxHash fast digest algorithm, version 0.1.1)."""
    position, length = 0, len(data)
    if length >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed & _MASK, (seed - _P1) & _MASK]
        while position <= length - 32:
            for index in range(4):
                word = int.from_bytes(data[position : position + 8], "little")
                lanes[index] = _round(lanes[index], word)
                position += 8
        digest = sum(_rotate(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            digest = ((digest ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        digest = (seed + _P5) & _MASK
    return _avalanche(_tail((digest + length) & _MASK, data[position:]))


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _tail(digest: int, rest: bytes) -> int:
    while len(rest) >= 8:
        digest ^= _round(0, int.from_bytes(rest[:8], "little"))
        digest = (_rotate(digest, 27) * _P1 + _P4) & _MASK
        rest = rest[8:]
    if len(rest) >= 4:
        digest ^= int.from_bytes(rest[:4], "little") * _P1 & _MASK
        digest = (_rotate(digest, 23) * _P2 + _P3) & _MASK
        rest = rest[4:]
    for byte in rest:
        digest = _rotate(digest ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    return digest


def _avalanche(digest: int) -> int:
    digest = (digest ^ digest >> 33) * _P2 & _MASK
    digest = (digest ^ digest >> 29) * _P3 & _MASK
    return digest ^ digest >> 32


def _rotate(value: int, turn: int) -> int:
    return (value << turn | value >> 64 - turn) & _MASK
