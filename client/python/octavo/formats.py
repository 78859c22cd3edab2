"""How volumes are written."""

from __future__ import annotations

from octavo.arguments import explained, message
from octavo.names import Names
from octavo.v1 import scan_pb2

FORMATS = Names({"zarr": scan_pb2.FORMAT_OME_ZARR_05, "npy": scan_pb2.FORMAT_NPY, "nrrd": scan_pb2.FORMAT_NRRD, "nifti": scan_pb2.FORMAT_NIFTI, "tiff": scan_pb2.FORMAT_OME_TIFF,
                 "mat": scan_pb2.FORMAT_MATLAB_V5, "hdf5": scan_pb2.FORMAT_HDF5, "bin": scan_pb2.FORMAT_BIN},
                aliases={"ome-zarr": "zarr", "numpy": "npy", "nii": "nifti", "tif": "tiff", "ome-tiff": "tiff", "matlab": "mat", "h5": "hdf5", "raw": "bin"},
                of=scan_pb2.Format)
CODECS = Names({"zstd": scan_pb2.CODEC_ZSTD, "gzip": scan_pb2.CODEC_GZIP, "blosc-zstd": scan_pb2.CODEC_BLOSC_ZSTD, "blosc-lz4": scan_pb2.CODEC_BLOSC_LZ4,
                "none": scan_pb2.CODEC_NONE}, of=scan_pb2.Codec)
SHUFFLES = Names({"none": scan_pb2.SHUFFLE_NONE, "byte": scan_pb2.SHUFFLE_BYTE, "bit": scan_pb2.SHUFFLE_BIT}, of=scan_pb2.Shuffle)
TIFF_PLANES = Names({"bscan": scan_pb2.TIFF_PLANE_BSCAN, "en_face": scan_pb2.TIFF_PLANE_EN_FACE}, of=scan_pb2.TiffPlane)

NGFF_VERSIONS = Names({"0.5": scan_pb2.NGFF_VERSION_05, "0.4": scan_pb2.NGFF_VERSION_04}, of=scan_pb2.NgffVersion)


@explained(scan_pb2.CommitOptions)
def commit_options(destination: str, format: str = "", **options: Any) -> scan_pb2.CommitOptions:
    """CommitOptions, with names for format, codec, shuffle, tiff_plane and ngff (as Client.commit takes
    them); for retention=dict(auto_commit=...) too. Without a format the ending of the destination
    determines it, as for Client.commit."""
    return message(scan_pb2.CommitOptions, dict(destination=destination, format=format or None, **options))
