"""8-bit grey PNG files without further packages."""

from __future__ import annotations

import struct
import zlib

import numpy as np


def write_png(path: str, image: np.ndarray, lo: float = 0.0, hi: float = 255.0) -> None:
    """Writes image [rows, columns]; lo becomes black, hi white, NaN black."""
    scaled = (np.asarray(image, np.float64) - lo) * (255.0 / (hi - lo))
    grey = np.clip(np.nan_to_num(scaled, nan=0.0) + 0.5, 0, 255).astype(np.uint8)
    rows, columns = grey.shape
    lines = np.zeros((rows, columns + 1), np.uint8)  # a filter byte of 0 before each row
    lines[:, 1:] = grey

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(lines.tobytes(), 6)) + chunk(b"IEND", b""))
