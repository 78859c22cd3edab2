"""Readers of the file formats that share no code with Octavo. They follow the formats'
specifications, with NumPy, struct and zlib, and use h5py and tifffile for HDF5 and TIFF. Each
returns a Stored: the voxels as [y, x, z], ordered by the file's own names of its axes; the spacing
in micrometres per axis (1 voxel if unknown); all metadata if the format has a place for them; data
that only this format has; and the axes whose spacing the file marks as assumed."""

import ctypes
import dataclasses
import json
import os
import re
import struct
import xml.etree.ElementTree
import zlib
from typing import Optional

import h5py
import numpy as np
import tifffile


@dataclasses.dataclass
class Stored:
    array: np.ndarray
    spacing_um: list
    meta: Optional[dict]
    extra: dict
    assumed: str = ""  # axes, in the order of "xyz"


def names(axes):
    """Returns the axes in the order of "xyz", each once."""
    axes = list(axes)
    assert len(set(axes)) == len(axes) and set(axes) <= set("xyz"), axes
    return "".join(sorted(axes))


def by_name(array, axes, wanted="yxz"):
    """Returns the array with its axes in another order."""
    assert sorted(axes) == sorted(wanted), axes
    return array.transpose([list(axes).index(axis) for axis in wanted])


def read_npy(path):
    """Reads the axes from the metadata beside the file; without metadata, they are a scan's."""
    meta = json.load(open(path + ".json")) if os.path.exists(path + ".json") else {"axes": "yxz"}
    return Stored(by_name(np.load(path), meta["axes"]), None, None, {}, names(meta.get("spacing_assumed", "")))


def read_bin(path):
    meta = json.load(open(path + ".json"))
    dtype = {"u8": "u1", "i8": "i1", "u16": "<u2", "i16": "<i2", "f16": "<f2", "f32": "<f4", "f64": "<f8", "c64": "<c8"}[meta["dtype"]]
    spacing = dict(zip(meta["axes"], meta["spacing_um"]))
    return Stored(by_name(np.fromfile(path, dtype).reshape(meta["shape"]), meta["axes"]), [spacing[axis] for axis in "yxz"], None, {},
                  names(meta.get("spacing_assumed", "")))


def read_nrrd(path):
    data = open(path, "rb").read()
    end = data.index(b"\n\n")
    lines = data[:end].decode("utf-8").split("\n")
    assert lines[0] == "NRRD0004", lines[0]
    fields, pairs = {}, {}
    for line in lines[1:]:
        if line.startswith("#"):
            continue
        if ":=" in line and (": " not in line or line.index(":=") < line.index(": ")):
            key, value = line.split(":=", 1)
            pairs[key] = re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), value)
        else:
            key, value = line.split(": ", 1)
            assert key not in fields, key
            fields[key] = value
    body = data[end + 2:]
    if fields["encoding"] == "gzip":
        inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
        body = inflater.decompress(body)
        assert inflater.eof and not inflater.unused_data, "one gzip member and no more"
    else:
        assert fields["encoding"] == "raw"
    dtype = np.dtype({"uint8": "u1", "int8": "i1", "uint16": "u2", "int16": "i2", "float": "f4", "double": "f8"}[fields["type"]])
    if dtype.itemsize > 1:
        assert fields["endian"] == "little"
        dtype = dtype.newbyteorder("<")
    sizes = [int(size) for size in fields["sizes"].split()]
    assert len(sizes) == int(fields["dimension"])
    labels = re.findall(r'"([^"]*)"', fields["labels"])
    kinds = fields["kinds"].split()
    directions = [None if one == "none" else np.array([float(v) for v in one[1:-1].split(",")]) for one in fields["space directions"].split()]
    assert len(labels) == len(kinds) == len(directions) == len(sizes)
    assert int(fields["space dimension"]) == 3 and fields["space origin"] == "(0,0,0)"
    units = re.findall(r'"([^"]*)"', fields["space units"])
    assert len(units) == 3 and set(units) <= {"um", ""}, units
    array = np.frombuffer(body, dtype).reshape(sizes[::-1])
    if kinds[0] == "complex":
        array = np.ascontiguousarray(array).view("<c8")[..., 0]
        labels, kinds, directions = labels[1:], kinds[1:], directions[1:]
    assert kinds == ["domain"] * 3
    array = by_name(array, labels[::-1])  # NumPy's order
    spacing = []
    for axis in "yxz":
        direction = directions[labels.index(axis)]
        assert np.count_nonzero(direction) == 1 and np.argmax(np.abs(direction)) == "xyz".index(axis), "each axis along its own"
        spacing.append(float(direction.sum()))
    return Stored(array, spacing, json.loads(pairs["octavo"]), fields, names(axis for axis, unit in zip("xyz", units) if unit == ""))


