"""Memory of this process as a buffer of the server, without a copy: the counterpart of mapping. The
server must be on this host and have a hand-over socket (handoff.unix).

    array = octavo.shared_array((512, 1024), "f32")       # a NumPy array that can be lent as it is
    with client.import_buffer(array) as lent:
        lent.array[:] = 1                                  # array, in place
        lent.publish()                                     # what is requested from here on sees it
        lent.buffer.read(); lent.buffer.apply({"mip": {"axis": 0}})

Loan alone lends memory by its descriptor, with a ticket of IngestService.ImportBuffer.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import threading
import time
import weakref
from typing import Any, Optional, Sequence

import numpy as np

from octavo import wire
from octavo.mapping import TYPES, HandoffError

messages = wire.messages
# Python 3.13 has the second one.
F_ADD_SEALS, F_SEAL_SHRINK, F_SEAL_FUTURE_WRITE = fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK, getattr(fcntl, "F_SEAL_FUTURE_WRITE", 0x10)


class _SharedFile(mmap.mmap):
    """The memory of a shared_array. Python's mmap keeps a descriptor of its own; this is the one to lend."""

    descriptor = -1


def numpy_type(dtype: Any) -> np.dtype:
    """Of a name of this package ("f32", "u8") or of NumPy. Where both have it, ours counts: "u8" has 8 bits."""
    return np.dtype(TYPES.get(dtype, dtype) if isinstance(dtype, str) else dtype)


def shared_array(shape: Sequence[int], dtype: Any = "f32") -> np.ndarray:
    """A NumPy array of zeros in a memory file of its own, which Client.import_buffer lends as it is. The file is sealed: it cannot
    shrink, and no other process can map it to write."""
    kind = numpy_type(dtype)
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    size = max(int(np.prod(shape, dtype=np.int64)) * kind.itemsize, 1)
    descriptor = os.memfd_create("octavo-lent", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(descriptor, 0, size)  # the server takes no file with holes
        memory = _SharedFile(descriptor, size)   # before the seals: this mapping stays writable
        fcntl.fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE)
    except BaseException:
        os.close(descriptor)
        raise
    memory.descriptor = descriptor
    weakref.finalize(memory, os.close, descriptor)
    return np.frombuffer(memory, np.uint8)[:int(np.prod(shape, dtype=np.int64)) * kind.itemsize].view(kind).reshape(shape)


def file_of(array: np.ndarray) -> Optional[_SharedFile]:
    """The memory file of a shared_array, or of an array that is all of one from its beginning; None of any other. ValueError for a
    part of one: the server takes arrays from the beginning of a file."""
    base: Any = array
    while base is not None and not isinstance(base, _SharedFile):
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    if base is None:
        return None
    begin = np.frombuffer(base, np.uint8).ctypes.data
    if not array.flags.c_contiguous or array.ctypes.data != begin:
        raise ValueError("the array is a part of a shared_array, which is lent as a whole, in C order and from its beginning; "
                         "array.copy() can be lent")
    return base


def view_of(descriptor: int, shape: tuple, dtype: np.dtype, size: int) -> np.ndarray:
    """A memory file of the caller as an array; read-only if its seals or its descriptor allow no more."""
    try:
        memory = mmap.mmap(descriptor, size)
    except (PermissionError, ValueError):
        memory = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
    return np.frombuffer(memory, np.uint8)[:int(np.prod(shape, dtype=np.int64)) * dtype.itemsize].view(dtype).reshape(shape)


