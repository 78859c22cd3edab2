"""A producer's ring: this process writes raw records of a scan, or frames of a tomography job, into
memory that it shares with the server, which takes them from there. The counterpart of client/cpp/include/octavo/octavo_ring.h, which
describes the memory. With a ticket no gRPC is needed: a program may load this module by its path,
without the rest of the package."""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import math
import mmap
import numbers
import os
import platform
import socket
import sys
import time
from typing import Optional, Union

import numpy as np

if __package__:
    from octavo import wire
else:  # loaded by its path, without the package
    _spec = importlib.util.spec_from_file_location("octavo_wire", os.path.join(os.path.dirname(os.path.abspath(__file__)), "wire.py"))
    wire = sys.modules.setdefault(_spec.name, importlib.util.module_from_spec(_spec))
    if not hasattr(wire, "connect"):
        _spec.loader.exec_module(wire)

messages = wire.messages
PAGE = 4096
MAGIC = 0x474E49524F54434F
QUEUED, RUNNING, CLOSED = 0, 1, 2
FEEDING, ENDED, FAILED = 0, 1, 2
OVERRUN, FRAME = 1, 2  # flags of a descriptor
OF_JOB = 2  # flag of the facts
KINDS = {"projection": 1, "flat": 2, "white": 2, "dark": 3}  # octavo.v1.PushProjectionsRequest.Kind
RAW_DTYPES = {1: np.dtype("u1"), 2: np.dtype("<u2"), 3: np.dtype("<i2"), 4: np.dtype("<f4")}  # octavo.v1.RawType; packed ones as bytes
FACTS = np.dtype([("magic", "u8"), ("version", "u4"), ("flags", "u4"), ("total_bytes", "u8"), ("descriptor_offset", "u8"), ("data_offset", "u8"),
                  ("slot_bytes", "u8"), ("slots", "u4"), ("block_records", "u4"), ("record_bytes", "u4"), ("samples_per_record", "u4"),
                  ("raw_type", "u4"), ("channels", "u4"), ("total_records", "u8"), ("rows", "u4"), ("columns", "u4")])
DESCRIPTOR = np.dtype([("number", "u8"), ("first_record", "u8"), ("records", "u4"), ("flags", "u4"), ("time_ns", "i8"), ("sequence", "u8"), ("kind", "u8"),
                       ("angle_rad", "f8"), ("reserved", "u8")])
FUTEX_WAIT, FUTEX_WAKE = 0, 1
SYS_FUTEX = {"x86_64": 202, "aarch64": 98, "arm64": 98}


class RingError(Exception):
    """The producer cannot write (any more). `errno`: EPIPE (the scan wants no more records, the job no
    more frames), ECONNRESET (the server is gone), ESTALE (another producer has taken the ring), EPROTO
    (the server cut this one off), EACCES (refused: `reason` says why), EINVAL (records for the ring of a
    job, or frames for that of a scan; nothing was published)."""

    def __init__(self, number: int, message: str, reason: str = ""):
        super().__init__(message)
        self.errno, self.reason = number, reason


class _Words:
    """Aligned numbers in the memory. A load acquires and a store releases: plain accesses do so on
    x86-64; other machines use libatomic."""

    def __init__(self, base: int):
        self.base = base
        machine = platform.machine()
        self.plain = machine in ("x86_64", "AMD64")
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libatomic = None if self.plain else ctypes.CDLL("libatomic.so.1")
        self.futex_number = SYS_FUTEX[machine if machine != "AMD64" else "x86_64"]

    def load(self, offset: int, kind=ctypes.c_uint64) -> int:
        if self.plain:
            return kind.from_address(self.base + offset).value
        function = getattr(self.libatomic, f"__atomic_load_{ctypes.sizeof(kind)}")
        function.restype, function.argtypes = kind, (ctypes.c_void_p, ctypes.c_int)
        return function(self.base + offset, 2)

    def store(self, offset: int, value: int, kind=ctypes.c_uint64) -> None:
        if self.plain:
            kind.from_address(self.base + offset).value = value
            return
        function = getattr(self.libatomic, f"__atomic_store_{ctypes.sizeof(kind)}")
        function.restype, function.argtypes = None, (ctypes.c_void_p, kind, ctypes.c_int)
        function(self.base + offset, value, 5)

    def wait(self, offset: int, value: int, seconds: float) -> None:
        timeout = (ctypes.c_long * 2)(int(seconds), int(seconds % 1 * 1e9))
        self.libc.syscall(self.futex_number, ctypes.c_void_p(self.base + offset), FUTEX_WAIT, ctypes.c_uint32(value), timeout, None, 0)

    def wake(self, offset: int) -> None:
        self.libc.syscall(self.futex_number, ctypes.c_void_p(self.base + offset), FUTEX_WAKE, 0x7FFFFFFF, None, None, 0)


