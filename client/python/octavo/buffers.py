"""Arrays in device memory: replicated buffers, and operations on buffers and volumes as plain dicts."""

from __future__ import annotations

import contextlib
import functools
import numbers
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Union

import grpc
import numpy as np

from octavo import errors, formats
from octavo.arguments import Seconds, explained, explained_methods, limit, message, short, whole
from octavo.fields import Fields, plain
from octavo.names import Names, Types, closest
from octavo.objects import Buffer, BufferName, Name, giving_objects
from octavo.paging import pages
from octavo.v1 import array_operation_pb2, buffer_pb2, buffer_pb2_grpc, operation_pb2, operation_pb2_grpc, types_pb2, volume_pb2

SCALARS = Types({"u8": types_pb2.DTYPE_U8, "i8": types_pb2.DTYPE_I8, "u16": types_pb2.DTYPE_U16, "i16": types_pb2.DTYPE_I16,
                 "f16": types_pb2.DTYPE_F16, "f32": types_pb2.DTYPE_F32, "f64": types_pb2.DTYPE_F64, "c64": types_pb2.DTYPE_C64,
                 "u32": types_pb2.DTYPE_U32, "i32": types_pb2.DTYPE_I32, "u64": types_pb2.DTYPE_U64, "i64": types_pb2.DTYPE_I64,
                 "c32": types_pb2.DTYPE_C32, "c128": types_pb2.DTYPE_C128}, of=types_pb2.Dtype)
NUMPY = {"u8": "u1", "i8": "i1", "u16": "<u2", "i16": "<i2", "f16": "<f2", "f32": "<f4", "f64": "<f8", "c64": "<c8", "u32": "<u4", "i32": "<i4",
         "u64": "<u8", "i64": "<i8", "c32": "<f2", "c128": "<c16"}  # c32 has none: pairs of f2
REDUCTIONS = Names({"sum": array_operation_pb2.REDUCE_KIND_SUM, "min": array_operation_pb2.REDUCE_KIND_MIN, "max": array_operation_pb2.REDUCE_KIND_MAX,
                    "mean": array_operation_pb2.REDUCE_KIND_MEAN, "std": array_operation_pb2.REDUCE_KIND_STD},
                   aliases={"average": "mean", "minimum": "min", "maximum": "max"}, of=array_operation_pb2.ReduceKind)
PARTS = Names({"real": array_operation_pb2.COMPLEX_PART_REAL, "imaginary": array_operation_pb2.COMPLEX_PART_IMAGINARY, "magnitude": array_operation_pb2.COMPLEX_PART_MAGNITUDE,
               "phase": array_operation_pb2.COMPLEX_PART_PHASE, "power": array_operation_pb2.COMPLEX_PART_POWER},
              aliases={"imag": "imaginary", "abs": "magnitude", "angle": "phase"}, of=array_operation_pb2.ComplexPart)  # NumPy's
_Combine = array_operation_pb2.ArrayOperation.CombineParameters
COMBINATIONS = Names({"add": _Combine.KIND_ADD, "subtract": _Combine.KIND_SUBTRACT, "multiply": _Combine.KIND_MULTIPLY, "divide": _Combine.KIND_DIVIDE}, of=_Combine.Kind)
EDGES = Names({"mirror": array_operation_pb2.RESIZE_EDGE_MIRROR, "reflect": array_operation_pb2.RESIZE_EDGE_REFLECT}, of=array_operation_pb2.ResizeEdge)
SAMPLINGS = Names({"nearest": array_operation_pb2.SAMPLING_NEAREST, "linear": array_operation_pb2.SAMPLING_LINEAR, "cubic": array_operation_pb2.SAMPLING_CUBIC},
                  of=array_operation_pb2.Sampling)
SAMPLE_EDGES = Names({"constant": array_operation_pb2.SAMPLE_EDGE_CONSTANT, "nearest": array_operation_pb2.SAMPLE_EDGE_NEAREST, "reflect": array_operation_pb2.SAMPLE_EDGE_REFLECT,
                      "mirror": array_operation_pb2.SAMPLE_EDGE_MIRROR, "wrap": array_operation_pb2.SAMPLE_EDGE_WRAP},
                     aliases={"grid-wrap": "wrap", "grid-mirror": "reflect"}, of=array_operation_pb2.SampleEdge)  # SciPy's
