"""Counts of 12 bits as cameras pack them: two in three bytes."""

from __future__ import annotations

import numpy as np

from octavo.arguments import explained
from octavo.names import Names, short
from octavo.v1 import scan_pb2

MOST = 4095  # that 12 bits hold
PACKED = Names({"u12p": scan_pb2.RAW_TYPE_U12P, "u12_packed": scan_pb2.RAW_TYPE_U12_PACKED}, aliases={"mono12p": "u12p", "mono12packed": "u12_packed"})


def packed_bytes(columns: int) -> int:
    """Of a row of so many counts."""
    return (columns * 3 + 1) // 2


@explained()
def pack12(counts: np.ndarray, raw_type: str = "u12p") -> np.ndarray:
    """Packs whole numbers of 0 to 4095, an array [..., n], into bytes, uint8 [..., (3 n + 1) // 2]: rows of the frames of
    PushedProjections(raw_type=), records of scans whose raw_type it is.

    raw_type  "u12p": low bits first, GenICam's Mono12p; "u12_packed": high bits first, GigE Vision's Mono12Packed
    """
    kind = PACKED.pick("raw_type", raw_type)
    if kind not in PACKED.values():
        raise ValueError(f"raw_type is {short(raw_type)}; expected one of {', '.join(PACKED)}")
    values = np.asarray(counts)
    if values.dtype.kind not in "iu" or values.ndim == 0:
        raise ValueError(f"counts is {short(counts)}; expected an array of whole numbers, 0 to {MOST}")
    if values.size:
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > MOST:
            raise ValueError(f"counts has the value {low if low < 0 else high}; expected 0 to {MOST}, which 12 bits hold")
    return packed_rows(values.astype(np.uint16, copy=False), kind)


def packed_rows(values: np.ndarray, kind: int) -> np.ndarray:
    """The same of u16 that are known to fit. kind: a number of RawType."""
    first, second = values[..., 0::2], values[..., 1::2]
    packed = np.empty(values.shape[:-1] + (packed_bytes(values.shape[-1]),), np.uint8)
    middle = packed[..., 1::3]
    if kind == scan_pb2.RAW_TYPE_U12P:
        packed[..., 0::3] = first & 0xFF
        middle[...] = first >> 8
    else:
        packed[..., 0::3] = first >> 4
        middle[...] = first & 0xF
    middle[..., :second.shape[-1]] |= (second.astype(np.uint8) & 0xF) << 4  # the last of an odd number is alone
    packed[..., 2::3] = second >> 4
    return packed
