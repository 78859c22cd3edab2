"""Voxels of a volume straight into an array: small boxes over the client's own connection, large ones over connections of their own, several at
once, each of which carries a range of the box; by liboctavo_read (native_read.py), else by threads of Python."""

from __future__ import annotations

import dataclasses
import math
import os
import threading
from typing import Any, Callable, List, Optional, Sequence, Tuple

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from octavo import errors, native_read, payload
from octavo.arguments import short
from octavo.frames import NUMPY
from octavo.v1 import types_pb2, volume_pb2

MOST_CONNECTIONS = 16
_BYTES_OF_ONE = 8 << 20  # of a box: it comes over at most one connection for so many
# More by default gain little: all threads of a Python program together take the messages out of gRPC one at a time.
_CONNECTIONS = 4
_MOST_ITEM_BYTES = 16  # of a voxel of any type
_WORTH_ANOTHER_TRY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)  # of a call that was refused room, or the connection
_METHOD = "/octavo.v1.VolumeService/ReadVolume"
_DATA = volume_pb2.ReadVolumeResponse.DESCRIPTOR.fields_by_name["data"].number
# Options of a connection that carries voxels alone: the reading thread takes the messages itself instead of waiting for a thread of the channel,
# and the server sends ahead.
OPTIONS = [("SingleThreadedUnaryStream", 1), ("grpc.http2.lookahead_bytes", 8 << 20)]


@dataclasses.dataclass
class _Part:
    """A range of the box, contiguous in the array."""

    request: volume_pb2.ReadVolumeRequest
    begin: int  # bytes of the array
    end: int


def _useful() -> int:
    """Connections for a large box, as the processors allow."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_CONNECTIONS, processors // 2))


def _is_small(request: volume_pb2.ReadVolumeRequest) -> bool:
    """Whether the request alone says that one connection does."""
    return request.downsample > 1 or (len(request.count) > 0 and min(request.count) > 0 and math.prod(request.count) * _MOST_ITEM_BYTES < 2 * _BYTES_OF_ONE)


def _box(request: volume_pb2.ReadVolumeRequest, shape: Sequence[int]) -> Optional[Tuple[List[int], List[int]]]:
    """(start, count) of the box along every axis; None for a box that the server refuses."""
    start, count = list(request.start) or [0] * len(shape), list(request.count) or [0] * len(shape)
    if len(start) != len(shape) or len(count) != len(shape):
        return None
    count = [c or n - s for s, c, n in zip(start, count, shape)]
    return (start, count) if all(s >= 0 and 0 < c <= n - s for s, c, n in zip(start, count, shape)) else None


def _split(request: volume_pb2.ReadVolumeRequest, start: Sequence[int], count: Sequence[int], size: int, connections: int) -> List[_Part]:
    """The box in as many parts, at most: ranges of the first axis that has more than one element, so that each is contiguous in the array."""
    axis = next((i for i, n in enumerate(count) if n > 1), 0)
    extent = count[axis]
    number = max(1, min(connections, size // _BYTES_OF_ONE, extent))
    parts = []
    for i in range(number):
        first, last = extent * i // number, extent * (i + 1) // number
        part = volume_pb2.ReadVolumeRequest()
        part.CopyFrom(request)
        part.start[:], part.count[:] = start, count
        part.start[axis] += first
        part.count[axis] = last - first
        parts.append(_Part(part, size // extent * first, size // extent * last))
    return parts


class _Calls:
    """The calls of one read, on several threads: the first error ends them all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: List[grpc.Call] = []
        self._over = False
        self.error: Optional[BaseException] = None  # the first
        self.refused: List[_Part] = []              # that a later call may be given

    def add(self, call: grpc.Call) -> grpc.Call:
        with self._lock:
            self._calls.append(call)
            over = self._over
        if over:
            call.cancel()
        return call

    def failed(self, part: _Part, error: BaseException) -> None:
        with self._lock:
            if self._over:
                return  # cancelled
            if isinstance(error, grpc.RpcError) and error.code() in _WORTH_ANOTHER_TRY:
                self.refused.append(part)
                return
            self.error = error
        self.cancel()

    def cancel(self) -> None:
        with self._lock:
            self._over = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()


