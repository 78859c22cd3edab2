"""Writers of Zarr and OME-Zarr that share no code with Octavo: zarr-python writes v2, and v3 is written by hand, from the
specifications of Zarr v3, of its sharding codec (ZEP 2) and of OME-NGFF 0.4 and 0.5."""

import gzip
import json
import os
import struct

import numpy as np

_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = (_byte >> 1) ^ (0x82F63B78 if _byte & 1 else 0)
    _TABLE.append(_byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 255]
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


def write_v3(path, array, chunk, shard=None, compress=True, big=False, names=None, attributes=None):
    """A v3 array of chunks, or of shards with their index at the end. Chunks of zeros, which is the fill value, are left out."""
    os.makedirs(path)
    codecs = [{"name": "bytes", "configuration": {"endian": "big" if big else "little"}}] + ([{"name": "gzip", "configuration": {"level": 1}}] if compress else [])
    stored = array.astype(array.dtype.newbyteorder(">" if big else "<"))

    def part(start, extent):
        out = np.zeros(extent, stored.dtype)
        inside = stored[tuple(slice(s, s + e) for s, e in zip(start, extent))]
        out[tuple(slice(0, n) for n in inside.shape)] = inside
        return out

    def encode(elements):
        data = elements.tobytes()
        return gzip.compress(data, 1) if compress else data

    file_shape = shard or chunk
    for key in np.ndindex(*[-(-n // c) for n, c in zip(array.shape, file_shape)]):
        start = [k * c for k, c in zip(key, file_shape)]
        if not part(start, file_shape).any():
            continue
        if shard is None:
            data = encode(part(start, chunk))
        else:
            body, index = b"", []
            for inner in np.ndindex(*[s // c for s, c in zip(shard, chunk)]):
                elements = part([s + i * c for s, i, c in zip(start, inner, chunk)], chunk)
                encoded = encode(elements) if elements.any() else b""
                index += [len(body), len(encoded)] if encoded else [2**64 - 1, 2**64 - 1]
                body += encoded
            table = struct.pack(f"<{len(index)}Q", *index)
            data = body + table + crc32c(table)
        file = os.path.join(path, "c", *map(str, key))
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "wb") as out:
            out.write(data)
    if shard is not None:
        codecs = [{"name": "sharding_indexed", "configuration": {"chunk_shape": list(chunk), "codecs": codecs, "index_codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}], "index_location": "end"}}]
    fill = {"c": [0.0, 0.0], "f": 0.0, "b": False}.get(array.dtype.kind, 0)
    meta = {"zarr_format": 3, "node_type": "array", "shape": list(array.shape), "data_type": array.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(file_shape)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "fill_value": fill, "codecs": codecs, "attributes": attributes or {}}
    if names is not None:
        meta["dimension_names"] = list(names)
    with open(os.path.join(path, "zarr.json"), "w") as file:
        json.dump(meta, file)


def write_v2(path, array, chunk, **options):
    """A v2 array of zarr-python."""
    import zarr  # Debian's is of version 2
    out = zarr.open_array(path, mode="w", shape=array.shape, chunks=tuple(chunk), dtype=array.dtype, **options)
    out[...] = array


def multiscale(axes, levels, name=None, whole=None):
    """An entry of "multiscales". `axes`: (name, type, unit or None); `levels`: (path, scale, translation or None)."""
    datasets = []
    for path, scale, translation in levels:
        steps = [{"type": "scale", "scale": list(scale)}]
        if translation is not None:
            steps.append({"type": "translation", "translation": list(translation)})
        datasets.append({"path": path, "coordinateTransformations": steps})
    out = {"axes": [{"name": n, "type": t, **({} if u is None else {"unit": u})} for n, t, u in axes], "datasets": datasets}
    if name is not None:
        out["name"] = name
    if whole is not None:
        out["coordinateTransformations"] = whole
    return out


def write_group(path, version, images, omero=None, **attributes):
    """A group with images: of OME-Zarr 0.4 in v2, or 0.5 in v3."""
    os.makedirs(path, exist_ok=True)
    if version == "0.4":
        ome = {"multiscales": [{"version": "0.4", **image} for image in images]} if images else {}
        with open(os.path.join(path, ".zgroup"), "w") as file:
            json.dump({"zarr_format": 2}, file)
    else:
        ome = {"version": "0.5", **({"multiscales": images} if images else {})}
    if omero is not None:
        ome["omero"] = omero
    if version == "0.4":
        with open(os.path.join(path, ".zattrs"), "w") as file:
            json.dump({**ome, **attributes}, file)
    else:
        with open(os.path.join(path, "zarr.json"), "w") as file:
            json.dump({"zarr_format": 3, "node_type": "group", "attributes": {"ome": {**ome, **attributes}}}, file)
