"""linumpy.io."""

from octavo.linumpy.io.zarr import AnalysisOmeZarrWriter, OmeZarrWriter, read_omezarr, save_omezarr

__all__ = ["AnalysisOmeZarrWriter", "OmeZarrWriter", "read_omezarr", "save_omezarr"]