def read_nifti(path):
    data = open(path, "rb").read()
    header = struct.unpack_from("<i", data)[0]
    types = {2: "u1", 4: "<i2", 16: "<f4", 32: "<c8", 64: "<f8", 256: "i1", 512: "<u2"}
    if header == 348:
        assert data[344:348] == b"n+1\0"
        dim = struct.unpack_from("<8h", data, 40)
        datatype, bitpix = struct.unpack_from("<2h", data, 70)
        pixdim = struct.unpack_from("<8f", data, 76)
        offset, slope, inter = struct.unpack_from("<3f", data, 108)
        units = data[123]
        cal_max, cal_min = struct.unpack_from("<2f", data, 124)
        description = data[148:228].split(b"\0")[0].decode()
        qform, sform = struct.unpack_from("<2h", data, 252)
        quatern = struct.unpack_from("<6f", data, 256)
        affine = np.array(struct.unpack_from("<12f", data, 280)).reshape(3, 4)
    else:
        assert header == 540 and data[4:12] == b"n+2\0\r\n\x1a\n"
        datatype, bitpix = struct.unpack_from("<2h", data, 12)
        dim = struct.unpack_from("<8q", data, 16)
        pixdim = struct.unpack_from("<8d", data, 104)
        (offset,) = struct.unpack_from("<q", data, 168)
        slope, inter, cal_max, cal_min = struct.unpack_from("<4d", data, 176)
        description = data[240:320].split(b"\0")[0].decode()
        qform, sform = struct.unpack_from("<2i", data, 344)
        quatern = struct.unpack_from("<6d", data, 352)
        affine = np.array(struct.unpack_from("<12d", data, 400)).reshape(3, 4)
        (units,) = struct.unpack_from("<i", data, 500)
    dtype = np.dtype(types[datatype])
    assert bitpix == 8 * dtype.itemsize and dim[0] == 3 and units in (0, 2) and (slope, inter) == (1, 0) and sform > 0 and not any(quatern)
    assert offset % 16 == 0 and pixdim[0] == 1
    assert not affine[:, 3].any() and (np.count_nonzero(affine[:, :3], axis=0) == 1).all(), affine
    ijk = ["xyz"[row] for row in affine[:, :3].argmax(axis=0)]  # the axes of i, j and k
    np.testing.assert_array_equal(affine[:, :3].sum(axis=0), pixdim[1:4])
    assert qform == (1 if ijk == ["x", "y", "z"] else 0), "a quaternion of zeros says [i, j, k] = [x, y, z]"
    assert data[header:header + 4] == b"\1\0\0\0"
    size, code = struct.unpack_from("<2i", data, header + 4)
    assert code == 6 and size % 16 == 0 and header + 4 + size == offset, "one extension, up to the voxels"
    meta = json.loads(data[header + 12:header + 4 + size].rstrip(b"\0"))
    array = np.frombuffer(data, dtype, offset=int(offset)).reshape(dim[1:4], order="F")
    # One unit for all axes: only the metadata say which spacings are unknown. The others are still
    # in millimetres.
    assumed = names(meta.get("spacing_assumed", ""))
    assert units == (0 if assumed else 2), (units, assumed)
    spacing = {axis: size * (1 if axis in assumed else 1000) for axis, size in zip(ijk, pixdim[1:4])}
    return Stored(by_name(array, ijk), [spacing[axis] for axis in "yxz"], meta,
                  dict(version=1 if header == 348 else 2, description=description, cal=(cal_min, cal_max), ijk=ijk), assumed)


