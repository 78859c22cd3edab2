"""Memory of the server in this process, without a copy: held volumes and buffers by file descriptors, on the same host.

Needs NumPy, protobuf and, for memory of a GPU, libcuda, but not gRPC: a program with a ticket
(ExportService.Export) can load this module by its path, without the rest of the package.

    connection = Connection(ticket.socket_path)
    mapped = connection.present(ticket.ticket)      # the first use of a piece of memory: a descriptor comes, and is mapped
    array = numpy.asarray(mapped)                   # host backend: read-only
    array = cupy.asarray(mapped)                    # GPU; torch.from_dlpack(mapped); mapped.copy() for NumPy
    later = connection.take("volumes/...")          # another volume: one message; in a slot that is mapped already, nothing is mapped

    for mapped in Volumes(path, nonce):             # or, with a ticket for scans/...: each volume as it completes, without asking

Mapped memory stays valid even if the server dies; it is given back when the last array that uses it
is gone, or by release(). Mappings are kept for the next volume in the same memory until the
connection is closed and their arrays are gone.
"""

from __future__ import annotations

import collections
import ctypes
import importlib.util
import itertools
import mmap
import os
import select
import sys
import threading
import time
import weakref
from typing import Dict, Iterator, Optional

import numpy as np

if __package__:
    from octavo import wire
else:  # loaded by its path, without the package
    _spec = importlib.util.spec_from_file_location("octavo_wire", os.path.join(os.path.dirname(os.path.abspath(__file__)), "wire.py"))
    wire = sys.modules.setdefault(_spec.name, importlib.util.module_from_spec(_spec))
    if not hasattr(wire, "connect"):
        _spec.loader.exec_module(wire)

messages = wire.messages
TYPES = {"u8": "|u1", "i8": "|i1", "u16": "<u2", "i16": "<i2", "u32": "<u4", "i32": "<i4", "u64": "<u8", "i64": "<i8", "f16": "<f2", "f32": "<f4",
         "f64": "<f8", "c64": "<c8", "c128": "<c16", "c32": "<f2"}  # c32: pairs, as a last axis


class HandoffError(Exception):
    """The hand-over was refused, revoked or has ended. reason: TICKET_USED, TICKET_EXPIRED, TICKET_UNKNOWN, WRONG_PEER, EXPORT_REVOKED,
    SERVER_GONE, PROTOCOL, PROTOCOL_VERSION, CUDA, RELEASED, TIMEOUT, and those of ExportService.Export."""

    def __init__(self, reason: str, message: str, code: str = ""):
        super().__init__(f"{reason}: {message}")
        self.reason, self.message, self.code = reason, message, code

    @classmethod
    def of(cls, refused: wire.Refused) -> "HandoffError":
        return cls(refused.reason, refused.message, refused.code)


# -- memory


