"""linumpy.mosaic."""