def read_tiff(path):
    with tifffile.TiffFile(path) as tiff:
        assert tiff.is_bigtiff and tiff.is_ome and tiff.byteorder == "<"
        series = tiff.series[0]
        assert len(tiff.pages) == (series.shape[0] if series.ndim == 3 else 1), (series.shape, len(tiff.pages))
        pages = np.stack([page.asarray() for page in tiff.pages])
        xml_text = tiff.ome_metadata
        compressions = {int(page.compression) for page in tiff.pages}
        np.testing.assert_array_equal(series.asarray().reshape(pages.shape), pages)  # tifffile reads the same from the OME metadata
        assert series.axes == "ZYX" or 1 in pages.shape, series.axes
        per_cm = [tiff.pages[0].tags[f"{axis}Resolution"].value for axis in "XY"]
        unit = int(tiff.pages[0].tags["ResolutionUnit"].value)
    root = xml.etree.ElementTree.fromstring(xml_text)
    space = {"o": "http://www.openmicroscopy.org/Schemas/OME/2016-06"}
    pixels = root.find("o:Image/o:Pixels", space)
    sizes = [int(pixels.get("Size" + axis)) for axis in "XYZCT"]
    assert pixels.get("DimensionOrder") == "XYZCT" and sizes == [pages.shape[2], pages.shape[1], pages.shape[0], 1, 1], sizes
    assert all(pixels.get(f"PhysicalSize{axis}Unit") == (None if pixels.get(f"PhysicalSize{axis}") is None else "µm") for axis in "XYZ")
    assert int(pixels.find("o:TiffData", space).get("PlaneCount")) == pages.shape[0]
    assert pixels.get("Type") == {"uint8": "uint8", "int8": "int8", "uint16": "uint16", "int16": "int16", "float32": "float", "float64": "double",
                                  "complex64": "complex"}[pages.dtype.name]
    physical = [pixels.get("PhysicalSize" + axis) for axis in "ZYX"]
    assert unit == (1 if None in physical[1:] else 3)
    for (numerator, denominator), spacing in zip(per_cm, physical[:0:-1]):
        np.testing.assert_allclose(numerator / denominator, 1 if unit == 1 else 1e4 / float(spacing), rtol=1e-5)
    annotation = root.find("o:StructuredAnnotations/o:CommentAnnotation", space)
    assert root.find("o:Image/o:AnnotationRef", space).get("ID") == annotation.get("ID")
    meta = json.loads(annotation.find("o:Value", space).text)
    axes = meta.pop("pages")
    spacing = {axis: float(size or 1) for axis, size in zip(axes, physical)}
    return Stored(by_name(pages, axes), [spacing[axis] for axis in "yxz"], meta,
                  dict(name=root.find("o:Image", space).get("Name"), compressions=compressions, pages=axes, array=pages),
                  names(axis for axis, size in zip(axes, physical) if size is None))


def read_tiff_stack(path):
    """Reads a folder of TIFF files, one for each page, as programs do that know only plain TIFF:
    files in the order of their names."""
    meta = json.load(open(os.path.join(path, "octavo.json")))
    axes, files = meta.pop("pages"), meta.pop("files")
    assert meta.pop("format") == "tiff"
    files_there = sorted(name for name in os.listdir(path) if name.endswith(".tif"))
    assert sorted(os.listdir(path)) == sorted(files_there + ["octavo.json", ".octavo-manifest.json"]), os.listdir(path)
    assert len(files_there) == files["count"] and files_there[0] == files["first"] and len({len(name) for name in files_there}) == 1, files_there
    pages = []
    for name in files_there:
        with tifffile.TiffFile(os.path.join(path, name)) as tiff:
            assert len(tiff.pages) == 1 and tiff.byteorder == "<" and not (tiff.is_bigtiff or tiff.is_ome or tiff.is_shaped or tiff.is_imagej)
            page = tiff.pages[0]
            unit = int(page.tags["ResolutionUnit"].value)
            spacing = [(1e4 if unit == 3 else 1) * d / n for n, d in (page.tags[f"{axis}Resolution"].value for axis in "YX")]
            pages.append(page.asarray())
    told = dict(zip(meta["axes"], meta["spacing_um"]))
    assumed = names(meta.get("spacing_assumed", ""))
    assert unit == (1 if set(assumed) & set(axes[1:]) else 3), (unit, assumed)
    np.testing.assert_allclose(spacing, [told[axis] if unit == 3 else 1 for axis in axes[1:]], rtol=1e-5)
    return Stored(by_name(np.stack(pages), axes), [told[axis] for axis in "yxz"], meta, dict(pages=axes, names=files_there), assumed)


