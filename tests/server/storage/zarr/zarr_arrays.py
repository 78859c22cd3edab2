"""Writes Zarr arrays below a folder, with NumPy, zlib and (if installed) numcodecs, and the
contents of each as NAME.bytes. Prints a line of JSON for each. Shares no code with the code under
test."""

import gzip
import json
import os
import sys
import zlib

try:
    import numpy as np
except ImportError:
    sys.exit(77)
try:
    import numcodecs
except ImportError:
    numcodecs = None

FOLDER, SEED = sys.argv[1], int(sys.argv[2])
random = np.random.default_rng(SEED)
TYPES = {"bool": "b1", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4", "int64": "i8", "uint64": "u8",
         "float16": "f2", "float32": "f4", "float64": "f8", "complex64": "c8", "complex128": "c16"}


def bits(value, v3):
    """A float as JSON: a number, a word, or in v3 sometimes its bits."""
    if v3 and random.integers(2):
        return "0x" + np.array([value]).astype(value.dtype.newbyteorder(">")).tobytes().hex()  # an element alone has no byte order
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


def fill_of(dtype, v3):
    """A fill value as an element, and as JSON."""
    kind = dtype.kind
    if kind == "b":
        value = dtype.type(random.integers(2))
        return value, bool(value)
    if kind in "iu":
        info = np.iinfo(dtype)
        value = random.integers(info.min, info.max, dtype=dtype.type, endpoint=True)
        if random.integers(2):
            value = dtype.type([info.min, info.max, 0, 1, info.max - 1][random.integers(5)])
        return value, int(value)
    part = {"f2": np.float16, "f4": np.float32, "f8": np.float64, "c8": np.float32, "c16": np.float64}[kind + str(dtype.itemsize)]
    def one():
        value = part(random.choice([np.nan, np.inf, -np.inf, 0.1, -0.0, np.finfo(part).max, np.finfo(part).tiny, random.normal()]))
        text = bits(value, v3)
        return value, text
    if kind == "f":
        return one()
    (re, re_text), (im, im_text) = one(), one()
    pair = np.zeros(1, dtype)
    pair.real[0], pair.imag[0] = re, im
    return pair[0], [re_text, im_text]


def compressors(v3):
    """Name, metadata, encoder."""
    yield "raw", None, lambda data: data
    level = int(random.integers(1, 10))
    description = (lambda name, **fields: {"name": name, "configuration": fields}) if v3 else (lambda name, **fields: {"id": name, **fields})
    yield "gzip", description("gzip", level=level), lambda data: gzip.compress(data, level)
    cut = lambda data: len(data) // 3  # noqa: E731
    yield "members", description("gzip", level=level), lambda data: gzip.compress(data[:cut(data)]) + gzip.compress(b"") + gzip.compress(data[cut(data):]) + gzip.compress(b"")
    if not v3:
        yield "zlib", description("zlib", level=level), lambda data: zlib.compress(data, level)
    for name, encode in (("trailing", lambda data: gzip.compress(data) + b"x"), ("zeros", lambda data: gzip.compress(data) + bytes(8)),
                         ("cut", lambda data: gzip.compress(data)[:-3]), ("longer", lambda data: gzip.compress(data) + gzip.compress(b"x")),
                         ("half", lambda data: gzip.compress(data) + gzip.compress(b"")[:11]), ("wrapped", lambda data: zlib.compress(data))):
        yield "error_" + name, description("gzip", level=1), encode
    if numcodecs is not None:
        yield "zstd", description("zstd", level=3, **({"checksum": False} if v3 else {})), numcodecs.Zstd(3).encode
        for cname in ("lz4", "zstd"):
            shuffle = int(random.integers(3))
            words = ["noshuffle", "shuffle", "bitshuffle"]
            codec = numcodecs.Blosc(cname, 5, shuffle)
            yield "blosc_" + cname, description("blosc", cname=cname, clevel=5, shuffle=words[shuffle] if v3 else shuffle, blocksize=0, **({"typesize": 2} if v3 else {})), codec.encode


def array(name, v3, data_type, compressor, encode, error):
    order = "<>"[random.integers(2)]
    dtype = np.dtype(order + TYPES[data_type])
    rank = int(random.integers(1, 4))
    shape = [int(n) for n in random.integers(1, 12, rank)]
    chunks = [int(n) for n in random.integers(1, 7, rank)]
    fill, fill_text = fill_of(np.dtype(TYPES[data_type]), v3)
    whole = np.full([-(-n // c) * c for n, c in zip(shape, chunks)], fill).astype(dtype)
    bits_of_fill = np.array([fill], dtype.newbyteorder("=")).astype(dtype).tobytes()
    whole.view("V%d" % dtype.itemsize)[...] = np.frombuffer(bits_of_fill, "V%d" % dtype.itemsize)[0]  # the bits, of NaN too
    path = os.path.join(FOLDER, name)
    os.makedirs(path)
    separator = "/."[random.integers(2)]
    grid = [-(-n // c) for n, c in zip(shape, chunks)]
    for key in np.ndindex(*grid):
        if not error and random.integers(3) == 0:
            continue  # a chunk that is not there
        chunk = np.frombuffer(random.bytes(int(np.prod(chunks)) * dtype.itemsize), "u1")
        if data_type == "bool":
            chunk = chunk & 1
        chunk = chunk.view(dtype).reshape(chunks)
        whole.view("V%d" % dtype.itemsize)[tuple(slice(k * c, (k + 1) * c) for k, c in zip(key, chunks))] = chunk.view("V%d" % dtype.itemsize)
        file = separator.join((["c"] if v3 else []) + [str(k) for k in key])
        os.makedirs(os.path.join(path, os.path.dirname(file)), exist_ok=True)
        with open(os.path.join(path, file), "wb") as out:
            out.write(bytes(encode(chunk.tobytes())))
    if v3:
        codecs = [{"name": "bytes", "configuration": {"endian": "big" if order == ">" else "little"}}] + ([compressor] if compressor else [])
        meta = {"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": separator}}, "fill_value": fill_text, "codecs": codecs}
    else:
        meta = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": (order if dtype.itemsize > 1 else "|") + TYPES[data_type], "compressor": compressor,
                "fill_value": fill_text, "order": "C", "filters": None, "dimension_separator": separator}
    with open(os.path.join(path, "zarr.json" if v3 else ".zarray"), "w") as out:
        json.dump(meta, out)
    whole[tuple(slice(0, n) for n in shape)].tofile(path + ".bytes")
    about = {"name": name, "shape": shape, "meta": meta}
    if error:
        about["error"] = "gzip"
    print(json.dumps(about))


for v3 in (False, True):
    for data_type in TYPES:
        for kind, compressor, encode in compressors(v3):
            array(f"v{3 if v3 else 2}_{data_type}_{kind}", v3, data_type, compressor, encode, kind.startswith("error"))
