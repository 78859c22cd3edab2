"""Writes Zarr arrays below a folder, with NumPy, zlib and numcodecs, from the specifications of Zarr v2 and v3 and of numcodecs, and
the contents of each as NAME.bytes. Prints a line of JSON for each. Shares no code with the code under test.

Elements are bytes here: an array has one axis more than its shape, the bytes of an element in native (little-endian) order."""

import gzip
import json
import os
import struct
import sys
import zlib

try:
    import numcodecs
    import numpy as np
except ImportError:
    sys.exit(77)

FOLDER, SEED = sys.argv[1], int(sys.argv[2])
random = np.random.default_rng(SEED)
TYPES = {"bool": "b1", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4", "int64": "i8", "uint64": "u8",
         "float16": "f2", "float32": "f4", "float64": "f8", "complex64": "c8", "complex128": "c16", "r24": "V3", "r8": "V1", "r64": "V8"}
ABSENT = 2**64 - 1


def chance(probability):
    return random.random() < probability


def pick(values):
    return values[int(random.integers(len(values)))]


def crc32c(data):
    """RFC 3720, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


def components(code):
    """Bytes that a change of the byte order reverses."""
    size = int(code[1:])
    return 1 if code[0] == "V" else size // 2 if code[0] == "c" else size


def swapped(elements, code):
    part = components(code)
    return elements.reshape(elements.shape[:-1] + (-1, part))[..., ::-1].reshape(elements.shape)


def float_text(value, v3):
    """A float as JSON: a number, a word, or in v3 sometimes its bits."""
    if v3 and chance(0.5):
        return "0x" + np.array([value]).astype(value.dtype.newbyteorder(">")).tobytes().hex()  # an element alone has no byte order
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


def fill_of(code, v3):
    """A fill value as the bytes of an element, and as JSON."""
    if code[0] == "V":
        value = random.bytes(int(code[1:]))
        import base64
        return value, list(value) if v3 else base64.b64encode(value).decode()
    dtype = np.dtype("<" + code)
    if not v3 and chance(0.1):
        return bytes(dtype.itemsize), None
    if dtype.kind == "b":
        value = bool(random.integers(2))
        return bytes([value]), value
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        value = random.integers(info.min, info.max, dtype=dtype.type, endpoint=True)
        if chance(0.5):
            value = dtype.type(pick([info.min, info.max, 0, 1, info.max - 1]))
        return np.array([value], dtype).tobytes(), int(value)
    part = {"f2": np.float16, "f4": np.float32, "f8": np.float64, "c8": np.float32, "c16": np.float64}[code]

    def one():
        value = part(random.choice([np.nan, np.inf, -np.inf, 0.1, -0.0, np.finfo(part).max, np.finfo(part).tiny, random.normal()]))
        text = float_text(value, v3)
        return value.tobytes(), text
    if dtype.kind == "f":
        return one()
    (re, re_text), (im, im_text) = one(), one()
    return re + im, [re_text, im_text]


def contents(shape, code, fill):
    """Random elements, with parts that hold only the fill value."""
    size = int(code[1:])
    out = np.frombuffer(random.bytes(int(np.prod(shape)) * size), "u1").reshape(*shape, size).copy()
    if code == "b1":
        out &= 1
    elif chance(0.5):
        out[...] = out & 3  # compresses
    for _ in range(int(random.integers(3))):
        out[tuple(slice(int(random.integers(n + 1)), None) if chance(0.5) else slice(0, int(random.integers(n + 1))) for n in shape)] = np.frombuffer(fill, "u1")
    return out


def blosc(size):
    cname, shuffle = pick([name for name in numcodecs.blosc.list_compressors()]), int(random.integers(3))
    codec = numcodecs.Blosc(cname, int(random.integers(10)), shuffle, int(pick([0, 0, 256, 4096])))
    return cname, shuffle, lambda data: bytes(codec.encode(np.frombuffer(data, "u%d" % size if size in (1, 2, 4, 8) and len(data) % size == 0 else "u1")))


def zstd(data, checksum, known):
    """One frame, or two; numcodecs cannot write checksums or leave out the size."""
    codec = numcodecs.Zstd(int(random.integers(1, 6)))
    if known:
        return bytes(codec.encode(data))
    cut = len(data) // 2
    return bytes(codec.encode(data[:cut])) + bytes(codec.encode(data[cut:]))


def v3_bytes_codec(size):
    """A codec from bytes to bytes: JSON, encoder."""
    kind = pick(["gzip", "zstd", "blosc", "crc32c"])
    if kind == "gzip":
        level = int(random.integers(10))
        return {"name": "gzip", "configuration": {"level": level}}, lambda data: gzip.compress(data, level) if chance(0.7) else gzip.compress(data[:5]) + gzip.compress(data[5:])
    if kind == "zstd":
        return {"name": "zstd", "configuration": {"level": 3, "checksum": False}}, lambda data: zstd(data, False, chance(0.7))
    if kind == "blosc":
        cname, shuffle, encode = blosc(size)
        return {"name": "blosc", "configuration": {"cname": cname, "clevel": 5, "shuffle": ["noshuffle", "shuffle", "bitshuffle"][shuffle], "typesize": size, "blocksize": 0}}, encode
    return pick([{"name": "crc32c"}, "crc32c", {"name": "crc32c", "configuration": {}}]), lambda data: data + crc32c(data)


def v3_chain(shape, code, fill, endian, depth=0):
    """Codecs of chunks of a shape: JSON, encoder of elements (u1, [*shape, size])."""
    size, codecs, before, rank = int(code[1:]), [], [], len(shape)
    while chance(0.4) and len(before) < 3:
        order = [int(n) for n in random.permutation(rank)]
        codecs.append({"name": "transpose", "configuration": {"order": order}})
        before.append(order)
        shape = [shape[n] for n in order]
    if depth < 3 and chance(0.45 if depth == 0 else 0.25):
        inner = [pick([d for d in range(1, n + 1) if n % d == 0]) for n in shape]
        inner_codecs, inner_encode = v3_chain(inner, code, fill, endian, depth + 1)
        index_order, checks, location = pick("<>"), int(pick([0, 1, 1, 1, 2])), pick(["start", "end", "default"])
        configuration = {"chunk_shape": inner, "codecs": inner_codecs,
                         "index_codecs": [{"name": "bytes", "configuration": {"endian": "big" if index_order == ">" else "little"}}] + [{"name": "crc32c"}] * checks}
        if location != "default":
            configuration["index_location"] = location
        codecs.append({"name": "sharding_indexed", "configuration": configuration})

        def to_bytes(elements):
            grid = [n // c for n, c in zip(shape, inner)]
            places = list(np.ndindex(*grid))
            index = np.full((len(places), 2), ABSENT, "u8")
            index_bytes = 16 * len(places) + 4 * checks
            body, begin = b"", index_bytes if location == "start" else 0
            for k in random.permutation(len(places)):
                part = elements[tuple(slice(p * c, (p + 1) * c) for p, c in zip(places[k], inner))]
                if (part == np.frombuffer(fill, "u1")).all() and chance(0.8):
                    continue
                if chance(0.2):
                    body += random.bytes(int(random.integers(9)))  # a gap
                data = inner_encode(part)
                index[k] = begin + len(body), len(data)
                body += data
            text = index.astype(index_order + "u8").tobytes()
            for _ in range(checks):
                text += crc32c(text)
            return text + body if location == "start" else body + text
    else:
        ordered = size > 1 and code[0] != "V"
        codecs.append({"name": "bytes", "configuration": {"endian": endian}} if ordered or chance(0.3) else pick([{"name": "bytes"}, "bytes"]))

        def to_bytes(elements):
            return (swapped(elements, code) if endian == "big" else elements).tobytes()
    after = []
    while chance(0.45) and len(after) < 4:
        codec, encode = v3_bytes_codec(size)
        codecs.append(codec)
        after.append(encode)

    def encode_all(elements):
        for order in before:
            elements = elements.transpose(*order, len(order))
        data = to_bytes(elements)
        for encode in after:
            data = encode(data)
        return data
    return codecs, encode_all


def v2_filters(code, dtype):
    """Filters of numcodecs for elements of a type, and whether the elements must be usual numbers."""
    kind, size, order = code[0], int(code[1:]), dtype.str[0] if dtype.str[0] in "<>" else "<"
    choices = [[], [numcodecs.Shuffle(size)]]
    if kind == "b":
        choices += [[numcodecs.PackBits()]] * 3
    if kind in "iu":
        wider = order + kind + str(min(8, 2 * size)) if size > 1 or size * 2 > 1 else dtype.str
        choices += [[numcodecs.Delta(dtype=dtype.str)], [numcodecs.Delta(dtype=dtype.str), numcodecs.Shuffle(size)],
                    [numcodecs.Delta(dtype=dtype.str, astype=wider)], [numcodecs.AsType(encode_dtype="<i8", decode_dtype=dtype.str)] if code != "u8" else []]
    if code in ("f4", "f8"):
        choices += [[numcodecs.Delta(dtype=dtype.str)], [numcodecs.FixedScaleOffset(offset=5, scale=10, dtype=dtype.str, astype=pick(["<i2", ">i4", "|u1", dtype.str]))],
                    [numcodecs.Quantize(digits=2, dtype=dtype.str, astype=pick([dtype.str, "<f4"]))], [numcodecs.AsType(encode_dtype="<f4", decode_dtype=dtype.str)],
                    [numcodecs.Quantize(digits=2, dtype=dtype.str), numcodecs.Shuffle(4)], [numcodecs.AsType(encode_dtype=">f2", decode_dtype=dtype.str)]]
    return pick(choices)


def v2_compressor(size):
    """JSON and encoder."""
    kind = pick(["raw", "gzip", "zlib", "zstd", "lz4", "blosc"])
    level = int(random.integers(1, 10))
    if kind == "raw":
        return None, lambda data: data
    if kind == "gzip":
        return {"id": "gzip", "level": level}, lambda data: gzip.compress(data, level)
    if kind == "zlib":
        return {"id": "zlib", "level": level}, lambda data: zlib.compress(data, level)
    if kind == "zstd":
        return {"id": "zstd", "level": level}, lambda data: zstd(data, False, True)
    if kind == "lz4":
        return {"id": "lz4", "acceleration": 1}, lambda data: bytes(numcodecs.LZ4().encode(data))
    cname, shuffle, encode = blosc(size)
    return {"id": "blosc", "cname": cname, "clevel": level, "shuffle": shuffle, "blocksize": 0}, encode


def shapes(most_rank=4, least_rank=0, least=0):
    rank = int(random.integers(least_rank, most_rank + 1))
    most = [1, 40, 14, 8, 5, 4][rank]
    return [int(n) for n in random.integers(max(least, 1 if chance(0.95) else 0), most + 1, rank)], [int(n) for n in random.integers(1, most // 2 + 3, rank)]


def write(name, v3, meta, shape, chunks, separator, prefix, elements, keep, encode, expected=None, about=None):
    """The files of an array; `keep(key)` says whether a chunk is written."""
    path = os.path.join(FOLDER, name)
    os.makedirs(path)
    grid = [-(-n // c) for n, c in zip(shape, chunks)]
    for key in np.ndindex(*grid):
        part = elements[tuple(slice(k * c, (k + 1) * c) for k, c in zip(key, chunks))]
        if not keep(part):
            continue
        file = separator.join(([prefix] if prefix else []) + [str(k) for k in key]) or "0"
        os.makedirs(os.path.join(path, os.path.dirname(file)), exist_ok=True)
        with open(os.path.join(path, file), "wb") as out:
            out.write(encode(part))
    with open(os.path.join(path, "zarr.json" if v3 else ".zarray"), "w") as out:
        json.dump(meta, out)
    (elements if expected is None else expected)[tuple(slice(0, n) for n in shape)].tofile(path + ".bytes")
    print(json.dumps({"name": name, "shape": shape, "meta": meta, **(about or {})}))


def padded(shape, chunks):
    return [max(1, -(-n // c)) * c for n, c in zip(shape, chunks)]


def v3_array(name, data_type, shape=None, chunks=None, chain=None, about=None):
    code, endian = TYPES[data_type], pick(["little", "big"])
    if shape is None:
        shape, chunks = shapes()
    fill, fill_text = fill_of(code, True)
    elements = contents(padded(shape, chunks), code, fill)
    codecs, encode = chain(code, endian) if chain else v3_chain(chunks, code, fill, endian)
    separator, keys = pick("/."), pick(["default", "v2"])
    meta = {"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
            "chunk_key_encoding": {"name": keys, "configuration": {"separator": separator}}, "fill_value": fill_text, "codecs": codecs}
    if chance(0.3):
        meta["dimension_names"] = [pick([None, "axis%d" % d]) for d in range(len(shape))]
    # The places of big-endian elements in the expected bytes are those of the file.
    big = endian == "big" and '"endian": "big"' in json.dumps(codecs).replace('"index_codecs": [{"name": "bytes", "configuration": {"endian": "big"}}', "")
    expected = swapped(elements, code) if big and code[0] != "V" else elements
    always = about is not None
    write(name, True, meta, shape, chunks, separator, "c" if keys == "default" else "", elements,
          lambda part: always or not (part == np.frombuffer(fill, "u1")).all() or chance(0.3), encode, expected, about)


def v2_array(name, data_type, compressor=None, about=None):
    code = TYPES[data_type]
    size = int(code[1:])
    dtype = np.dtype((pick("<>") if size > 1 and code[0] != "V" else "|") + code)
    shape, chunks = shapes(least=1 if about else 0)
    fill, fill_text = fill_of(code, False)
    elements = contents(padded(shape, chunks), code, fill)
    big, order = dtype.str[0] == ">", pick("CF")
    filters = [] if compressor else v2_filters(code, dtype)
    if any(f.codec_id in ("delta", "fixedscaleoffset", "quantize", "astype") for f in filters) and code[0] == "f":
        # Usual numbers: what NaN or numbers that overflow become is not part of the format.
        elements = random.normal(3, 2, elements.shape[:-1]).round(2).astype("<" + code)[..., None].view("u1").reshape(elements.shape)
    if any(f.codec_id == "astype" and f.encode_dtype == np.dtype("<i8") for f in filters):
        filters = [numcodecs.AsType(encode_dtype="<i8", decode_dtype=dtype.str)]
    compressor_json, encode_bytes = compressor or v2_compressor(size)
    stored = np.ascontiguousarray(swapped(elements, code) if big else elements)
    expected = np.empty_like(stored)
    expected[...] = np.frombuffer(fill, "u1")[::-1].reshape(-1, components(code))[::-1].reshape(-1) if big else np.frombuffer(fill, "u1")
    written = []

    def encode(part):
        data = part.transpose(*reversed(range(len(shape))), len(shape)) if order == "F" else part
        data = np.ascontiguousarray(data)
        axes = data.shape
        numbers = data.reshape(-1).view(dtype)
        out = numbers
        for f in filters:
            out = np.ascontiguousarray(f.encode(out))
        encoded = encode_bytes(out.tobytes())
        back = np.frombuffer(out.tobytes(), "u1")
        for f in reversed(filters):
            back = np.ascontiguousarray(f.decode(back)).reshape(-1).view("u1")
        back = back.reshape(axes)
        part_of_expected = written.pop()
        part_of_expected[...] = back.transpose(*reversed(range(len(shape))), len(shape)) if order == "F" else back
        return encoded

    def keep(part):
        # `part` is a view: the same part of what is expected.
        here = np.lib.stride_tricks.as_strided
        offset = part.__array_interface__["data"][0] - stored.__array_interface__["data"][0]
        flat = expected.reshape(-1)[offset:]
        written[:] = [here(flat, part.shape, part.strides)]
        return about is not None or chance(0.7)
    separator = pick("./")
    meta = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype.str if code[0] != "V" else "|" + code, "compressor": compressor_json,
            "fill_value": fill_text, "order": order, "filters": [f.get_config() for f in filters] or pick([None, []]), "dimension_separator": separator}
    write(name, False, meta, shape, chunks, separator, "", stored, keep, encode, expected, about)


def gzip_damage():
    return {"trailing": lambda data: gzip.compress(data) + b"x", "zeros": lambda data: gzip.compress(data) + bytes(8), "cut": lambda data: gzip.compress(data)[:-3],
            "longer": lambda data: gzip.compress(data) + gzip.compress(b"x"), "half": lambda data: gzip.compress(data) + gzip.compress(b"")[:11],
            "wrapped": lambda data: zlib.compress(data)}


mode = sys.argv[3]
if mode == "all":
    for data_type in TYPES:
        for k in range(6):
            v2_array(f"v2_{data_type}_{k}", data_type)
        for k in range(10):
            v3_array(f"v3_{data_type}_{k}", data_type)
        for kind, damage in gzip_damage().items():
            v2_array(f"v2_{data_type}_error_{kind}", data_type, ({"id": "gzip", "level": 1}, damage), {"error": "gzip"})
else:
    # Small arrays of one or two chunks, to be damaged byte by byte. "safe": the outermost codec has a checksum.
    for k, after in enumerate([["gzip"], ["crc32c"], ["zstd", "crc32c"], ["blosc", "crc32c"], ["zstd"], ["blosc"], ["gzip", "zstd"], []]):
        for sharded in (False, True):
            def chain(code, endian):
                inner = [1, 3, 2] if sharded else [2, 3, 4]
                codecs, encoders = [{"name": "bytes", "configuration": {"endian": endian}}], []
                while len(encoders) < len(after):
                    codec, encode = v3_bytes_codec(2)
                    if (codec if isinstance(codec, str) else codec["name"]) == after[len(encoders)]:
                        codecs.append(codec)
                        encoders.append(encode)

                def leaf(elements):
                    data = (swapped(elements, code) if endian == "big" else elements).tobytes()
                    for encode in encoders:
                        data = encode(data)
                    return data
                if not sharded:
                    return codecs, leaf

                def shard(elements):
                    body, index = b"", []
                    for key in np.ndindex(2, 1, 2):
                        data = leaf(elements[tuple(slice(a * c, (a + 1) * c) for a, c in zip(key, inner))])
                        index.append((len(body), len(data)))
                        body += data
                    text = np.array(index, "<u8").tobytes()
                    return body + text + crc32c(text)
                return [{"name": "sharding_indexed", "configuration": {"chunk_shape": inner, "codecs": codecs, "index_codecs": [
                    {"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]}}], shard
            v3_array(f"small_{k}_{int(sharded)}", "uint16", [2, 3, 7], [2, 3, 4], chain, {"safe": bool(after) and after[-1] in ("gzip", "crc32c"), "raw": not after})
