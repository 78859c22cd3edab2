#!/usr/bin/env python3
"""Writes the first inputs of volume_input_fuzz to a folder: small files of each kind that it opens, written by other programs. Needs
NumPy, tifffile, nibabel and SciPy. Usage: make_volume_input_seeds.py FOLDER"""

import gzip
import io
import os
import sys
import tempfile

import nibabel
import numpy as np
import scipy.io
import tifffile


def seeds(folder):
    """Yields names and bytes."""
    values = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    for dtype in ("|u1", "<u2", ">f4", "<c8"):
        for order in "CF":
            out = io.BytesIO()
            np.save(out, np.asarray(values.astype(dtype), order=order))
            yield f"npy_{dtype[1:]}_{order}", out.getvalue()
    # tiles need extents that are multiples of 16
    images = np.arange(2 * 20 * 18).reshape(2, 20, 18)
    for name, options in {"strips": {"rowsperstrip": 7}, "tiles": {"tile": (16, 16)}, "deflate": {"compression": "zlib"}, "big": {"bigtiff": True},
                          "motorola": {"byteorder": ">"}, "ome": {"ome": True, "metadata": {"axes": "ZYX", "PhysicalSizeX": 2}},
                          "imagej": {"imagej": True}}.items():
        path = os.path.join(folder, "seed.tif")
        tifffile.imwrite(path, images.astype("u2"), photometric="minisblack", **options)
        with open(path, "rb") as file:
            yield f"tiff_{name}", file.read()
    for name, kind in (("nifti1", nibabel.Nifti1Image), ("nifti2", nibabel.Nifti2Image)):
        image = kind(values.astype("<i2"), np.diag([0.5, 1, 2, 1])).to_bytes()
        yield name, image
        yield name + "_gz", gzip.compress(image, mtime=0)
    header = b"NRRD0004\ntype: uint16\ndimension: 3\nsizes: 4 3 2\nspacings: 1 2 3\nendian: little\nencoding: %s\n\n"
    body = values.astype("<u2").tobytes()
    yield "nrrd_raw", header % b"raw" + body
    yield "nrrd_gzip", header % b"gzip" + gzip.compress(body, mtime=0)
    yield "nrrd_text", header % b"ascii" + " ".join(map(str, values.ravel())).encode()
    for name, compressed in (("plain", False), ("deflate", True)):
        out = io.BytesIO()
        scipy.io.savemat(out, {"volume": values.astype("f4")}, do_compression=compressed)
        yield f"matlab_{name}", out.getvalue()


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in seeds(folder):
            with open(os.path.join(sys.argv[1], "seed_" + name), "wb") as file:
                file.write(data)


if __name__ == "__main__":
    main()