_SECOND = ("other", "mask", "coordinates", "field", "amounts", "flat")  # fields that name a second array
_CHUNK = 1 << 20
_MOST_FORMS = 1024


def scalar(dtype) -> int:
    """The Dtype of a name ("f32", "float32"), a NumPy dtype or a Dtype."""
    return SCALARS.pick("dtype", dtype)


def _device_names(devices: Sequence[Union[str, int]]) -> List[str]:
    """The names of devices that are given by name or number."""
    if isinstance(devices, (str, int)):
        devices = [devices]
    return [f"devices/{whole(f'devices[{i}]', one, 0, 2**31 - 1)}" if isinstance(one, numbers.Integral) else one for i, one in enumerate(devices)]


def array_operation(operation: Union[dict, array_operation_pb2.ArrayOperation], axes: Sequence[str] = ()) -> array_operation_pb2.ArrayOperation:
    """{"mip": {"axis": 2}}, {"scale": {"multiply": 2, "add": 1 + 1j, "type": "f32"}}, {"reduce":
    {"kind": "mean", "axes": [0]}}, {"flip": {}} ... with the fields of octavo.v1.ArrayOperation;
    names for types, kinds, parts, samplings and edges, numbers for complex values, and a matrix as a
    list or as rows. Axes are numbers as in
    NumPy, -3 to 2; for volumes, whose `axes` have names, also "y", "x" and "z"."""
    if isinstance(operation, array_operation_pb2.ArrayOperation):
        return operation
    name, fields = one_operation(operation, array_operation_pb2.ArrayOperation)
    values = dict(fields)
    _check_values(name, fields)
    of = array_operation_pb2.ArrayOperation.DESCRIPTOR.fields_by_name[name].message_type.fields_by_name
    for field, value in fields.items():
        if field in of and of[field].message_type is array_operation_pb2.ArrayOperation.Complex.DESCRIPTOR:
            values[field] = _complex(f"{name}.{field}", value)
        elif field == "matrix" and np.ndim(value) == 2:
            values[field] = np.asarray(value).ravel()
        elif field == "axis" and value is not None:
            values[field] = _axis(f"{name}.axis", value, axes)
        elif field == "axes" and isinstance(value, (list, tuple)):
            values[field] = [_axis(f"{name}.axes[{i}]", one, axes) for i, one in enumerate(value)]
    return message(array_operation_pb2.ArrayOperation, {name: values})


def _check_values(name: str, fields: dict) -> None:
    """ValueError for an array in the place of a buffer; a warning for percentiles that look like fractions."""
    many = fields.get("others")
    named = [(field, fields.get(field)) for field in _SECOND] + [(f"others[{i}]", one) for i, one in enumerate(many if isinstance(many, (list, tuple)) else ())]
    for field, given in named:
        other = plain(given)
        if other is not None and not isinstance(other, str) and not isinstance(other, buffer_pb2.Buffer):
            raise ValueError(f"{name}.{field} is {short(other)}; expected a Buffer, or its name, buffers/<id> (client.buffers.put(array) makes one)")
    given = fields.get("percentiles")
    if name == "percentile" and isinstance(given, (list, tuple, np.ndarray)) and len(given) > 0:
        values = [one for one in given if isinstance(one, numbers.Real)]
        if len(values) == len(given) and max(values) <= 1 and any(0 < one < 1 for one in values):
            errors.warn(f"percentile.percentiles is {short(list(values))}, which look like fractions; percentiles are 0 to 100: "
                        f"[{', '.join(f'{100 * one:g}' for one in values)}] for these")


def array_operations(operations: Sequence, axes: Sequence[str]) -> list:
    """A sequence of operations on an array whose axes have these names."""
    made = []
    for one in operations:
        made.append(array_operation(one, axes))
        axes = axes_after(made[-1], axes)
    return made


