"""linumpy.gpu.zarr_io: a Zarr on the device."""

from __future__ import annotations

import os
from typing import Any, Optional

from octavo.client import Client
from octavo.linumpy._device import client_of
from octavo.objects import Buffer


def read_zarr_to_gpu(path: Any, prefer: str = "auto", *, level: Optional[int] = None, client: Optional[Client] = None) -> Buffer:
    """The array in a Zarr or an OME-Zarr (its level: default the full resolution) as a buffer on one device, three axes. The server
    reads the file: below its replay roots, or handed over by descriptor if it is here.

    prefer  accepted and changes nothing: the server takes the way that it has measured as the fastest (octavo storage probe)
    """
    if prefer not in ("auto", "kvikio", "zarr-gpu"):
        raise ValueError(f"prefer is {prefer!r}; expected 'auto', 'kvikio' or 'zarr-gpu'")
    fields = {} if level is None else {"level": level}
    return client_of(client).import_buffer_from(os.fspath(path), format="zarr", **fields)
