"""linumpy.geometry."""