class Reader:
    """Reads voxels into arrays. Its connections are made when they are needed. Thread-safe.

    channel  the client's own
    connect  another one, with these options besides the client's
    native   reads large boxes, where its library is there
    """

    def __init__(self, channel: grpc.Channel, connect: Callable[[list], grpc.Channel], native: native_read.Reader):
        self._channel, self._connect, self._native = channel, connect, native
        self._lock = threading.Lock()
        self._channels: List[grpc.Channel] = []
        self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            channels, self._channels = self._channels, []
        self._native.close()
        for channel in channels:
            channel.close()

    def read(self, request: volume_pb2.ReadVolumeRequest, connections: int, out: Optional[np.ndarray],
             volume_of: Callable[[], Optional[volume_pb2.Volume]]) -> np.ndarray:
        """The voxels, in a new array or in `out`. connections: at most so many at once; 0: as the processors and the box allow. volume_of: the
        volume, None if there is none of that name. Raises grpc.RpcError, OctavoError; ValueError for connections or an array that do not fit."""
        if isinstance(connections, bool) or not isinstance(connections, (int, np.integer)) or not 0 <= connections <= MOST_CONNECTIONS:
            raise ValueError(f"connections is {short(connections)}; expected 1 to {MOST_CONNECTIONS}, or 0: as the processors allow")
        volume = None if _is_small(request) else volume_of()
        box = None if volume is None else _box(request, volume.shape)
        dtype = types_pb2.DTYPE_U8 if request.HasField("window") else 0 if volume is None else volume.dtype
        if box is None or dtype not in NUMPY:  # what is wrong, the call says
            return self._whole(self._channel, request, out)
        kind = NUMPY[dtype]
        start, count = box
        size = math.prod(count) * kind.itemsize
        if size < 2 * _BYTES_OF_ONE:
            return self._whole(self._channel, request, out)
        array = _array(tuple(count), kind, out)
        if self._native.read(request, int(connections), array.reshape(-1).view(np.uint8)):
            return array
        parts = _split(request, start, count, size, int(connections) or _useful())
        channels = self._own(len(parts))
        if len(parts) == 1:
            try:
                return self._whole(channels[0], request, array)
            except grpc.RpcError as error:  # the connection was refused: the client's own one is there
                if error.code() not in _WORTH_ANOTHER_TRY or channels[0] is self._channel:
                    raise
                return self._whole(self._channel, request, array)
        self._parts(parts, channels, dtype, array.reshape(-1).view(np.uint8))
        return array

    def _own(self, number: int) -> List[grpc.Channel]:
        """As many connections for voxels alone; fewer, or the client's own, if they cannot be made."""
        with self._lock:
            while len(self._channels) < number and not self._closed:
                try:
                    self._channels.append(self._connect(OPTIONS))
                except (OSError, ValueError):  # the files of the login are gone meanwhile
                    break
            return self._channels[:number] or [self._channel]

    def _whole(self, channel: grpc.Channel, request: volume_pb2.ReadVolumeRequest, out: Optional[np.ndarray]) -> np.ndarray:
        array = None

        def begin(head: volume_pb2.ReadVolumeResponse) -> np.ndarray:
            nonlocal array
            dtype = head.dtype or head.volume.dtype
            if dtype not in NUMPY:
                raise errors.OctavoError(grpc.StatusCode.DATA_LOSS, f"the server sent {request.name} with a type that this client does not know: {dtype}")
            array = _array(tuple(head.shape), NUMPY[dtype], out)
            return array.reshape(-1).view(np.uint8)

        _receive(_call(channel, request), request.name, begin)
        return array

    def _parts(self, parts: List[_Part], channels: List[grpc.Channel], dtype: int, flat: np.ndarray) -> None:
        calls = _Calls()

        def receive(channel: grpc.Channel, part: _Part) -> None:
            def begin(head: volume_pb2.ReadVolumeResponse) -> np.ndarray:
                if head.total_bytes != part.end - part.begin or head.dtype != dtype:
                    raise errors.OctavoError(grpc.StatusCode.DATA_LOSS, f"the server sends another array than that of {part.request.name} a moment ago")
                return flat[part.begin:part.end]

            _receive(calls.add(_call(channel, part.request)), part.request.name, begin)

        def run(channel: grpc.Channel, part: _Part) -> None:
            try:
                receive(channel, part)
            except Exception as error:  # noqa: BLE001 — the caller's thread raises it
                calls.failed(part, error)

        class Thread(threading.Thread):
            """Of one part. Its `over` says that it has ended: join takes a thread for ended whose join was interrupted."""

            def __init__(self, channel: grpc.Channel, part: _Part):
                super().__init__(name="octavo-read", daemon=True)
                self.work, self.over = (channel, part), threading.Event()

            def run(self) -> None:
                try:
                    run(*self.work)
                finally:
                    self.over.set()

        here, threads = [(channels[0], parts[0])], []
        try:
            for i, part in enumerate(parts[1:], 1):
                thread = Thread(channels[i % len(channels)], part)
                threads.append(thread)
                try:
                    thread.start()
                except RuntimeError:  # the system has none left
                    here.append(threads.pop().work)
            for work in here:
                run(*work)
            for thread in threads:
                thread.over.wait()
        except BaseException:  # KeyboardInterrupt
            calls.cancel()
            raise
        finally:
            for thread in threads:  # they write into the array
                if thread.ident is not None:  # else it has not begun, and will find its call cancelled
                    thread.over.wait()
        if calls.error is not None:
            raise calls.error
        for part in calls.refused:  # one after the other over the client's own connection, as if there were no more
            receive(self._channel, part)