class _HostMemory:
    """A memory file, mapped to read."""

    kind, device = "HOST_MEMFD", (1, 0)  # as DLPack counts: CPU

    def __init__(self, descriptor: int, about: messages.Export):
        self._bytes = np.frombuffer(mmap.mmap(descriptor, about.mapped_bytes, mmap.MAP_SHARED, mmap.PROT_READ), np.uint8)
        self.pointer = self._bytes.ctypes.data

    def synchronize(self) -> None:
        pass

    def read(self, pointer: int, into: np.ndarray) -> None:
        ctypes.memmove(into.ctypes.data, pointer, into.nbytes)


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class _Cuda:
    """The driver calls in use."""

    def __init__(self):
        try:
            self._lib = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise HandoffError("CUDA", f"this is memory of a GPU, and the program cannot load libcuda: {error}") from None
        self.call("cuInit", ctypes.c_uint(0))
        self._contexts: Dict[int, ctypes.c_void_p] = {}

    def call(self, name: str, *arguments) -> None:
        result = getattr(self._lib, name)(*arguments)
        if result != 0:
            text = ctypes.c_char_p()
            self._lib.cuGetErrorString(result, ctypes.byref(text))
            raise HandoffError("CUDA", f"{name}: {(text.value or b'?').decode()} ({result})")

    def device(self, uuid: str) -> int:
        """Finds the device by its UUID, because ordinals depend on
        CUDA_VISIBLE_DEVICES."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        for ordinal in range(count.value):
            raw = (ctypes.c_ubyte * 16)()
            self.call("cuDeviceGetUuid_v2" if hasattr(self._lib, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid", raw, ctypes.c_int(ordinal))
            if "GPU-" + bytes(raw).hex() == uuid.replace("GPU-", "\0").replace("-", "").replace("\0", "GPU-"):
                return ordinal
        raise HandoffError("CUDA", f"this process sees no device {uuid}; is it hidden by CUDA_VISIBLE_DEVICES?")

    def enter(self, ordinal: int):
        """The primary context, which CuPy, PyTorch and the runtime use."""
        if ordinal not in self._contexts:
            context = ctypes.c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(ordinal))
            self._contexts[ordinal] = context
        self.call("cuCtxPushCurrent_v2", self._contexts[ordinal])

    def leave(self) -> None:
        self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


_cuda_lock = threading.Lock()
_cuda_library: Optional[_Cuda] = None


def _cuda() -> _Cuda:
    global _cuda_library
    with _cuda_lock:
        if _cuda_library is None:
            _cuda_library = _Cuda()
        return _cuda_library


def _unmap_cuda(ordinal: int, pointer: int, size: int) -> None:
    try:
        cuda = _cuda()
        cuda.enter(ordinal)
        try:
            cuda.call("cuCtxSynchronize")
            cuda.call("cuMemUnmap", ctypes.c_uint64(pointer), ctypes.c_size_t(size))
            cuda.call("cuMemAddressFree", ctypes.c_uint64(pointer), ctypes.c_size_t(size))
        finally:
            cuda.leave()
    except HandoffError:  # the context and the mapping are gone
        pass


class _CudaMemory:
    """Physical memory of a device, imported and mapped to read. `access`: 1 = read, 3 = read and write (tests)."""

    kind = "CUDA_VMM"

    def __init__(self, descriptor: int, about: messages.Export, access: int = 1):
        cuda, size = _cuda(), about.mapped_bytes
        ordinal = cuda.device(about.device_uuid)
        self.device = (2, ordinal)
        cuda.enter(ordinal)
        try:
            handle, pointer = ctypes.c_uint64(), ctypes.c_uint64()
            cuda.call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), ctypes.c_int(1))
            try:
                cuda.call("cuMemAddressReserve", ctypes.byref(pointer), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
                cuda.call("cuMemMap", pointer, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
                cuda.call("cuMemSetAccess", pointer, ctypes.c_size_t(size), ctypes.byref(_Access(_Location(1, ordinal), access)), ctypes.c_size_t(1))
            finally:
                cuda.call("cuMemRelease", handle)  # the mapping keeps the memory
        finally:
            cuda.leave()
        self.pointer = pointer.value
        weakref.finalize(self, _unmap_cuda, ordinal, self.pointer, size)

    def synchronize(self) -> None:
        cuda = _cuda()
        cuda.enter(self.device[1])
        try:
            cuda.call("cuCtxSynchronize")
        finally:
            cuda.leave()

    def read(self, pointer: int, into: np.ndarray) -> None:
        cuda = _cuda()
        cuda.enter(self.device[1])
        try:
            cuda.call("cuMemcpyDtoH_v2", ctypes.c_void_p(into.ctypes.data), ctypes.c_uint64(pointer), ctypes.c_size_t(into.nbytes))
        finally:
            cuda.leave()


# -- DLPack


class _DLTensor(ctypes.Structure):
    # and the fields that NumPy fills in
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DLVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


class _Addressed:
    """The base of a NumPy array at a given address; the array keeps it alive, and it keeps the
    memory."""

    def __init__(self, hold: "_Hold", interface: dict):
        self.hold, self.__array_interface__ = hold, interface


def _capsule(mapped: "Mapped", versioned: bool):
    # NumPy makes the capsule from an array that is never read, and this code sets only the device.
    # The destructor and the consumer's deleter are therefore NumPy's own C functions, which may run
    # in any thread and during an exception, unlike Python code.
    array = np.asarray(_Addressed(mapped._hold, {"shape": mapped.shape, "typestr": mapped.dtype.str, "data": (mapped.pointer, False), "version": 3}))
    if versioned:
        try:
            capsule = array.__dlpack__(max_version=(1, 0))
        # NumPy before 2.1 makes only the older kind, which consumers have to accept as well
        except TypeError:
            versioned = False
    if not versioned:
        capsule = array.__dlpack__()
        tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    else:
        managed = _DLVersioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        managed.flags |= 0 if mapped.writable else 1  # DLPACK_FLAG_BITMASK_READ_ONLY
        tensor = managed.tensor
    tensor.device_type, tensor.device_id = mapped.device
    return capsule


# -- handed-over memory


def _scalar(about: messages.Export) -> str:
    """"u8" ... of TYPES."""
    try:
        return messages.Dtype.Name(about.dtype)[len("DTYPE_"):].lower()
    except ValueError:  # a later server's
        return f"dtype {about.dtype}"


def _check(about: messages.Export) -> None:
    """HandoffError (PROTOCOL) for what this client cannot map."""
    if about.kind not in (messages.MEMORY_KIND_HOST_MEMFD, messages.MEMORY_KIND_CUDA_VMM) or _scalar(about) not in TYPES:
        raise HandoffError("PROTOCOL", f"{about.resource} is of a kind ({about.kind}) or type ({_scalar(about)}) that this client does not know", "INTERNAL")
    if about.byte_offset + about.byte_size > about.mapped_bytes:
        raise HandoffError("PROTOCOL", f"{about.resource} does not lie in the memory that was handed over", "INTERNAL")


class _Hold:
    """Lives as long as the memory has users: a Mapped and its arrays, DLPack's consumers."""