def volume_operations(operations: Sequence, axes: Sequence[str]) -> List[volume_pb2.VolumeOperation]:
    """Operations on a volume, each on the result of the one before: {"cartesian": {...}},
    {"angiography": {...}}, {"doppler": {...}}, or those on arrays."""
    made: List[volume_pb2.VolumeOperation] = []
    for one in operations:
        made.append(_volume_operation(one, axes))
        axes = axes_after(made[-1].array, axes)
    return made


def _volume_operation(operation, axes: Sequence[str]) -> volume_pb2.VolumeOperation:
    if isinstance(operation, volume_pb2.VolumeOperation):
        return operation
    if isinstance(operation, array_operation_pb2.ArrayOperation):
        return volume_pb2.VolumeOperation(array=operation)
    name, fields = one_operation(operation, volume_pb2.VolumeOperation, array_operation_pb2.ArrayOperation)
    if name == "array":
        return volume_pb2.VolumeOperation(array=array_operation(fields, axes))
    if name in volume_pb2.VolumeOperation.DESCRIPTOR.fields_by_name:
        return message(volume_pb2.VolumeOperation, {name: fields})
    return volume_pb2.VolumeOperation(array=array_operation(operation, axes))


def names_axes(operation) -> bool:
    """Whether one of its axes is given by its name."""
    if not isinstance(operation, dict):
        return False
    if "array" in operation:
        return names_axes(operation["array"])
    fields = [fields for fields in operation.values() if isinstance(fields, dict)]
    given = [one for of in fields for one in [of.get("axis"), *(of.get("axes") if isinstance(of.get("axes"), (list, tuple)) else ())]]
    return any(isinstance(one, str) for one in given)


def axes_after(operation: array_operation_pb2.ArrayOperation, axes: Sequence[str]) -> tuple:
    """The names of the axes of an operation's result."""
    if operation.WhichOneof("operation") != "transpose" or len(axes) == 0:
        return tuple(axes)
    order = list(operation.transpose.axes) or range(len(axes))[::-1]
    return tuple(axes[i] for i in order) if all(-len(axes) <= i < len(axes) for i in order) else ()


def _axis(field: str, value, axes: Sequence[str]) -> int:
    names = [name for name in axes if isinstance(value, str) and name == value.strip().lower()]
    if names:
        return list(axes).index(names[0])
    try:
        return whole(field, value, -3, 2)
    except ValueError:
        named = f"{', '.join(map(repr, axes))} (the axes {', '.join(map(str, range(len(axes))))}) and " if len(axes) else ""
        raise ValueError(f"{field} is {short(value)}; expected {named}a whole number from -3 to 2") from None


def one_operation(operation, *kinds) -> tuple:
    """The name and the fields of {"name": {...}}, an operation of one of the messages `kinds`."""
    allowed = {name: field for kind in kinds for name, field in kind.DESCRIPTOR.fields_by_name.items()}
    if not isinstance(operation, dict) or len(operation) != 1:
        raise ValueError(f"an operation is {short(operation)}; expected a dict of one name and its fields: {{'mip': {{'axis': 2}}}}")
    (name, fields), = operation.items()
    if name not in allowed:
        raise ValueError(f"an operation is {short(name)}; expected one of {', '.join(allowed)}{closest(str(name), allowed)}")
    if fields is not None and not isinstance(fields, dict):
        of = allowed[name].message_type.fields_by_name
        raise ValueError(f"{name} is {short(fields)}; expected a dict of its fields: {', '.join(of) or 'none'}")
    return name, fields or {}


def _complex(field: str, value):
    if value is None or isinstance(value, array_operation_pb2.ArrayOperation.Complex):
        return value
    try:
        number = complex(value)
    except (TypeError, ValueError):
        raise ValueError(f"{field} is {short(value)}; expected a number, which may be complex") from None
    return array_operation_pb2.ArrayOperation.Complex(re=number.real, im=number.imag)


def _dtype(element: types_pb2.ElementType) -> np.dtype:
    name = next(n for n, number in SCALARS.items() if number == element.dtype)
    return np.dtype(NUMPY[name])


def _array_shape(shape: Sequence[int], element: types_pb2.ElementType) -> tuple:
    """Shape and dtype for NumPy: elements of several lanes (and pairs of f2) add a last
    axis."""
    lanes = 2 if element.dtype == types_pb2.DTYPE_C32 else max(1, element.lanes)
    return tuple(shape) + ((lanes,) if lanes > 1 else ())