def _array(shape: Tuple[int, ...], kind: np.dtype, out: Optional[np.ndarray]) -> np.ndarray:
    """`out` if it is such an array, or a new one."""
    if out is None:
        return np.empty(shape, kind)
    if not isinstance(out, np.ndarray):
        raise ValueError(f"out is {short(out)}; expected a NumPy array")
    if out.shape != shape or out.dtype != kind or not out.flags.c_contiguous or not out.flags.writeable:
        has = "".join([", not in C order" * (not out.flags.c_contiguous), ", read-only" * (not out.flags.writeable)])
        raise ValueError(f"out is {out.dtype} {out.shape}{has}; expected a writable array {kind} {shape} in C order")
    return out


def _call(channel: grpc.Channel, request: volume_pb2.ReadVolumeRequest) -> Any:
    """The messages as they came: without a deserializer, gRPC gives the bytes."""
    return channel.unary_stream(_METHOD, request_serializer=volume_pb2.ReadVolumeRequest.SerializeToString, response_deserializer=None)(request)


def _receive(call: Any, name: str, begin: Callable[[volume_pb2.ReadVolumeResponse], np.ndarray]) -> None:
    """Copies what comes into the bytes that `begin` gives for the first message. Raises unless they are all there."""
    flat: Optional[np.ndarray] = None
    pieces: List[Tuple[int, int]] = []  # offset, bytes
    try:
        for message in call:
            rest, at, end = payload.find(message, _DATA)
            head = volume_pb2.ReadVolumeResponse.FromString(rest)
            if flat is None:
                flat = begin(head)
            size = end - at
            if head.offset + size > flat.size:
                raise errors.OctavoError(grpc.StatusCode.DATA_LOSS, f"the server sent bytes of {name} beyond its end")
            flat[head.offset:head.offset + size] = np.frombuffer(message, np.uint8, size, at)
            pieces.append((head.offset, size))
    except DecodeError as error:
        raise errors.OctavoError(grpc.StatusCode.DATA_LOSS, f"the server sent a message of {name} that cannot be read: {error}") from None
    finally:
        call.cancel()  # does nothing if it has ended
    done = 0
    for offset, size in sorted(pieces):
        if offset != done:
            raise errors.OctavoError(grpc.StatusCode.DATA_LOSS, f"the server sent bytes of {name} twice, or not at all, at {min(offset, done)}")
        done += size
    if flat is None or done != flat.size:
        raise errors.OctavoError(grpc.StatusCode.DATA_LOSS, f"the server sent only {done} bytes of {name}")
