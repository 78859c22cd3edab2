"""linumpy.config.threads limits the threads of NumPy when it is imported. The server has threads of its own: nothing is to be done."""