def _mat_elements(data):
    """Yields the elements of MATLAB v5 in turn: type, bytes."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        assert kind >> 16 == 0, "no small elements are written"
        assert at + 8 + size <= len(data), (kind, size, len(data) - at)
        yield kind, data[at + 8:at + 8 + size]
        at += 8 + size + (-size % 8 if kind != 15 else 0)


def read_mat(path):
    data = open(path, "rb").read()
    assert data[:10] == b"MATLAB 5.0" and data[124:128] == b"\x00\x01IM"
    scalars = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 16: "u1"}
    variables, compressed = {}, set()
    for kind, content in _mat_elements(data[128:]):
        packed = kind == 15
        if packed:
            inflater = zlib.decompressobj()
            content = inflater.decompress(content)
            assert inflater.eof and not inflater.unused_data
            ((kind, content),) = _mat_elements(content)
        assert kind == 14
        parts = list(_mat_elements(content))
        assert [part[0] for part in parts[:3]] == [6, 5, 1]
        flags = struct.unpack("<II", parts[0][1])[0]
        dims = np.frombuffer(parts[1][1], "<i4")
        name = parts[2][1].decode()
        values = [np.frombuffer(part, scalars[kind]) for kind, part in parts[3:]]
        assert len(values) == (2 if flags & 0x800 else 1)
        value = values[0] if len(values) == 1 else (values[0] + 1j * values[1]).astype("<c8")
        expected = {4: "u1", 6: "<f8", 7: "<f4", 8: "i1", 9: "u1", 10: "<i2", 11: "<u2"}[flags & 255]
        assert values[0].dtype == np.dtype(expected), (name, values[0].dtype)
        value = value.reshape(dims, order="F")
        variables[name] = value.tobytes().decode() if flags & 255 == 4 else value
        if packed:
            compressed.add(name)
    axes = variables["axes"]
    spacing = dict(zip(axes, variables["spacing_um"][0]))
    return Stored(by_name(variables["volume"], axes), [spacing[axis] for axis in "yxz"], json.loads(variables["octavo"]),
                  dict(display=variables["display"][0].tolist(), levels=variables["levels"][0].tolist() if "levels" in variables else None, compressed=compressed, axes=axes),
                  names(variables.get("spacing_assumed", "")))


def read_hdf5(path):
    with h5py.File(path, "r") as file:
        volume = file["volume"]
        axes = [dim.label for dim in volume.dims]
        spacing = dict(zip(axes, volume.attrs["spacing_um"].tolist()))
        assumed = names(volume.attrs["spacing_assumed"].tolist() if "spacing_assumed" in volume.attrs else "")
        if assumed:
            assert "element_size_um" not in volume.attrs
        else:
            np.testing.assert_array_equal(volume.attrs["spacing_um"], volume.attrs["element_size_um"])
        meta = file["octavo"][()]
        warnings = json.loads(meta).get("warnings", [])
        assert (volume.attrs["warnings"].tolist() if "warnings" in volume.attrs else []) == warnings[:32]
        return Stored(by_name(volume[()], axes), [spacing[axis] for axis in "yxz"], json.loads(meta),
                      dict(chunks=volume.chunks, compression=volume.compression, shuffle=volume.shuffle, value=volume.attrs["value"],
                           display=volume.attrs["display"].tolist(), levels=volume.attrs["levels"].tolist() if "levels" in volume.attrs else None, axes=axes), assumed)




def _library(name, *needs):
    """Loads a shared library of the system, or of a bundle (deploy/bundle) if the system has none."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        folder = os.path.join(os.environ["OCTAVO_BUILD_DIR"], "lib")
        for other in needs:
            ctypes.CDLL(os.path.join(folder, other), mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(os.path.join(folder, name))


_zstd, _blosc = _library("libzstd.so.1"), _library("libblosc.so.1", "liblz4.so.1", "libsnappy.so.1", "libzstd.so.1")
_zstd.ZSTD_decompress.restype = ctypes.c_size_t
_zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
_blosc.blosc_decompress_ctx.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]


