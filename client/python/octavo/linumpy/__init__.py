"""Functions under the names that users of linumpy know, computed by an Octavo server: of a script change the imports alone.

    from octavo.linumpy.io.zarr import read_omezarr, save_omezarr     # instead of linumpy.io.zarr
    from octavo.linumpy.gpu.interpolation import resize               # instead of linumpy.gpu.interpolation

linumpy (linum-uqam, GPL-3.0) is another program; nothing of it is here or needed. Names, parameters, defaults and conventions are
linumpy's, the work is that of octavod's operations (client/python/MOSAIC.md has a table of both, and of every difference).

Arrays are NumPy arrays, or anything np.asarray takes, and results are NumPy arrays. Where an Octavo buffer is given instead, the
work stays on the device, and the result is a buffer, too: it is the caller's to destroy. `use_gpu` is accepted and changes nothing:
the server computes on the device that it has.

The server is that of $OCTAVO_ADDRESS, or 127.0.0.1:50051; use(client) chooses another client for this process, and every function
takes client=. Errors of the server are octavo.OctavoError; a value that cannot be meant is a ValueError that says what is allowed.
"""

from octavo.linumpy._device import default_client, use

__all__ = ["default_client", "use"]