class Mapped:
    """One volume or buffer of the server. NumPy (host), CuPy and PyTorch (torch.from_dlpack) take it as an array and keep it alive.

    name         exports/<id>                       of           volumes/... or buffers/...
    shape        as NumPy's                         dtype        a NumPy dtype
    memory       id of the memory behind it generation counts its contents
    device       (2, ordinal) of a GPU, (1, 0) host  pointer     address in this process
    version, digest   the server's
    Of Volumes:  index (of the volume in its scan), complete, missing_ascans, spacing_um, skipped (volumes left out since the one before),
    sealed_ns (when it was complete: time.monotonic_ns)
    """

    index, complete, missing_ascans, spacing_um, skipped, sealed_ns = -1, True, 0, (), 0, 0

    def __init__(self, connection: "Connection", grant: int, about: messages.Export, memory: object, writable: bool):
        self._connection, self._memory = connection, memory
        self.name, self.of, self.memory, self.generation = about.name, about.resource, about.memory, about.generation
        self.version, self.digest, self.kind = about.version, about.digest, memory.kind
        scalar = _scalar(about)
        self.dtype = np.dtype(TYPES[scalar])
        lanes = 2 if scalar == "c32" else about.lanes
        self.shape = tuple(about.shape) + ((lanes,) if lanes > 1 else ())
        self.device = memory.device
        self.pointer = memory.pointer + about.byte_offset
        # the flag that consumers see; PyTorch's __cuda_array_interface__ requires it. Writing would
        # invalidate the digest
        self.writable = writable
        self.grace_seconds: Optional[float] = None  # once revoked
        self._hold = _Hold()
        self._release = weakref.finalize(self._hold, Connection._give_back, connection, grant, self.name, memory)

    def release(self) -> None:
        """Gives the memory back now, after the work enqueued so far on its device. From here on no
        array of it may be used. A second call does no harm."""
        self._release()

    def check(self) -> None:
        """HandoffError if it was released or revoked (EXPORT_REVOKED: give it back), or the server is gone (SERVER_GONE; the memory stays
        readable)."""
        if not self._release.alive:
            raise HandoffError("RELEASED", f"{self.name} of {self.of} was given back")
        self._connection.poll()
        if self.grace_seconds is not None:
            raise HandoffError("EXPORT_REVOKED", f"the server wants {self.name} of {self.of} back within {self.grace_seconds:g} s; release() it")

    def copy(self) -> np.ndarray:
        """Copies the present contents into a new NumPy array, also from a GPU (synchronises).
        HandoffError (RELEASED)."""
        if not self._release.alive:
            raise HandoffError("RELEASED", f"{self.name} of {self.of} was given back")
        into = np.empty(self.shape, self.dtype)
        self._memory.read(self.pointer, into)
        return into

    def __array__(self, *_, **__) -> np.ndarray:
        raise TypeError(f"{self.of} is mapped in memory of a GPU: cupy.asarray or torch.from_dlpack take it as it is, copy() makes a NumPy array")

    @property
    def __array_interface__(self) -> dict:
        if self.device[0] != 1:
            raise AttributeError("__array_interface__: this is memory of a GPU")
        self.check()
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.pointer, True), "version": 3, "strides": None}

    @property
    def __cuda_array_interface__(self) -> dict:
        if self.device[0] != 2:
            raise AttributeError("__cuda_array_interface__: this is memory of the host")
        self.check()
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.pointer, not self.writable), "version": 3, "strides": None,
                "stream": None}

    def __dlpack_device__(self) -> tuple:
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy or (dl_device is not None and tuple(dl_device) != tuple(self.device)):
            raise BufferError("this is handed over as it is, without a copy, on its device")
        self.check()
        # The server has waited for the last write, so there is no stream to
        # wait for.
        return _capsule(self, versioned=max_version is not None and tuple(max_version) >= (1, 0))