class Loan:
    """Memory that is lent by a ticket of IngestService.ImportBuffer. It ends when this process ends, by close(), or when the object is
    gone.

    name     "buffers/..."
    version  the last that publish() gave; 1 at first
    """

    def __init__(self, socket_path: str, ticket: str, descriptor: int, timeout: float = 30.0):
        self._lock, self._timeout, self._number = threading.Lock(), timeout, 0
        self._why, self._gone = "", False
        try:
            self._socket = wire.connect(socket_path, messages.PURPOSE_IMPORT, timeout)
        except OSError as error:
            raise HandoffError("SERVER_GONE", f"cannot connect to {socket_path}: {error}") from None
        except wire.Refused as error:
            raise HandoffError.of(error) from None
        weakref.finalize(self, self._socket.close)
        try:
            with self._lock:
                answer = self._ask(messages.ClientMessage(present=messages.Present(ticket=ticket)), [descriptor])
            if not answer.HasField("imported"):
                raise HandoffError.of(wire.unknown(answer))
        except BaseException:
            self._socket.close()
            raise
        self._grant, self.name, self.version = answer.grant, answer.imported.name, answer.imported.version

    def __enter__(self) -> "Loan":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def ended(self) -> str:
        """Why the server has ended it: "DESTROYED", "EXPIRED", "SESSION_ENDED", "RELEASED", or "SERVER_GONE"; "" while the buffer is
        there. The server reads the memory no more, unless it is gone."""
        with self._lock:
            self._socket_poll()
            return self._why or ("SERVER_GONE" if self._gone else "")

    def publish(self) -> int:
        """Tells the server that the bytes have changed: they are the version that this returns. What is requested from here on sees what
        was written before. Memory of a GPU: synchronise first. HandoffError (NO_BUFFER: it has ended; SERVER_GONE)."""
        with self._lock:
            answer = self._ask(messages.ClientMessage(grant=self._grant, publish=messages.Publish()))
            if not answer.HasField("published"):
                raise HandoffError.of(wire.unknown(answer))
            self.version = answer.published.version
            return self.version

    def close(self) -> None:
        """Ends the buffer, and waits until the server reads the memory no more: it may be used for something else. A second call does no
        harm."""
        with self._lock:
            try:
                if not self._gone and not self._why:
                    self._ask(messages.ClientMessage(grant=self._grant, end=messages.End()))
                    end = time.monotonic() + self._timeout
                    while not self._why and not self._gone:
                        self._note(self._receive(end))
            except HandoffError as error:
                if error.reason not in ("SERVER_GONE", "NO_GRANT"):
                    raise
            finally:
                self._gone = True
                self._socket.close()

    def _ask(self, message: messages.ClientMessage, descriptors: Sequence[int] = ()) -> messages.ServerMessage:
        if self._gone:
            raise HandoffError("SERVER_GONE", "the connection has ended")
        self._number += 1
        message.request = self._number
        try:
            wire.send(self._socket, message, descriptors)
        except OSError as error:
            self._gone = True
            raise HandoffError("SERVER_GONE", f"the connection has ended: {error}") from None
        end = time.monotonic() + self._timeout
        while True:
            answer = self._receive(end)
            if answer.request != message.request:
                self._note(answer)
                continue
            if answer.HasField("refused"):
                raise HandoffError.of(wire.refusal(answer.refused))
            return answer

    def _receive(self, end: float) -> messages.ServerMessage:
        self._socket.settimeout(max(end - time.monotonic(), 0.001))
        try:
            answer, descriptors = wire.receive(self._socket)
        except socket.timeout:
            raise HandoffError("SERVER_GONE", f"no answer within {self._timeout:g} s") from None
        finally:
            if self._socket.fileno() >= 0:
                self._socket.settimeout(None)
        wire.close(descriptors)
        if answer is None:
            self._gone = True
            raise HandoffError("SERVER_GONE", "the connection has ended")
        return answer

    def _note(self, message: messages.ServerMessage) -> None:
        if message.HasField("import_ended"):
            try:
                self._why = messages.ImportEnded.Why.Name(message.import_ended.why)[len("WHY_"):]
            except ValueError:  # a later server's
                self._why = f"reason {message.import_ended.why}"

    def _socket_poll(self) -> None:
        while not self._gone and not self._why:
            self._socket.settimeout(0.0)
            try:
                if not self._socket.recv(1, socket.MSG_PEEK):
                    self._gone = True
                    return
            except BlockingIOError:
                return
            except OSError:
                self._gone = True
                return
            finally:
                if self._socket.fileno() >= 0:
                    self._socket.settimeout(None)
            try:
                self._note(self._receive(time.monotonic() + 1))
            except HandoffError:
                return


class ImportedBuffer(Loan):
    """Memory of this process that is a buffer of the server. Made by Client.import_buffer(); a Loan that knows its array and its buffer.

    array   the lent memory as a NumPy array; None for memory of a GPU
    buffer  the octavo.Buffer
    """

    def __init__(self, socket_path: str, ticket: str, descriptor: int, timeout: float, array: Optional[np.ndarray]):
        super().__init__(socket_path, ticket, descriptor, timeout)
        self.array = array
        self.buffer: Any = None

    def __enter__(self) -> "ImportedBuffer":
        return self
