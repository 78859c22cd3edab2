"""Decoders of pictures, and NumPy's pictures of arrays."""

import struct
import zlib

import numpy as np


def decode_png(data):
    """Returns [rows, columns] or [rows, columns, 3]; 8-bit grey or RGB, not interlaced."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, header = 8, b"", None
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at:at + 4]), data[at + 4:at + 8]
        body = data[at + 8:at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0] == zlib.crc32(kind + body)
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    assert kind == b"IEND"
    columns, rows, depth, colour, _, _, interlaced = header
    assert (depth, interlaced) == (8, 0) and colour in (0, 2)
    pixel = 3 if colour == 2 else 1
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(rows, 1 + columns * pixel)
    out = np.zeros((rows, columns * pixel), np.uint8)
    for row in range(rows):
        kind, line = int(lines[row, 0]), lines[row, 1:].astype(int)
        above = out[row - 1].astype(int) if row else np.zeros(columns * pixel, int)
        if kind in (0, 2):
            out[row] = line + (above if kind == 2 else 0) & 255
            continue
        for i in range(columns * pixel):
            left = int(out[row, i - pixel]) if i >= pixel else 0
            corner = int(above[i - pixel]) if i >= pixel else 0
            guess = left + above[i] - corner
            paeth = min((abs(guess - left), 0, left), (abs(guess - above[i]), 1, above[i]), (abs(guess - corner), 2, corner))[2]
            out[row, i] = line[i] + {1: left, 3: (left + above[i]) // 2, 4: paeth}[kind] & 255
    return out if pixel == 1 else out.reshape(rows, columns, 3)


def jpeg_size(data):
    """Returns (rows, columns, channels) from the frame header."""
    assert data[:2] == b"\xff\xd8" and data[-2:] == b"\xff\xd9"
    at = 2
    while data[at + 1] not in (0xC0, 0xC2):
        at += 2 + struct.unpack(">H", data[at + 2:at + 4])[0]
    rows, columns, channels = struct.unpack(">HHB", data[at + 5:at + 10])
    return rows, columns, channels


def grey(values, lo, hi):
    scaled = (np.asarray(values, np.float64) - lo) * (255.0 / (hi - lo))
    return np.clip(np.floor(np.nan_to_num(scaled) + 0.5), 0, 255).astype(np.uint8)
