"""How volumes are written."""

from __future__ import annotations

from octavo.v1 import scan_pb2

FORMATS = {"zarr": scan_pb2.OME_ZARR_05, "npy": scan_pb2.NPY, "nrrd": scan_pb2.NRRD, "nifti": scan_pb2.NIFTI, "tiff": scan_pb2.OME_TIFF,
           "mat": scan_pb2.MATLAB_V5, "hdf5": scan_pb2.HDF5, "bin": scan_pb2.BIN}
CODECS = {"zstd": scan_pb2.CODEC_ZSTD, "gzip": scan_pb2.CODEC_GZIP, "blosc-zstd": scan_pb2.CODEC_BLOSC_ZSTD, "blosc-lz4": scan_pb2.CODEC_BLOSC_LZ4}
SHUFFLES = {"none": scan_pb2.SHUFFLE_NONE, "byte": scan_pb2.SHUFFLE_BYTE, "bit": scan_pb2.SHUFFLE_BIT}

TIFF_PLANES = {"bscan": scan_pb2.TIFF_BSCAN, "en_face": scan_pb2.TIFF_EN_FACE}


def commit_options(destination: str, format: str = "zarr", **options) -> scan_pb2.CommitOptions:
    """CommitOptions, with names for format, codec, shuffle and tiff_plane (as Client.commit takes them); for retention=dict(auto_commit=...) too."""
    for field, table in (("codec", CODECS), ("shuffle", SHUFFLES), ("tiff_plane", TIFF_PLANES)):
        if isinstance(options.get(field), str):
            options[field] = table[options[field]]
    return scan_pb2.CommitOptions(destination=destination, format=FORMATS[format], **options)