def _little(array: np.ndarray) -> np.ndarray:
    """The array in the server's byte order. ValueError for types that the server
    does not have."""
    scalar(array.dtype.newbyteorder("<"))
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def caller(client: str, key: str) -> list:
    """Metadata of calls: `client` is the client's name; `key` opens its private buffers (16 to 128
    characters)."""
    return [pair for pair in (("octavo-client", client), ("octavo-owner-key", key)) if pair[1]]


@giving_objects
@explained_methods
class Buffers:
    """BufferService of a client (Client.buffers)."""

    def __init__(self, channel: grpc.Channel, timeout: float, metadata: list, address: str = ""):
        self.address = address
        self._stub = buffer_pb2_grpc.BufferServiceStub(channel)
        self._operations = operation_pb2_grpc.OperationServiceStub(channel)
        self._timeout = timeout
        self._metadata = metadata
        self._forms: Dict[str, tuple] = {}  # of the newest buffers: (shape, type) of the array for NumPy, which never change

    def _call(self, method, request):
        with errors.raising(self.address):
            return method(request, timeout=self._timeout, metadata=self._metadata)

    @explained()
    def create(self, shape: Sequence[int], dtype: Any = "f32", *, lanes: int = 1, devices: Sequence[Union[str, int]] = (), uninitialized: bool = False,
               labels: Optional[Dict[str, str]] = None, ttl: Optional[Seconds] = None, private: bool = False, request_id: str = "") -> Buffer:
        """A new buffer, full of zeros, on all devices, or on `devices`: "devices/0" or 0."""
        return self._call(self._stub.CreateBuffer, message(buffer_pb2.CreateBufferRequest, dict(
            type=message(types_pb2.ElementType, dict(dtype=scalar(dtype), lanes=lanes)), shape=shape,
            placement=message(buffer_pb2.Placement, dict(devices=_device_names(devices))),
            fill=buffer_pb2.CreateBufferRequest.FILL_UNINITIALIZED if uninitialized else buffer_pb2.CreateBufferRequest.FILL_ZERO, labels=labels or {},
            ttl=ttl, is_private=private, request_id=request_id))).buffer

    @explained(create, covered=("shape", "dtype", "uninitialized"))
    def put(self, array: np.ndarray, *, lanes: int = 1, **fields: Any) -> Buffer:
        """A new buffer that holds `array` on every device. lanes > 1: the last axis holds the lanes
        of the elements."""
        array = _little(np.asarray(array))
        if lanes > 1 and (array.ndim == 0 or array.shape[-1] != lanes):
            raise ValueError(f"array has the shape {array.shape}; lanes={lanes} needs a last axis of {lanes} elements")
        buffer = self.create(array.shape[:-1] if lanes > 1 else array.shape, array.dtype, lanes=lanes, uninitialized=True, **fields)
        return self.write(buffer.name, array)

    def write(self, name: BufferName, array: np.ndarray, *, replica: Optional[int] = None, offset: Optional[int] = None, if_version: int = 0,
              lease_token: str = "", check: bool = True) -> Buffer:
        """Writes to all replicas, or to one.

        offset  the byte from which on a part is written; None: the array is the whole buffer
        check   ValueError for an array of another type than the buffer's, or, without `offset`, of another shape; False: its bytes are written
                as they are
        """
        errors.check_kind("name", name, "buffers")
        array = np.asarray(array)
        if check and name.startswith("buffers/"):
            self._check_form(name, array, offset is None)
        array = np.ascontiguousarray(_little(array))
        data = memoryview(array).cast("B")
        target = None if replica is None else message(buffer_pb2.BufferTarget, dict(replica=replica))
        header = message(buffer_pb2.WriteBufferRequest.Header, dict(name=name, target=target, byte_offset=offset, total_bytes=len(data),
                                                                    if_version=if_version, lease_token=lease_token),
                         called={"byte_offset": "offset"})
        messages = [buffer_pb2.WriteBufferRequest(header=header)]

        def stream():
            yield from messages
            for at in range(0, len(data), _CHUNK):
                yield buffer_pb2.WriteBufferRequest(data=bytes(data[at:at + _CHUNK]))

        with errors.raising(self.address):
            return self._stub.WriteBuffer(stream(), metadata=self._metadata).buffer

    def _check_form(self, name: str, array: np.ndarray, whole_buffer: bool) -> None:
        """ValueError for an array that is not of the buffer's type, or not of its shape."""
        if name not in self._forms:
            buffer = self._call(self._stub.GetBuffer, buffer_pb2.GetBufferRequest(name=name)).buffer
            if len(self._forms) >= _MOST_FORMS:
                self._forms.pop(next(iter(self._forms)), None)
            self._forms[name] = _array_shape(buffer.shape, buffer.type), _dtype(buffer.type)
        shape, dtype = self._forms[name]
        if array.dtype.newbyteorder("<") == dtype and (not whole_buffer or array.shape == shape):
            return
        wanted = f"{dtype} {shape}" if whole_buffer else f"{dtype}, of a buffer of the shape {shape}"
        convert = f"; array.astype({dtype.name!r}) converts" if array.dtype.newbyteorder("<") != dtype else ""
        part = "; offset= writes a part" if whole_buffer and array.shape != shape else ""
        raise ValueError(f"array is {array.dtype} {array.shape}; expected {wanted}, as {name} is{convert}{part}; check=False writes its bytes as they are")

    @explained(buffer_pb2.ReadBufferRequest, covered=("selector",))
    def read(self, name: Name, *, replica: Optional[int] = None, stacked: bool = False, start: Sequence[int] = (), count: Sequence[int] = (),
             **fields: Any) -> np.ndarray:
        """The array (or a box of it) of any replica, of one, or of all stacked along a new first
        axis. Also reads volumes/...."""
        errors.check_kind("name", name, ("buffers", "volumes"))
        if replica is not None and stacked:
            raise ValueError(f"replica is {short(replica)} and stacked is True; give one of them")
        which = dict(replica=replica) if replica is not None else dict(stacked=True) if stacked else None
        selector = None if which is None else message(buffer_pb2.ReadBufferRequest.Selector, which)
        request = message(buffer_pb2.ReadBufferRequest, dict(name=name, selector=selector, start=start, count=count, **fields))
        array = flat = None
        done = 0
        with errors.raising(self.address):
            for part in self._stub.ReadBuffer(request, metadata=self._metadata):
                if part.HasField("header"):
                    array = np.empty(_array_shape(part.header.shape, part.header.type), _dtype(part.header.type))
                    flat = memoryview(array.reshape(-1)).cast("B")
                flat[part.offset:part.offset + len(part.data)] = part.data
                done += len(part.data)
        if array is None or done != array.nbytes:
            raise errors.OctavoError(grpc.StatusCode.DATA_LOSS, f"the server sent only {done} bytes of {name}")
        return array

    def get(self, name: BufferName) -> Buffer:
        errors.check_kind("name", name, "buffers")
        return self._call(self._stub.GetBuffer, buffer_pb2.GetBufferRequest(name=name)).buffer

    def list(self, *, filter: str = "", order_by: str = "") -> List[Buffer]:
        """All visible buffers (those that match the filter: 'client = "viewer" AND labels.eye =
        "OD"'), oldest first."""
        return pages(functools.partial(self._call, self._stub.ListBuffers),
                     buffer_pb2.ListBuffersRequest(filter=filter, order_by=order_by), "buffers")

    def watch(self) -> Iterator[Fields]:
        """Yields all buffers, then each change (octavo.v1.WatchBuffersResponse: kind, buffer, text);
        leaving the loop ends it."""
        with errors.raising(self.address):
            call = self._stub.WatchBuffers(buffer_pb2.WatchBuffersRequest(), metadata=self._metadata)
            try:
                yield from call
            finally:
                call.cancel()

    def update(self, name: BufferName, *, labels: Optional[Dict[str, str]] = None, ttl: Optional[Seconds] = None, etag: str = "") -> Buffer:
        errors.check_kind("name", name, "buffers")
        return self._call(self._stub.UpdateBuffer, message(buffer_pb2.UpdateBufferRequest, dict(
            name=name, labels=labels, ttl=ttl, etag=etag,
            update_mask=dict(paths=[field for field, value in (("labels", labels), ("ttl", ttl)) if value is not None])))).buffer

    def destroy(self, name: BufferName, *, etag: str = "", lease_token: str = "", detach_exports: bool = False) -> None:
        errors.check_kind("name", name, "buffers")
        self._call(self._stub.DestroyBuffer, buffer_pb2.DestroyBufferRequest(name=name, etag=etag, lease_token=lease_token,
                                                                              detach_exports=detach_exports))

    def sync(self, name: BufferName, source: int, targets: Sequence[int] = ()) -> Buffer:
        """Copies one replica to others (all), from device to device."""
        errors.check_kind("name", name, "buffers")
        return self._call(self._stub.SyncReplicas, message(buffer_pb2.SyncReplicasRequest, dict(name=name, source=source, targets=targets))).buffer

    @explained(buffer_pb2.ApplyOpRequest, covered=("input", "operations"))
    def apply(self, name: Name, *operations: Union[dict, array_operation_pb2.ArrayOperation], output: BufferName = "", **fields: Any) -> Buffer:
        """Runs operations (see array_operation) on a buffer or a held volume, into a new buffer or
        an existing one. Returns when they are enqueued; later reads run after them, and wait()
        waits for their end."""
        errors.check_kind("name", name, ("buffers", "volumes"))
        return self._call(self._stub.ApplyOp, message(buffer_pb2.ApplyOpRequest, dict(
            input=name, output=output, operations=[array_operation(o) for o in operations], **fields))).buffer

    @explained(formats.commit_options)
    def commit(self, name: BufferName, destination: str, format: str = "", *, axes: Sequence[str], spacing_um: Sequence[float] = (), title: str = "",
               replica: Optional[int] = None, if_version: int = 0, progress: Optional[Callable] = None, request_id: str = "", lease_token: str = "",
               **options: Any) -> Fields:
        """Writes a buffer to storage, as a volume, in any format that a volume has; the buffer stays. Gives octavo.v1.CommitResult. Formats and options
        as in Client.commit. A KeyboardInterrupt or an exception of progress(OperationProgress) cancels the commit.

        axes        names of its dimensions, slowest first: "zyx"; those that a buffer of 1 or 2 dimensions lacks get the extent 1
        spacing_um  µm from sample to sample along each; 0: not known
        """
        errors.check_kind("name", name, "buffers")
        request = message(buffer_pb2.CommitBufferRequest, dict(
            name=name, options=formats.commit_options(destination, format, **options), axes=list(axes), spacing_um=spacing_um, title=title, replica=replica,
            if_version=if_version, request_id=request_id, lease_token=lease_token))
        request.wait.SetInParent()  # 0: answer as soon as it has begun
        with errors.raising(self.address):
            step = self._stub.CommitBuffer(request, metadata=self._metadata).operation
        left = True
        try:
            with errors.raising(self.address):
                for told in self._operations.WatchOperation(operation_pb2.WatchOperationRequest(name=step.name), metadata=self._metadata):
                    step = told.operation
                    if progress:
                        progress(step.progress)
            left = False
        except errors.OctavoError:  # the connection is lost: the commit goes on
            left = False
            raise
        finally:
            if left and not step.done:
                with contextlib.suppress(errors.OctavoError):
                    self._call(self._operations.CancelOperation, operation_pb2.CancelOperationRequest(name=step.name))
        if (error := errors.of_operation(step)) is not None:
            raise error
        return step.commit

    def wait(self, name: BufferName, *, timeout: Optional[Seconds] = None) -> Buffer:
        """Waits until all work requested on a buffer is done, at most `timeout` seconds (OctavoTimeout)."""
        errors.check_kind("name", name, "buffers")
        most = limit("timeout", timeout)
        with errors.waiting(most, lambda: self.get(name)), errors.raising(self.address):
            return self._stub.WaitBuffer(buffer_pb2.WaitBufferRequest(name=name), timeout=most, metadata=self._metadata).buffer
