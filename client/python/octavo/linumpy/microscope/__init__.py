"""linumpy.microscope."""
