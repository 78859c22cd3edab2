"""linumpy.config."""
