"""What linumpy.gpu has at its top. A "GPU array" is an Octavo buffer."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from octavo.client import Client
from octavo.linumpy._device import client_of, is_buffer
from octavo.objects import Buffer

# Names that ask the server when they are used first: GPU_AVAILABLE, GPU_DEVICE_NAME, GPU_MEMORY_GB. CUPY_AVAILABLE is False: no CuPy is used.
CUPY_AVAILABLE = False


def __getattr__(name: str) -> Any:
    if name == "GPU_AVAILABLE":
        return any(device.backend == "cuda" for device in client_of(None).devices())
    if name in ("GPU_DEVICE_NAME", "GPU_MEMORY_GB"):
        device = client_of(None).devices()[0]
        return device.model if name == "GPU_DEVICE_NAME" else device.budget_bytes / 1e9
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def to_gpu(array: Any, *, client: Optional[Client] = None) -> Buffer:
    """The array as a buffer on the server's devices; a buffer as it is. The caller destroys it: buffer.destroy()."""
    return array if is_buffer(array) else client_of(client).buffers.put(np.asarray(array))


def to_cpu(array: Any) -> np.ndarray:
    """The array of a buffer; an array as it is."""
    return array.read() if is_buffer(array) else np.asarray(array)


def is_cupy_array(array: Any) -> bool:
    """Whether it is on the device: an Octavo buffer."""
    return is_buffer(array)


def gpu_info(*, client: Optional[Client] = None) -> dict:
    """The server's devices: available (a CUDA device is among them), devices: name, model, backend, memory_gb, free_gb, healthy."""
    devices = [dict(name=device.name, model=device.model, backend=device.backend, memory_gb=device.budget_bytes / 1e9, free_gb=device.free_bytes / 1e9,
                    healthy=device.healthy) for device in client_of(client).devices()]
    return dict(available=any(device["backend"] == "cuda" for device in devices), devices=devices)


def print_gpu_info(*, client: Optional[Client] = None) -> None:
    """Prints a line for each device of the server."""
    for device in gpu_info(client=client)["devices"]:
        print(f"{device['name']}: {device['model'] or device['backend']}, {device['free_gb']:.1f} of {device['memory_gb']:.1f} GB free"
              f"{'' if device['healthy'] else ', DOWN'}")