class Connection:
    """The hand-over socket of a server, and the mappings received through it. Thread-safe."""

    def __init__(self, path: str, timeout: float = 30.0, *, purpose: int = messages.PURPOSE_MEMORY):
        self.path, self._timeout = path, timeout
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._memory: Dict[str, object] = {}
        self._mapped: "weakref.WeakValueDictionary[str, Mapped]" = weakref.WeakValueDictionary()
        self._grant: Optional[int] = None
        self._gone = False
        # volumes announced but not taken yet, with their descriptors
        self._told: collections.deque = collections.deque()
        self._ended: Optional[messages.FeedEnded] = None     # no more will come
        # Volumes: the server knows the mapped memory
        self._standing = False
        self._out: Dict[str, bool] = {}                      # exports that were not given back
        self._end_with_last = False
        try:
            self._socket = wire.connect(path, purpose, timeout)
        except OSError as error:
            raise HandoffError("SERVER_GONE", f"cannot connect to {path}: {error}") from None
        except wire.Refused as error:
            raise HandoffError.of(error) from None

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return not self._gone

    def close(self) -> None:
        """Ends the connection: the server takes all memory back. Remaining arrays keep their
        mappings, to which the server may write from now on."""
        self._gone = True
        self._socket.close()
        self._memory.clear()
        while self._told:
            wire.close(self._told.popleft()[1])

    def close_with_the_last(self) -> None:
        """Like close(), but only once no memory received through it is in
        use."""
        self._end_with_last = True
        if not self._out:
            self.close()

    def present(self, nonce: str, *, writable: bool = False) -> Mapped:
        """Redeems a ticket and maps its memory."""
        with self._lock:
            answer, descriptors = self._ask(messages.ClientMessage(present=messages.Present(ticket=nonce, have=self._have())))
            self._grant = answer.grant
            return self._map(answer.grant, self._exported(answer, descriptors), descriptors, writable)

    def take(self, volume: str, *, writable: bool = False) -> Mapped:
        """Maps another held volume, by its name; after a ticket was presented on this
        connection."""
        with self._lock:
            if self._grant is None:
                raise HandoffError("TICKET_UNKNOWN", "present a ticket first")
            answer, descriptors = self._ask(messages.ClientMessage(grant=self._grant, take=messages.Take(volume=volume, have=self._have())))
            return self._map(answer.grant, self._exported(answer, descriptors), descriptors, writable)

    def forget(self) -> None:
        """Drops the mappings that no array uses."""
        with self._lock:
            used = {mapped.memory for mapped in self._mapped.values()}
            unused = [m for m in self._memory if m not in used]
            for memory in unused:
                del self._memory[memory]
            if self._standing and unused and not self._gone:
                self._forget(unused)

    def poll(self) -> None:
        """Handles messages that the server sent unasked. HandoffError
        (SERVER_GONE)."""
        with self._lock:
            while not self._gone and select.select([self._socket], [], [], 0)[0]:
                self._note(*self._receive())
            if self._gone:
                raise HandoffError("SERVER_GONE", f"the connection to {self.path} has ended")

    def _have(self) -> list:
        # With more the server sends a descriptor that is not needed.
        return list(itertools.islice(self._memory, wire.MOST_HAVE))

    @staticmethod
    def _exported(answer: messages.ServerMessage, descriptors: list) -> messages.Export:
        if not answer.HasField("exported"):
            wire.close(descriptors)
            raise HandoffError.of(wire.unknown(answer))
        return answer.exported

    def _map(self, grant: int, about: messages.Export, descriptors: list, writable: bool) -> Mapped:
        try:
            _check(about)
            memory = self._memory.get(about.memory)
            if memory is None:
                if not descriptors:
                    raise HandoffError("SERVER_GONE", "the server sent no descriptor")
                memory = (_CudaMemory if about.kind == messages.MEMORY_KIND_CUDA_VMM else _HostMemory)(descriptors[0], about)
                self._memory[about.memory] = memory
        except Exception:
            self._send(messages.ClientMessage(grant=grant, release=messages.Release(name=about.name)))
            if self._standing:
                self._forget([about.memory])
            raise
        finally:
            wire.close(descriptors)
        mapped = Mapped(self, grant, about, memory, writable)
        self._out[mapped.name] = True
        self._mapped[mapped.name] = mapped
        return mapped

    def _forget(self, memory: list) -> None:
        for first in range(0, len(memory), wire.MOST_HAVE):
            self._send(messages.ClientMessage(grant=self._grant, forget=messages.Forget(memory=memory[first:first + wire.MOST_HAVE])))

    def _give_back(self, grant: int, name: str, memory) -> None:
        # The garbage collector may call this at any time, so it takes no lock and waits for no
        # answer.
        if not self._socket.ours:  # in a forked process, which has no context of the GPU either
            return
        self._out.pop(name, None)
        if self._gone:
            return
        try:
            memory.synchronize()
        except HandoffError:
            pass
        self._send(messages.ClientMessage(grant=grant, release=messages.Release(name=name)))
        if self._end_with_last and not self._out:
            self.close()

    def _send(self, message: messages.ClientMessage) -> None:
        try:
            wire.send(self._socket, message)
        except OSError:
            self._gone = True

    def _ask(self, message: messages.ClientMessage) -> tuple:
        message.request = next(self._numbers)
        self._send(message)
        while not self._gone:
            if not select.select([self._socket], [], [], self._timeout)[0]:
                raise HandoffError("SERVER_GONE", f"no answer from {self.path} within {self._timeout:g} s")
            answer, descriptors = self._receive()
            if answer is None or answer.request != message.request:
                self._note(answer, descriptors)
                continue
            if answer.HasField("refused"):
                wire.close(descriptors)
                raise HandoffError.of(wire.refusal(answer.refused))
            return answer, descriptors
        raise HandoffError("SERVER_GONE", f"the connection to {self.path} has ended")

    def _receive(self) -> tuple:
        message, descriptors = wire.receive(self._socket)
        if message is None:
            self._gone = True
        return message, descriptors

    def _note(self, message: Optional[messages.ServerMessage], descriptors: list) -> None:
        body = None if message is None else message.WhichOneof("body")  # also None: of a later version
        if body == "feed_volume":
            self._told.append((message, descriptors))
            return
        wire.close(descriptors)
        if body == "feed_ended":
            self._ended = message.feed_ended
        elif body == "revoked":
            mapped = self._mapped.get(message.revoked.name)
            if mapped is not None:
                mapped.grace_seconds = message.revoked.grace.ToNanoseconds() / 1e9


