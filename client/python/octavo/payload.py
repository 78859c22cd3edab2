"""Where the bytes of a large field lie in a message as it came.

protobuf's own parser copies a bytes field into a new object of Python. For voxels that is one copy of all that is read, made while no other
thread of the program can run. So the message is taken as gRPC gives it, the field is found in it, and all other fields go to protobuf."""

from __future__ import annotations

from typing import Tuple

from google.protobuf.message import DecodeError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; groups (3, 4) are not in the contract


def _varint(message: bytes, at: int) -> Tuple[int, int]:
    """The number at `at`, 7 bits a byte, lowest first, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise DecodeError("the message is cut off within a number, or the number has more than 64 bits")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def find(message: bytes, field: int) -> Tuple[bytes, int, int]:
    """(other fields, begin, end): the bytes field of that number is message[begin:end], and the rest is a message of its own, as protobuf parses
    it. begin = end if the field is not there; of several the last one counts. DecodeError for what is no message."""
    rest, begin, end, at, kept = [], 0, 0, 0, 0  # kept: where the fields begin that are not in `rest` yet
    while at < len(message):
        start = at
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(message, at)
        elif kind == _FIXED64:
            at += 8
        elif kind == _FIXED32:
            at += 4
        elif kind == _BYTES:
            size, at = _varint(message, at)
            if tag >> 3 == field:
                rest.append(message[kept:start])
                begin, end = at, at + size
                kept = end
            at += size
        else:
            raise DecodeError(f"the message has a field of the wire type {kind}")
        if at > len(message) or not tag >> 3:
            raise DecodeError("the message is cut off, or has a field without a number")
    rest.append(message[kept:])
    return b"".join(rest), begin, end
