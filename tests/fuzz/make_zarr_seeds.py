#!/usr/bin/env python3
"""Writes the first inputs of zarr_metadata_fuzz and zarr_chunk_fuzz below a folder: valid chunks of each array of zarr_chunk_fuzz.cc, in
its order, and the metadata of random arrays. Needs NumPy and numcodecs. Usage: make_zarr_seeds.py FOLDER"""

import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib

import numcodecs
import numpy as np

SHAPE = (4, 6, 4)
values = (np.arange(96) // 5).astype("<u2").reshape(SHAPE)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return data + struct.pack("<I", crc ^ 0xFFFFFFFF)


def shard(elements, inner, encode, location, checks=True, leave_out=0):
    places = list(np.ndindex(*[n // c for n, c in zip(elements.shape, inner)]))
    index, body = [], b""
    begin = 16 * len(places) + 4 * checks if location == "start" else 0
    for k, place in enumerate(places):
        if k == leave_out:
            index.append((2**64 - 1, 2**64 - 1))
            continue
        data = encode(elements[tuple(slice(p * c, (p + 1) * c) for p, c in zip(place, inner))])
        index.append((begin + len(body), len(data)))
        body += data
    text = np.array(index, "<u8").tobytes()
    text = crc32c(text) if checks else text
    return text + body if location == "start" else body + text


def raw(elements):
    return elements.tobytes()


zstd, blosc = (lambda data: bytes(numcodecs.Zstd(3).encode(data))), (lambda data: bytes(numcodecs.Blosc("lz4", 5, 1).encode(np.frombuffer(data, "<u2"))))
turned = values.transpose(2, 0, 1)
column = values.transpose(2, 1, 0)
bits = np.random.default_rng(1).integers(0, 2, 96).astype(bool)
floats = (np.arange(96) / 10).astype("<f4")
chunks = [
    [raw(values)], [raw(turned)], [gzip.compress(raw(values)), gzip.compress(raw(values)[:50]) + gzip.compress(raw(values)[50:])],
    [zstd(raw(values)), zstd(raw(values)[:50]) + zstd(raw(values)[50:])],
    [bytes(numcodecs.Blosc(name, level, shuffle).encode(np.ascontiguousarray(values))) for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd") for level, shuffle in ((5, 1), (3, 2), (0, 0))],
    [crc32c(raw(values))], [crc32c(gzip.compress(zstd(raw(values))))], [zstd(blosc(raw(values)))],
    [shard(values, (2, 3, 4), raw, "end"), shard(values, (2, 3, 4), raw, "end", leave_out=-1)], [shard(values, (2, 3, 4), raw, "start", False)],
    [shard(values, (2, 3, 2), lambda part: zstd(raw(part.transpose(2, 0, 1))), "end", False)],
    [shard(turned, (2, 2, 3), lambda part: crc32c(raw(part)), "start")],
    [shard(values, (2, 6, 4), lambda part: shard(part, (1, 3, 2), raw, "end", False), "end", False)],
    [zstd(shard(values, (2, 3, 4), lambda part: gzip.compress(raw(part)), "end", False))],
    [bytes(numcodecs.LZ4().encode(raw(column)))], [zlib.compress(raw(column.astype(">u2")))],
    [bytes(numcodecs.Shuffle(4).encode(numcodecs.Delta("<i2", "<i4").encode(np.ascontiguousarray(column).astype("<i2"))))],
    [bytes(numcodecs.PackBits().encode(bits))], [raw(column.astype("<f4"))],
    [zstd(bytes(numcodecs.FixedScaleOffset(-3, 10, "<f4", "|u1").encode(floats)))],
]

folder = sys.argv[1]
for k, some in enumerate(chunks):
    for i, chunk in enumerate(some):
        for box in (0, 3):
            os.makedirs(os.path.join(folder, "zarr_chunk_fuzz"), exist_ok=True)
            with open(os.path.join(folder, "zarr_chunk_fuzz", f"seed_{k:02}_{i}_{box}"), "wb") as out:
                out.write(bytes([k, box]) + chunk)
os.makedirs(os.path.join(folder, "zarr_metadata_fuzz"), exist_ok=True)
writer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../server/storage/zarr/zarr_arrays.py")
with tempfile.TemporaryDirectory() as arrays:
    lines = subprocess.run([sys.executable, writer, arrays, "7", "all"], check=True, capture_output=True, text=True).stdout.splitlines()
image = {"multiscales": [{"version": "0.4", "axes": [{"name": "z", "type": "space", "unit": "micrometer"}, {"name": "y", "type": "space"}],
                          "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 2]}, {"type": "translation", "translation": [0, 1]}]}],
                          "coordinateTransformations": [{"type": "identity"}]}]}
texts = [json.loads(line)["meta"] for line in lines[::6]] + [image, {"ome": {"version": "0.5", **image}}]
for k, text in enumerate(texts):
    with open(os.path.join(folder, "zarr_metadata_fuzz", f"seed_{k:03}"), "w") as out:
        json.dump(text, out)