_U32 = ctypes.c_uint32
# The words of both pages (client/cpp/include/octavo/octavo_ring.h).
_RELEASED, _BELL, _STATE, _WAITS, _ERROR_CODE, _ATTACHMENT, _NEXT, _RECORDS, _LOST, _ERROR = (
    PAGE + offset for offset in (0, 8, 12, 16, 20, 24, 32, 40, 48, 256))
_PUBLISHED, _MY_BELL, _MY_STATE, _MY_WAITS, _MY_NEXT, _OVERRUNS, _OVERRUN_RECORDS, _MY_ERROR = (
    2 * PAGE + offset for offset in (0, 8, 12, 16, 24, 32, 40, 256))
_TEXT = 256


class Ring:
    """The producer's end. For one thread.

        with octavo.Ring(socket, ticket) as ring:      # or client.open_ring(scan)
            while (slot := ring.begin()) is not None:  # None: the scan wants no more
                count = fill(slot)                     # slot[:count] = …: array [block_records, samples], in the shared memory itself
                ring.publish(count)
            ring.end()

    The ring of a tomography job whose input is pushed projections takes frames (of_job is True):

        with client.open_ring(job=job) as ring:
            for number, (array, angle) in enumerate(camera):
                if not ring.publish_frame(array, sequence=number, angle_rad=angle):
                    break                              # the job wants no more
            ring.end()

    next_record  the number, within the scan, of the record to write next; may be set forwards:
               skipped records are lost. Of a job: the first frame that it lacked when the ring was
               opened, then the one behind the last that was published
    of_job, rows, columns  whether the ring takes frames, and their extents
    slots, block_records, record_bytes, samples_per_record, channels, total_records: as octavo_ring.h says
    A view of a slot must not be used when the ring is closed.
    """

    def __init__(self, socket_path: str, ticket: str):
        self._memory = None
        try:
            self._connection = wire.connect(socket_path, messages.PURPOSE_RING, timeout=None)
        except wire.Refused as error:
            raise RingError(errno.EPROTO if error.reason.startswith("PROTOCOL") else errno.EACCES, error.message, error.reason) from None
        fds = []
        try:
            wire.send(self._connection, messages.ClientMessage(present=messages.Present(ticket=ticket)))
            answer, fds = wire.receive(self._connection)
            if answer is None:
                raise RingError(errno.ECONNRESET, "the server ended the connection")
            if answer.HasField("refused"):
                error = wire.refusal(answer.refused)
                raise RingError(errno.EACCES, error.message, error.reason)
            if not answer.HasField("ring") or not fds:
                error = wire.unknown(answer)
                raise RingError(errno.EPROTO, error.message, error.reason)
            self._memory = mmap.mmap(fds[0], os.fstat(fds[0]).st_size)
        except BaseException:
            self._connection.close()
            raise
        finally:
            wire.close(fds)
        self._bytes = np.frombuffer(self._memory, dtype=np.uint8)
        facts = self._bytes[:FACTS.itemsize].view(FACTS)[0]
        if facts["magic"] != MAGIC or facts["version"] != 1 or facts["total_bytes"] != len(self._memory):
            self.close()
            raise RingError(errno.EPROTO, "this program does not know the form of this ring's memory")
        for name in ("slots", "block_records", "record_bytes", "samples_per_record", "channels", "raw_type", "total_records", "rows", "columns"):
            setattr(self, name, int(facts[name]))
        self.of_job = bool(facts["flags"] & OF_JOB)
        self._words = _Words(self._bytes.ctypes.data)
        begin, end = int(facts["descriptor_offset"]), int(facts["descriptor_offset"]) + self.slots * DESCRIPTOR.itemsize
        self._descriptors = self._bytes[begin:end].view(DESCRIPTOR)
        begin, end = int(facts["data_offset"]), int(facts["data_offset"]) + self.slots * int(facts["slot_bytes"])
        dtype = RAW_DTYPES.get(self.raw_type, np.dtype("u1"))
        self._slots = self._bytes[begin:end].view(dtype).reshape(self.slots, self.rows if self.of_job else self.block_records, -1)
        self._attachment = self._words.load(_ATTACHMENT)
        self._published = self._words.load(_PUBLISHED)
        self._flags = 0
        self.next_record = self._words.load(_NEXT)

    def __enter__(self) -> "Ring":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def state(self) -> int:
        """QUEUED (published blocks wait), RUNNING, or CLOSED (the scan takes no more records, the job
        no more frames)."""
        return self._words.load(_STATE, _U32)

    @property
    def free(self) -> int:
        """Free slots now."""
        return self.slots - (self._published - self._words.load(_RELEASED))

    @property
    def counts(self) -> dict:
        """The server's account: records accepted, records lost. Of a job: frames that have come from
        all clients, frames missing before the last of them, the first that is missing."""
        return {"records": self._words.load(_RECORDS), "lost_records": self._words.load(_LOST), "next_record": self._words.load(_NEXT)}

    def trouble(self) -> Optional[RingError]:
        """The reason why the producer cannot write any more, or None."""
        if self._words.load(_ERROR_CODE, _U32):
            text = bytes(self._bytes[_ERROR:_ERROR + _TEXT]).split(b"\0")[0].decode(errors="replace")
            return RingError(errno.EPROTO, text)
        if self.state == CLOSED:
            return RingError(errno.EPIPE, "the job wants no more frames" if self.of_job else "the scan wants no more records")
        if self._words.load(_ATTACHMENT) != self._attachment:
            return RingError(errno.ESTALE, "another producer has taken the ring")
        try:
            if self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                return RingError(errno.ECONNRESET, "the server is gone")
        except BlockingIOError:
            pass
        except OSError as error:
            return RingError(errno.ECONNRESET, f"the server is gone: {error}")
        return None

    def begin(self, timeout: Optional[float] = None) -> Optional[np.ndarray]:
        """The next slot to fill: [block_records, samples × channels] of the scan's type (bytes of a
        record for packed types), in the shared memory; of a job a frame [rows, columns] (bytes of its
        rows for packed types). Waits for one for at most `timeout` seconds, then raises TimeoutError
        (the ring is full: call `drop`, or wait again). None when the scan wants no more records, the
        job no more frames; RingError for other errors."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            bell = self._words.load(_BELL, _U32)
            if self.free > 0 and self.state != CLOSED and not self._words.load(_ERROR_CODE, _U32) and self._words.load(_ATTACHMENT) == self._attachment:
                return self._slots[self._published % self.slots]
            trouble = self.trouble()
            if trouble is not None:
                if trouble.errno == errno.EPIPE:
                    return None
                raise trouble
            self._wait(bell, until, "the ring is full")

    def _wait(self, bell: int, until: Optional[float], late: str) -> None:
        """Until the server's bell is no longer `bell`, or a little while. TimeoutError past `until`."""
        left = 0.05 if until is None else min(0.05, until - time.monotonic())
        if left <= 0:
            raise TimeoutError(late)
        self._words.store(_MY_WAITS, 1, _U32)
        self._words.wait(_BELL, bell, left)
        self._words.store(_MY_WAITS, 0, _U32)

    def publish(self, records: int, *, time_ns: int = 0) -> None:
        """The slot holds `records` records from `next_record` on, the last of which was there at `time_ns` of CLOCK_MONOTONIC (0 = now)."""
        if self.of_job:
            raise RingError(errno.EINVAL, "this is the ring of a job, which takes frames: publish_frame(array, sequence=, kind=, angle_rad=)")
        self._publish((self._published, self.next_record, records, self._flags, time_ns, 0, 0, 0.0, 0), self.next_record + records)
        self._flags = 0

    def _publish(self, descriptor: tuple, next_record: int) -> None:
        self._descriptors[self._published % self.slots] = descriptor
        self.next_record = next_record
        self._published += 1
        self._words.store(_MY_NEXT, self.next_record)
        self._words.store(_PUBLISHED, self._published)
        self._ring_bell()

    def publish_frame(self, array: Optional[np.ndarray] = None, *, sequence: int, kind: Union[str, int] = "projection", angle_rad: float = 0.0,
                      timeout: Optional[float] = None) -> bool:
        """Publishes a frame of a job's scan. False: the job wants no more frames. While the ring is full
        it waits, at most `timeout` seconds, then TimeoutError. Frames may come in any order; those that
        the job has already, and numbers that it does not have, are counted and ignored.

        array      [rows, columns] of the job's type, copied into a slot; None: the slot that begin()
                   gave holds the frame already
        sequence   its number within the scan, counted from 0 over all kinds
        kind       "projection", "flat" or "dark"
        angle_rad  of a projection
        """
        if not self.of_job:
            raise RingError(errno.EINVAL, "this is the ring of a scan, which takes records: publish(records)")
        number = KINDS.get(kind) if isinstance(kind, str) else kind
        if number not in (1, 2, 3):
            raise ValueError(f"kind is {kind!r}; expected 'projection', 'flat' or 'dark'")
        if isinstance(sequence, bool) or not isinstance(sequence, (int, np.integer)) or not 0 <= sequence < 2 ** 64:
            raise ValueError(f"sequence is {sequence!r}; expected a whole number from 0 to {self.total_records - 1}")
        if not isinstance(angle_rad, numbers.Real) or not math.isfinite(angle_rad):
            raise ValueError(f"angle_rad is {angle_rad!r}; expected a finite angle")
        shape, dtype = self._slots.shape[1:], self._slots.dtype
        if array is not None:
            array = np.asarray(array)
            if array.shape != shape or array.dtype.newbyteorder("<") != dtype:
                raise ValueError(f"array is {array.dtype} {array.shape}; the job wants {dtype} {shape}")
        slot = self.begin(timeout)
        if slot is None:
            return False
        if array is not None:
            slot[...] = array
        self._publish((self._published, sequence, 1, FRAME, 0, sequence, number, angle_rad, 0), int(sequence) + 1)
        return True

    def flush(self, timeout: Optional[float] = None) -> bool:
        """Waits until the server has taken all published slots, at most `timeout` seconds, then
        TimeoutError. False: the scan or job wants no more, and had all that it wants."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            bell = self._words.load(_BELL, _U32)
            trouble = self.trouble()
            if trouble is not None:
                if trouble.errno == errno.EPIPE:
                    return False
                raise trouble
            if self.free == self.slots:
                return True
            self._wait(bell, until, f"the server has not taken the last {self.slots - self.free} slots")

    def drop(self, records: int) -> None:
        """`records` records are lost because the ring was full: an overrun (ScanSpec.overrun)."""
        if self.of_job:
            raise RingError(errno.EINVAL, "this is the ring of a job: a frame that is not published is missing")
        if records <= 0:
            return
        self.next_record += records
        if not self._flags:
            self._words.store(_OVERRUNS, self._words.load(_OVERRUNS) + 1)
        self._flags = OVERRUN
        self._words.store(_OVERRUN_RECORDS, self._words.load(_OVERRUN_RECORDS) + records)
        self._words.store(_MY_NEXT, self.next_record)

    def end(self) -> None:
        """No more records will come. Of a job: this producer sends no more frames."""
        self._words.store(_MY_NEXT, self.next_record)
        self._words.store(_MY_STATE, ENDED, _U32)
        self._ring_bell()

    def fail(self, why: str) -> None:
        """The producer cannot continue: the scan or job ends FAILED (SOURCE_LOST) with
        `why`."""
        text = why.encode()[:_TEXT - 1]
        self._bytes[_MY_ERROR:_MY_ERROR + _TEXT] = 0
        self._bytes[_MY_ERROR:_MY_ERROR + len(text)] = np.frombuffer(text, np.uint8)
        self._words.store(_MY_NEXT, self.next_record)
        self._words.store(_MY_STATE, FAILED, _U32)
        self._ring_bell()

    def _ring_bell(self) -> None:
        self._words.store(_MY_BELL, (self._words.load(_MY_BELL, _U32) + 1) & 0xFFFFFFFF, _U32)
        self._words.wake(_MY_BELL)

    def close(self) -> None:
        """Closes the connection. Published records count; unless `end` was called, the scan or job
        waits for the next producer."""
        self._connection.close()
        self._slots = self._descriptors = self._bytes = None
        self._memory = None  # unmapped when the last view of a slot is gone