def _decode(codecs, data, size):
    assert codecs[0]["name"] == "bytes" and codecs[0].get("configuration", {}).get("endian", "little") == "little"
    for codec in reversed(codecs[1:]):
        out = ctypes.create_string_buffer(size)
        if codec["name"] == "zstd":
            assert _zstd.ZSTD_decompress(out, size, data, len(data)) == size
        elif codec["name"] == "gzip":
            out = zlib.decompress(data, zlib.MAX_WBITS | 16)
        else:
            assert codec["name"] == "blosc"
            configuration = codec["configuration"]
            # Parses the frame by hand (README_CHUNK_FORMAT of Blosc): version, codec's version,
            # flags, typesize.
            flags, typesize = data[2], data[3]
            assert typesize == configuration["typesize"]
            assert {"noshuffle": 0, "shuffle": 1, "bitshuffle": 4}[configuration["shuffle"]] == flags & 5 or flags & 2, flags
            assert flags & 2 or flags >> 5 == {"lz4": 1, "zstd": 4}[configuration["cname"]]
            assert _blosc.blosc_decompress_ctx(data, out, size, 1) == size
        data = bytes(out)[:size]
    assert len(data) == size
    return data


def read_zarr_array(path):
    """Reads a Zarr v3 array with the codecs bytes, zstd, gzip, blosc and sharding_indexed; missing
    chunks have the fill value."""
    array = json.load(open(os.path.join(path, "zarr.json")))
    assert set(array) == {"zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs", "dimension_names", "attributes"}
    dtype = np.dtype(array["data_type"]).newbyteorder("<")
    outer = array["chunk_grid"]["configuration"]["chunk_shape"]
    codecs = array["codecs"]
    shards = codecs[0]["name"] == "sharding_indexed"
    inner = codecs[0]["configuration"]["chunk_shape"] if shards else outer
    inner_codecs = codecs[0]["configuration"]["codecs"] if shards else codecs
    size = int(np.prod(inner)) * dtype.itemsize
    shape = array["shape"]
    whole = np.zeros([-(-n // c) * c for n, c in zip(shape, outer)], dtype)
    for key in np.ndindex(*[-(-n // c) for n, c in zip(shape, outer)]):
        data = open(os.path.join(path, "c", *map(str, key)), "rb").read()
        start = [k * c for k, c in zip(key, outer)]
        if not shards:
            chunk = np.frombuffer(_decode(codecs, data, size), dtype).reshape(outer)
            whole[tuple(slice(s, s + c) for s, c in zip(start, outer))] = chunk
            continue
        grid = [o // i for o, i in zip(outer, inner)]
        count = int(np.prod(grid))
        index = np.frombuffer(data[-16 * count - 4:-4], "<u8").reshape(grid + [2])
        for place in np.ndindex(*grid):
            offset, length = (int(v) for v in index[place])
            at = [s + p * i for s, p, i in zip(start, place, inner)]
            if offset == 2**64 - 1:
                assert any(a >= n for a, n in zip(at, shape)), "only chunks past the edge are left out"
                continue
            chunk = np.frombuffer(_decode(inner_codecs, data[offset:offset + length], size), dtype).reshape(inner)
            whole[tuple(slice(a, a + i) for a, i in zip(at, inner))] = chunk
    return whole[tuple(slice(0, n) for n in shape)], array


def read_zarr2_array(path):
    """Reads a Zarr v2 array with the compressors zstd, gzip and blosc, in C order, its chunks in folders; all chunks are there."""
    array = json.load(open(os.path.join(path, ".zarray")))
    assert set(array) == {"zarr_format", "shape", "chunks", "dtype", "compressor", "fill_value", "order", "filters", "dimension_separator"}
    assert (array["zarr_format"], array["order"], array["filters"], array["dimension_separator"]) == (2, "C", None, "/")
    dtype, shape, outer, codec = np.dtype(array["dtype"]), array["shape"], array["chunks"], array["compressor"]
    codecs = [{"name": "bytes"}]
    if codec is not None:
        shuffle = ["noshuffle", "shuffle", "bitshuffle"][codec.get("shuffle", 0)]
        codecs.append({"name": codec["id"], "configuration": {"cname": codec.get("cname"), "shuffle": shuffle, "typesize": dtype.itemsize}})
    whole = np.zeros([-(-n // c) * c for n, c in zip(shape, outer)], dtype)
    for key in np.ndindex(*[-(-n // c) for n, c in zip(shape, outer)]):
        data = open(os.path.join(path, *map(str, key)), "rb").read()
        chunk = np.frombuffer(_decode(codecs, data, int(np.prod(outer)) * dtype.itemsize), dtype).reshape(outer)
        whole[tuple(slice(k * c, (k + 1) * c) for k, c in zip(key, outer))] = chunk
    axes = json.load(open(os.path.join(path, ".zattrs")))["_ARRAY_DIMENSIONS"]
    return whole[tuple(slice(0, n) for n in shape)], {**array, "dimension_names": axes}


def read_zarr(path):
    """OME-Zarr 0.5, or 0.4 if it has the files of Zarr v2."""
    if os.path.exists(os.path.join(path, ".zgroup")):
        assert json.load(open(os.path.join(path, ".zgroup"))) == {"zarr_format": 2} and not os.path.exists(os.path.join(path, "zarr.json"))
        members = json.load(open(os.path.join(path, ".zattrs")))
        own = members.pop("octavo")
        assert members["multiscales"][0]["version"] == "0.4"
        group, read = {"attributes": {"ome": members, "octavo": own}}, read_zarr2_array
    else:
        group, read = json.load(open(os.path.join(path, "zarr.json"))), read_zarr_array
        assert group["attributes"]["ome"]["version"] == "0.5"
    multiscale = group["attributes"]["ome"]["multiscales"][0]
    levels, arrays = [], []
    for dataset in multiscale["datasets"]:
        voxels, array = read(os.path.join(path, dataset["path"]))
        levels.append((voxels, dataset["coordinateTransformations"]))
        arrays.append(array)
    axes = [axis["name"] for axis in multiscale["axes"]]
    assert all(axis["type"] == "space" and axis.get("unit") in ("micrometer", None) for axis in multiscale["axes"]), multiscale["axes"]
    assert all(array["dimension_names"] == axes for array in arrays), axes
    scale = dict(zip(axes, levels[0][1][0]["scale"]))
    return Stored(by_name(levels[0][0], axes), [scale[axis] for axis in "yxz"], group["attributes"]["octavo"],
                  dict(levels=levels, arrays=arrays, group=group, axes=axes),
                  names(axis["name"] for axis in multiscale["axes"] if "unit" not in axis))


READERS = {"zarr": read_zarr, "npy": read_npy, "nrrd": read_nrrd, "nifti": read_nifti, "tiff": read_tiff, "mat": read_mat, "hdf5": read_hdf5, "bin": read_bin}
ENDINGS = {"zarr": ".ome.zarr", "npy": ".npy", "nrrd": ".nrrd", "nifti": ".nii", "tiff": ".ome.tif", "mat": ".mat", "hdf5": ".h5", "bin": ".bin"}