class Volumes:
    """The volumes of a scan as they complete: an iterator that waits for the next one, until the
    scan has ended. The server announces each volume with everything needed to map it, in one
    message. Iterates over Mapped.

    nonce    of a ticket for scans/<id>
    most     volumes that may be in use at once, 1 to 64. Volumes that complete while `most` are in
             use are left out and counted in `skipped`; a loop keeps one while it waits for the
             next, so with 1 every other volume may be left out
    every    leaves out no volume that is still held: they come, oldest first, as others are given
             back; also those held at the start
    timeout  seconds to wait for a volume (HandoffError, TIMEOUT); None = as long as it takes
    """

    def __init__(self, path: str, nonce: str, *, most: int = 4, every: bool = False, timeout: Optional[float] = None, writable: bool = False):
        self.skipped = 0  # so far
        self.timeout, self._writable = timeout, writable
        try:
            present = messages.Present(ticket=nonce, most=most, every=bool(every))
        except (TypeError, ValueError):
            raise HandoffError("BAD_FIELD", f"most is {most!r}; expected a whole number from 1 to 64", "INVALID_ARGUMENT") from None
        self._connection = Connection(path, purpose=messages.PURPOSE_FEED)
        self._connection._standing = True
        try:
            with self._connection._lock:
                answer, descriptors = self._connection._ask(messages.ClientMessage(present=present))
                wire.close(descriptors)
                if not answer.HasField("feed_opened"):
                    raise HandoffError.of(wire.unknown(answer))
                self._connection._grant = answer.grant
        except BaseException:
            self._connection.close()
            raise
        self.scan = answer.feed_opened.scan
        weakref.finalize(self, Connection.close_with_the_last, self._connection)

    def __enter__(self) -> "Volumes":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __iter__(self) -> Iterator[Mapped]:
        return self

    def __next__(self) -> Mapped:
        connection = self._connection
        if connection._end_with_last:
            raise StopIteration
        end = None if self.timeout is None else time.monotonic() + self.timeout
        while True:
            with connection._lock:
                while not connection._told and not connection._gone and select.select([connection._socket], [], [], 0)[0]:
                    connection._note(*connection._receive())
                if connection._told:
                    message, descriptors = connection._told.popleft()
                    told = message.feed_volume
                    self.skipped += told.skipped
                    mapped = connection._map(message.grant, told.exported, descriptors, self._writable)
                    mapped.index, mapped.complete, mapped.missing_ascans = told.index, told.complete, told.missing_ascans
                    mapped.spacing_um, mapped.skipped, mapped.sealed_ns = tuple(told.spacing_um), told.skipped, told.sealed_monotonic_ns
                    return mapped
                if connection._ended is not None:
                    self.skipped += connection._ended.skipped
                    connection._ended.skipped = 0  # counted
                    connection.close_with_the_last()
                    raise StopIteration
                if connection._gone:
                    raise HandoffError("SERVER_GONE", f"the connection to {connection.path} has ended")
            # Wait without the lock and not for long, because other threads may read meanwhile and
            # may receive the message that this one waits for.
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise HandoffError("TIMEOUT", f"no volume of {self.scan} within {self.timeout:g} s")
            try:
                select.select([connection._socket], [], [], 1.0 if left is None else min(left, 1.0))
            except (OSError, ValueError):  # closed by another thread
                connection._gone = True

    def close(self) -> None:
        """Ends the iteration. Volumes in use stay valid until they are given
        back."""
        self._connection.close_with_the_last()


def owner(mapped) -> Mapped:
    """The Mapped behind a NumPy array (or a view of one), or itself."""
    seen = mapped
    while seen is not None and not isinstance(seen, Mapped):
        seen = getattr(seen, "base", None)
    if seen is None:
        raise TypeError("this array is no memory of a server")
    return seen
