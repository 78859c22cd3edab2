"""Writes Zarr v2 arrays below a folder with zarr-python, in random shapes, chunks, types, orders, compressors and filters, and the
contents of each as NAME.bytes, as zarr-python reads them back. Prints a line of JSON for each."""

import json
import os
import sys

try:
    import numcodecs
    import numpy as np
    import zarr
except ImportError:
    sys.exit(77)

FOLDER, SEED = sys.argv[1], int(sys.argv[2])
random = np.random.default_rng(SEED)
TYPES = ["|b1", "|i1", "|u1", "<i2", ">u2", "<u4", ">i4", "<i8", ">u8", "<f2", ">f4", "<f4", "<f8", ">f8", "<c8", ">c16"]


def pick(values):
    return values[int(random.integers(len(values)))]


def compressor():
    return pick([None, numcodecs.GZip(3), numcodecs.Zlib(4), numcodecs.Zstd(2), numcodecs.LZ4(), "default",
                 numcodecs.Blosc(pick(numcodecs.blosc.list_compressors()), 5, pick([-1, 0, 1, 2]))])


def filters(dtype):
    if dtype.kind == "b":
        return pick([None, [numcodecs.PackBits()]])
    if dtype.kind in "iu":
        return pick([None, [numcodecs.Delta(dtype=dtype)], [numcodecs.Shuffle(dtype.itemsize)]])
    if dtype.kind == "f" and dtype.itemsize > 2:
        return pick([None, [numcodecs.FixedScaleOffset(offset=1, scale=100, dtype=dtype, astype="<i4")], [numcodecs.Quantize(digits=1, dtype=dtype)]])
    return None


for k in range(90):
    dtype = np.dtype(pick(TYPES))
    rank = int(random.integers(0, 5))
    most = [1, 60, 20, 9, 6][rank]
    shape, chunks = tuple(int(n) for n in random.integers(1, most + 1, rank)), tuple(int(n) for n in random.integers(1, most // 2 + 2, rank))
    values = (random.normal(20, 10, shape) if dtype.kind in "fc" else random.integers(0, 100, shape)).astype(dtype)
    fill = pick([0, 1, None]) if dtype.kind in "biu" else pick([0, 1.5, np.nan, -np.inf, None])
    if dtype.kind == "b" and fill is not None:
        fill = bool(fill)
    name = f"array{k}"
    path = os.path.join(FOLDER, name)
    array = zarr.open_array(path, mode="w", shape=shape, chunks=chunks if rank else None, dtype=dtype, order=pick("CF"), fill_value=fill, compressor=compressor(),
                            filters=filters(dtype), dimension_separator=pick("./"), write_empty_chunks=bool(random.integers(2)))
    attributes = {"number": k, "text": "é"} if random.integers(2) else {}
    array.attrs.update(attributes)
    # A part of the array; chunks beyond it are missing. Without a fill value zarr-python returns whatever is in the memory, so all is written.
    part = tuple(slice(0, n if fill is None else int(random.integers(0, n + 1))) for n in shape)
    if fill is None or rank:
        array[part] = values[part]
    np.ascontiguousarray(array[...]).astype(dtype).tofile(path + ".bytes")
    with open(os.path.join(path, ".zarray")) as file:
        print(json.dumps({"name": name, "attributes": attributes, "meta": json.load(file)}))
