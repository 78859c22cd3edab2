"""Frames of a subscription in memory of the server on the same host (StreamService.OpenFrames, PURPOSE_FRAMES of the hand-over wire)."""

from __future__ import annotations

import fcntl
import mmap
import socket
import threading
import time
import weakref
from typing import Dict, Iterator, Optional, Set, Tuple

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from octavo import errors, wire
from octavo.v1 import stream_pb2

messages = wire.messages
_MOST_SLOTS = 64
_F_GET_SEALS, _F_SEAL_SHRINK = 1034, 2


class _Memory:
    """The memory of a slot, mapped to read."""

    def __init__(self, number: int, descriptor: int, size: int):
        if not fcntl.fcntl(descriptor, _F_GET_SEALS) & _F_SEAL_SHRINK:  # a read behind the end of a file that shrinks ends the program
            raise ValueError("it may shrink")
        self.number = number
        self.bytes = np.frombuffer(mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ), np.uint8)  # mmap refuses more than the file has


class _Loan:
    """A frame in its slot: the base of its array, which keeps the slot until the last view of it is gone."""

    def __init__(self, memory: _Memory, size: int):
        self._memory = memory
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (memory.bytes.ctypes.data, True), "version": 3}


class FrameFeed:
    """The frames of one subscription. Arrays are views of the shared memory, read-only; the last slot that is free is never lent: its frame
    is copied, so that frames go on however many the caller keeps."""

    def __init__(self, path: str, ticket: str, timeout: Optional[float]):
        self._until = None if timeout is None else time.monotonic() + timeout
        self._path = path
        self._memory: Dict[int, _Memory] = {}
        self._slots, self._grant = 1, 0
        self._lent: Set[int] = set()  # slots whose frames have users
        self._lock = threading.RLock()  # of closing and sending; the garbage collector may send in the middle of either
        if timeout is not None and timeout <= 0:
            raise _over()
        try:
            self._socket = wire.connect(path, messages.PURPOSE_FRAMES, timeout)
        except socket.timeout:
            raise _over() from None
        except OSError as error:
            raise errors.OctavoError(grpc.StatusCode.UNAVAILABLE, f"cannot connect to {path}: {error}", "SERVER_GONE") from None
        except wire.Refused as error:
            raise (errors.of_refusal(error.refused) if error.refused is not None else _strange(error.message)) from None
        wire.send(self._socket, messages.ClientMessage(request=1, present=messages.Present(ticket=ticket)))

    def close(self) -> None:
        """Ends the subscription. Arrays that are still in use stay as they are."""
        with self._lock:
            self._socket.close()

    def __iter__(self) -> Iterator[Tuple[stream_pb2.Frame, object]]:
        """Each frame: what it is, and its data as a buffer."""
        while True:
            answer, descriptors = self._receive()
            try:
                kind = answer.WhichOneof("body")
                if kind == "refused":
                    raise errors.of_refusal(answer.refused)
                if kind == "frames_ended":
                    if answer.frames_ended.HasField("why"):
                        raise errors.of_refusal(answer.frames_ended.why)
                    return
                if kind in ("frames_opened", "frame_ready"):
                    self._grant = answer.grant
                if kind == "frames_opened":
                    self._slots = answer.frames_opened.slots
                if kind != "frame_ready":
                    continue  # unasked and not known
                frame = self._take(answer.frame_ready, descriptors)
            finally:
                wire.close(descriptors)
            yield frame
            del frame  # or it would keep its slot until the next one is there

    def _receive(self):
        left = None if self._until is None else self._until - time.monotonic()
        if left is not None and left <= 0:
            raise _over()
        try:
            self._socket.settimeout(left)
            answer, descriptors = wire.receive(self._socket)
        except socket.timeout:
            raise _over() from None
        if answer is None:
            raise errors.OctavoError(grpc.StatusCode.UNAVAILABLE, f"the connection to {self._path} has ended", "SERVER_GONE")
        return answer, descriptors

    def _take(self, ready: messages.FrameReady, descriptors) -> Tuple[stream_pb2.Frame, object]:
        if ready.slot >= _MOST_SLOTS:
            raise _strange(f"a frame in slot {ready.slot}; allowed 0 to {_MOST_SLOTS - 1}")
        if descriptors:
            try:
                self._memory[ready.slot] = _Memory(ready.memory, descriptors[0], ready.mapped_bytes)
            except (OSError, ValueError) as error:
                raise _strange(f"memory that cannot be mapped: {error}") from None
        memory = self._memory.get(ready.slot)
        if memory is None or memory.number != ready.memory:
            raise _strange("a frame in memory that did not come")
        if max(ready.byte_size, ready.frame_offset + ready.frame_bytes) > len(memory.bytes):
            raise _strange("a frame that does not lie in its memory")
        try:
            about = stream_pb2.Frame.FromString(memory.bytes[ready.frame_offset:ready.frame_offset + ready.frame_bytes].tobytes())
        except DecodeError:
            raise _strange("a frame whose description cannot be read") from None
        if not ready.byte_size or about.encoding != stream_pb2.ENCODING_RAW or len(self._lent) >= self._slots - 1:
            data = bytearray(memory.bytes[:ready.byte_size])
            self._done(ready.slot)
            return about, data
        loan = _Loan(memory, ready.byte_size)
        self._lent.add(ready.slot)
        weakref.finalize(loan, self._done, ready.slot).atexit = False
        return about, np.asarray(loan)

    def _done(self, slot: int) -> None:
        """Gives the slot back. Any thread."""
        self._lent.discard(slot)
        try:
            with self._lock:
                wire.send(self._socket, messages.ClientMessage(grant=self._grant, done=messages.Done(slot=slot)))
        except OSError:  # closed
            pass


def _over() -> errors.OctavoError:
    return errors.OctavoError(grpc.StatusCode.DEADLINE_EXCEEDED, "the timeout is over")


def _strange(what: str) -> errors.OctavoError:
    return errors.OctavoError(grpc.StatusCode.INTERNAL, f"the server sent {what}", "PROTOCOL")
