"""8-bit grey PNG files without further packages."""

from __future__ import annotations

import struct
import zlib
from typing import Optional, Sequence

import numpy as np

from octavo.arguments import array, explained, several


def no_fractions(field: str, lo: float, hi: float) -> None:
    """ValueError for percentiles that were given as fractions."""
    if 0 <= lo < hi <= 1:
        raise ValueError(f"{field} is {(lo, hi)}, which look like fractions; expected percentiles, 0 to 100: ({100 * lo:g}, {100 * hi:g}) for these")


@explained()
def write_png(path: str, image: np.ndarray, lo: Optional[float] = None, hi: Optional[float] = None,
              percentiles: Sequence[float] = (1, 99.8)) -> None:
    """Writes image [rows, columns]; lo becomes black, hi white, NaN black. Missing limits are
    chosen by `percentiles` of the finite values; lo and hi of Frame.display are the same for all
    pictures of a scan."""
    values = array("image", np.abs(image) if np.iscomplexobj(image) else image, np.float64, "[rows, columns]")
    percentiles = several("percentiles", percentiles, "lo, hi")
    if not 0 <= percentiles[0] < percentiles[1] <= 100:
        raise ValueError(f"percentiles is {percentiles}; expected 0 <= lo < hi <= 100")
    no_fractions("percentiles", *percentiles)
    if lo is not None and hi is not None and not lo < hi:
        raise ValueError(f"lo is {lo} and hi is {hi}; expected lo < hi")
    finite = values[np.isfinite(values)]
    chosen = np.percentile(finite, percentiles) if finite.size else (0.0, 1.0)
    lo, hi = chosen[0] if lo is None else lo, chosen[1] if hi is None else hi
    scaled = (values - lo) * (255.0 / max(hi - lo, 1e-30))
    grey = np.clip(np.nan_to_num(scaled, nan=0.0) + 0.5, 0, 255).astype(np.uint8)
    rows, columns = grey.shape
    lines = np.zeros((rows, columns + 1), np.uint8)  # a filter byte of 0 before each row
    lines[:, 1:] = grey

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(lines.tobytes(), 6)) + chunk(b"IEND", b""))
