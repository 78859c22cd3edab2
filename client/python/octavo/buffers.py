"""Arrays in device memory: replicated buffers, and operations on buffers and volumes as plain dicts."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Sequence, Union

import grpc
import numpy as np

from octavo import errors
from octavo.v1 import buffer_pb2, buffer_pb2_grpc, operation_pb2, types_pb2

SCALARS = {"u8": operation_pb2.SCALAR_U8, "i8": operation_pb2.SCALAR_I8, "u16": operation_pb2.SCALAR_U16, "i16": operation_pb2.SCALAR_I16,
           "f16": operation_pb2.SCALAR_F16, "f32": operation_pb2.SCALAR_F32, "f64": operation_pb2.SCALAR_F64, "c64": operation_pb2.SCALAR_C64,
           "u32": operation_pb2.SCALAR_U32, "i32": operation_pb2.SCALAR_I32, "u64": operation_pb2.SCALAR_U64, "i64": operation_pb2.SCALAR_I64,
           "c32": operation_pb2.SCALAR_C32, "c128": operation_pb2.SCALAR_C128}
NUMPY = {"u8": "u1", "i8": "i1", "u16": "<u2", "i16": "<i2", "f16": "<f2", "f32": "<f4", "f64": "<f8", "c64": "<c8", "u32": "<u4", "i32": "<i4",
         "u64": "<u8", "i64": "<i8", "c32": "<f2", "c128": "<c16"}  # c32 has none: pairs of f2
_NAME = {np.dtype(kind): name for name, kind in NUMPY.items() if name != "c32"}
_KINDS = {"sum": operation_pb2.REDUCE_SUM, "min": operation_pb2.REDUCE_MIN, "max": operation_pb2.REDUCE_MAX, "mean": operation_pb2.REDUCE_MEAN,
          "std": operation_pb2.REDUCE_STD}
_PARTS = {"real": operation_pb2.PART_REAL, "imaginary": operation_pb2.PART_IMAGINARY, "magnitude": operation_pb2.PART_MAGNITUDE,
          "phase": operation_pb2.PART_PHASE, "power": operation_pb2.PART_POWER}
_COMBINE = {"add": operation_pb2.ArrayOperation.Combine.ADD, "subtract": operation_pb2.ArrayOperation.Combine.SUBTRACT,
            "multiply": operation_pb2.ArrayOperation.Combine.MULTIPLY, "divide": operation_pb2.ArrayOperation.Combine.DIVIDE}
_EDGES = {"mirror": operation_pb2.RESIZE_MIRROR, "reflect": operation_pb2.RESIZE_REFLECT}
_CHUNK = 1 << 20


def scalar(dtype) -> int:
    """The Scalar of a name ("f32"), a NumPy dtype or a Scalar."""
    if isinstance(dtype, int):
        return dtype
    if isinstance(dtype, str) and dtype in SCALARS:
        return SCALARS[dtype]
    return SCALARS[_NAME[np.dtype(dtype).newbyteorder("<")]]


def array_operation(operation: Union[dict, operation_pb2.ArrayOperation]) -> operation_pb2.ArrayOperation:
    """{"mip": {"axis": 2}}, {"scale": {"multiply": 2, "add": 1 + 1j, "type": "f32"}}, {"reduce": {"kind": "mean", "axes": [0]}}, {"flip": {}} ...
    with the fields of octavo.v1.ArrayOperation; names for types, kinds, parts and edges, numbers for complex values."""
    if isinstance(operation, operation_pb2.ArrayOperation):
        return operation
    (name, fields), = operation.items()
    out = {}
    for field, value in dict(fields or {}).items():
        if field in ("multiply", "add", "value"):
            value = operation_pb2.ArrayOperation.Complex(re=complex(value).real, im=complex(value).imag)
        elif field == "type":
            value = scalar(value)
        elif field == "kind" and isinstance(value, str):
            value = (_COMBINE if name == "combine" else _KINDS)[value]
        elif field == "part" and isinstance(value, str):
            value = _PARTS[value]
        elif field == "edge" and isinstance(value, str):
            value = _EDGES[value]
        out[field] = value
    message = operation_pb2.ArrayOperation()
    getattr(message, name).SetInParent()
    getattr(message, name).MergeFrom(type(getattr(message, name))(**out))
    return message


def _dtype(element: buffer_pb2.ElementType) -> np.dtype:
    name = next(n for n, number in SCALARS.items() if number == element.scalar)
    return np.dtype(NUMPY[name])


def _array_shape(shape: Sequence[int], element: buffer_pb2.ElementType) -> tuple:
    """As NumPy sees it: elements of several lanes (and pairs of f2) make a last axis."""
    lanes = 2 if element.scalar == operation_pb2.SCALAR_C32 else max(1, element.lanes)
    return tuple(shape) + ((lanes,) if lanes > 1 else ())


def caller(client: str, key: str) -> list:
    """Metadata of calls: `client` is what it calls itself; `key` opens its private buffers (16 to 128 characters)."""
    return [pair for pair in (("octavo-client", client), ("octavo-owner-key", key)) if pair[1]]


class Buffers:
    """BufferService of a client (Client.buffers)."""

    def __init__(self, channel, timeout: float, metadata: list):
        self._stub = buffer_pb2_grpc.BufferServiceStub(channel)
        self._timeout = timeout
        self._metadata = metadata

    def _call(self, method, request):
        with errors.raising():
            return method(request, timeout=self._timeout, metadata=self._metadata)

    def create(self, shape: Sequence[int], dtype="f32", *, lanes: int = 1, devices: Sequence[int] = (), uninitialized: bool = False,
               labels: Optional[Dict[str, str]] = None, ttl_seconds: float = 0, private: bool = False, request_id: str = "") -> buffer_pb2.Buffer:
        """A new buffer on all devices (or those named), full of zeros."""
        return self._call(self._stub.CreateBuffer, buffer_pb2.CreateBufferRequest(
            type=buffer_pb2.ElementType(scalar=scalar(dtype), lanes=lanes), shape=shape, placement=buffer_pb2.Placement(devices=devices),
            fill=buffer_pb2.CreateBufferRequest.UNINITIALIZED if uninitialized else buffer_pb2.CreateBufferRequest.ZERO, labels=labels or {},
            ttl_seconds=ttl_seconds, private=private, request_id=request_id))

    def put(self, array: np.ndarray, *, lanes: int = 1, **fields) -> buffer_pb2.Buffer:
        """A new buffer that holds `array` on every device. lanes > 1: the last axis are the lanes of the elements."""
        array = np.asarray(array)
        buffer = self.create(array.shape[:-1] if lanes > 1 else array.shape, array.dtype, lanes=lanes, uninitialized=True, **fields)
        return self.write(buffer.name, array)

    def write(self, name: str, array: np.ndarray, *, replica: Optional[int] = None, offset: int = 0, if_version: int = 0, lease_token: str = "",
              check: bool = False) -> buffer_pb2.Buffer:
        """Writes to all replicas, or to one, from element byte `offset` on. check: the server compares type and shape."""
        array = np.ascontiguousarray(array)
        data = memoryview(array).cast("B")
        header = buffer_pb2.WriteBufferRequest.Header(name=name, byte_offset=offset, total_bytes=len(data), if_version=if_version,
                                                      lease_token=lease_token)
        if replica is not None:
            header.target.replica = replica
        if check:
            header.type.CopyFrom(buffer_pb2.ElementType(scalar=scalar(array.dtype)))
            header.shape.extend(array.shape)
        messages = [buffer_pb2.WriteBufferRequest(header=header)]

        def stream():
            yield from messages
            for at in range(0, len(data), _CHUNK):
                yield buffer_pb2.WriteBufferRequest(data=bytes(data[at:at + _CHUNK]))

        with errors.raising():
            return self._stub.WriteBuffer(stream(), metadata=self._metadata).buffer

    def read(self, name: str, *, replica: Optional[int] = None, stacked: bool = False, start: Sequence[int] = (), count: Sequence[int] = (),
             **fields) -> np.ndarray:
        """The array (or a box of it) of any replica, of one, or of all stacked along a new first axis. Of volumes/... too."""
        request = buffer_pb2.ReadBufferRequest(name=name, start=start, count=count, **fields)
        if replica is not None:
            request.selector.replica = replica
        elif stacked:
            request.selector.stacked = True
        array = flat = None
        done = 0
        with errors.raising():
            for part in self._stub.ReadBuffer(request, metadata=self._metadata):
                if part.HasField("header"):
                    array = np.empty(_array_shape(part.header.shape, part.header.type), _dtype(part.header.type))
                    flat = memoryview(array.reshape(-1)).cast("B")
                flat[part.offset:part.offset + len(part.data)] = part.data
                done += len(part.data)
        if array is None or done != array.nbytes:
            raise errors.OctavoError(grpc.StatusCode.DATA_LOSS, f"got {done} bytes of {name}")
        return array

    def get(self, name: str) -> buffer_pb2.Buffer:
        return self._call(self._stub.GetBuffer, buffer_pb2.GetBufferRequest(name=name))

    def list(self, **filters) -> List[buffer_pb2.Buffer]:
        """All that can be seen, oldest first. filters: owner, states, labels, origin."""
        result, token = [], ""
        while True:
            page = self._call(self._stub.ListBuffers, buffer_pb2.ListBuffersRequest(page_size=1000, page_token=token, **filters))
            result.extend(page.buffers)
            token = page.next_page_token
            if not token:
                return result

    def watch(self) -> Iterator[buffer_pb2.BufferEvent]:
        """All buffers now, then each change; leaving the loop ends it."""
        call = self._stub.WatchBuffers(buffer_pb2.WatchBuffersRequest(), metadata=self._metadata)
        with errors.raising():
            try:
                yield from call
            finally:
                call.cancel()

    def update(self, name: str, *, labels: Optional[Dict[str, str]] = None, ttl_seconds: Optional[float] = None, etag: str = "") -> buffer_pb2.Buffer:
        return self._call(self._stub.UpdateBuffer, buffer_pb2.UpdateBufferRequest(
            name=name, labels=labels or {}, set_labels=labels is not None, ttl_seconds=ttl_seconds or 0, set_ttl=ttl_seconds is not None, etag=etag))

    def destroy(self, name: str, *, etag: str = "", lease_token: str = "", detach_exports: bool = False) -> None:
        self._call(self._stub.DestroyBuffer, buffer_pb2.DestroyBufferRequest(name=name, etag=etag, lease_token=lease_token,
                                                                              detach_exports=detach_exports))

    def sync(self, name: str, source: int, targets: Sequence[int] = ()) -> buffer_pb2.Buffer:
        """Copies one replica to others (all), from device to device."""
        return self._call(self._stub.SyncReplicas, buffer_pb2.SyncReplicasRequest(name=name, source=source, targets=targets))

    def apply(self, name: str, *operations, output: str = "", **fields) -> buffer_pb2.Buffer:
        """Runs operations (see array_operation) on a buffer or a held volume, into a new buffer or an existing one. Returns when they are
        enqueued; reads come after them, wait() waits."""
        return self._call(self._stub.ApplyOp, buffer_pb2.ApplyOpRequest(input=name, output=output, operations=[array_operation(o) for o in operations],
                                                                        **fields))

    def wait(self, name: str) -> buffer_pb2.Buffer:
        """Waits until everything that was asked of a buffer is done."""
        with errors.raising():
            return self._stub.WaitBuffer(buffer_pb2.WaitBufferRequest(name=name), metadata=self._metadata)
