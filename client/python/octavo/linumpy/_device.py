"""The client that computes, and arrays on their way to its server and back."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator, List, Optional, Sequence

import numpy as np

from octavo.arguments import short
from octavo.client import Client
from octavo.objects import Buffer

SAMPLINGS = {0: "nearest", 1: "linear", 3: "cubic"}
_lock = threading.Lock()
_chosen: Optional[Client] = None
_made: Optional[Client] = None


def use(client: Optional[Client]) -> None:
    """The client of all functions of octavo.linumpy that are given none; None: one of $OCTAVO_ADDRESS again."""
    global _chosen
    if client is not None and not isinstance(client, Client):
        raise ValueError(f"client is {short(client)}; expected an octavo.Client, or None")
    _chosen = client


def default_client() -> Client:
    """The client that use() has chosen, or that of $OCTAVO_ADDRESS (127.0.0.1:50051), which is connected once."""
    global _made
    if _chosen is not None:
        return _chosen
    with _lock:
        if _made is None:
            _made = Client()
        return _made


def client_of(client: Optional[Client]) -> Client:
    return default_client() if client is None else client


def is_buffer(value: Any) -> bool:
    return isinstance(value, Buffer)


def order_name(order: Any) -> str:
    """The sampling of an order of SciPy. ValueError: 0, 1 and 3 are here."""
    if isinstance(order, bool) or order not in SAMPLINGS:
        raise ValueError(f"order is {short(order)}; expected 0 (nearest), 1 (linear) or 3 (cubic)")
    return SAMPLINGS[order]


def extents(field: str, value: Any, rank: int) -> List[int]:
    """As many whole numbers from 1 as the array has axes."""
    given = list(value) if np.iterable(value) else [value]
    try:
        whole = [int(one) for one in given]
    except (TypeError, ValueError):
        whole = []
    if len(whole) != rank or any(one < 1 or one != was for one, was in zip(whole, given)):
        raise ValueError(f"{field} is {short(value)}; expected {rank} whole numbers from 1, one for each axis")
    return whole


class Work:
    """Buffers of one computation. Those that it makes of arrays, and on the way, are gone at its end; buffers that it was given stay.

        with Work(client, image) as work:
            return work.result(work.apply(work.put(image), {"mip": {"axis": 0}}))
    """

    def __init__(self, client: Optional[Client], *inputs: Any):
        self.client = client_of(client)
        self.on_device = any(is_buffer(one) for one in inputs)  # the result stays there, too
        self._made: List[str] = []

    def __enter__(self) -> "Work":
        return self

    def __exit__(self, *_) -> None:
        for name in self._made:
            with contextlib.suppress(Exception):  # the error of the work is the one to tell
                self.client.buffers.destroy(name)

    def put(self, array: Any, dtype: Any = None) -> Buffer:
        """The buffer of an array. Of a buffer, itself, or a converted copy."""
        if is_buffer(array):
            return array if dtype is None else self.astype(array, dtype)
        array = np.asarray(array) if dtype is None else np.asarray(array, dtype)
        if array.dtype == bool:
            array = array.astype(np.uint8)
        buffer = self.client.buffers.put(array)
        self._made.append(buffer.name)
        return buffer

    def astype(self, buffer: Buffer, dtype: Any) -> Buffer:
        if dtype_of(buffer) == np.dtype(dtype):
            return buffer
        return self.apply(buffer, {"scale": {"type": np.dtype(dtype).name}})

    def apply(self, buffer: Buffer, *operations: dict) -> Buffer:
        made = self.client.buffers.apply(buffer.name, *operations)
        self._made.append(made.name)
        return made

    def result(self, buffer: Buffer) -> Any:
        """What the caller gets: the buffer, where an input was one, or its array."""
        if not self.on_device:
            return buffer.read()
        if buffer.name in self._made:
            self._made.remove(buffer.name)
        else:  # an input: the caller gets one of their own
            buffer = self.client.buffers.apply(buffer.name, {"copy": {}})
        return buffer


_NUMPY = {"U8": "u1", "I8": "i1", "U16": "u2", "I16": "i2", "F16": "f2", "F32": "f4", "F64": "f8", "C64": "c8", "U32": "u4", "I32": "i4", "U64": "u8",
          "I64": "i8", "C128": "c16"}


def dtype_of(array: Any) -> np.dtype:
    if not is_buffer(array):
        return np.asarray(array).dtype
    name = str(array.type.dtype)
    if name not in _NUMPY or array.type.lanes > 1:
        raise ValueError(f"{array!r} has elements that NumPy has no type for; expected real or complex numbers of one lane")
    return np.dtype(_NUMPY[name])


def shape_of(array: Any) -> tuple:
    return tuple(array.shape) if is_buffer(array) else np.shape(array)


def ranked(field: str, array: Any, ranks: Sequence[int]) -> tuple:
    """Its shape. ValueError unless it has one of these numbers of axes, and an element."""
    shape = shape_of(array)
    if len(shape) not in ranks or 0 in shape:
        wanted = " or ".join(str(one) for one in ranks)
        raise ValueError(f"{field} has the shape {tuple(shape)}; expected {wanted} axes, each of 1 sample or more")
    return shape


def spread(work: Work, line: np.ndarray, axis: int, shape: Sequence[int]) -> Buffer:
    """The array of this shape whose columns along an axis all are `line`, made on the device."""
    thin = [1] * len(shape)
    thin[axis] = len(line)
    return work.apply(work.put(np.reshape(line, thin)), {"affine": {"matrix": np.eye(len(shape)), "shape": list(shape), "sampling": "nearest", "edge": "nearest"}})


def blocks(shape: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple]:
    """The boxes of a grid, as slices; those at the far edges may be smaller."""
    for index in np.ndindex(*(-(-extent // size) for extent, size in zip(shape, sizes))):
        yield tuple(slice(i * size, min((i + 1) * size, extent)) for i, size, extent in zip(index, sizes, shape))
