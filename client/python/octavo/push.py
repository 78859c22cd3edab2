"""The client's side of IngestService.Push and PushProjections: credit, acknowledgement, new connections."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import operator
import os
import threading
import time
from typing import Callable, Iterable, Iterator, List, Optional, Tuple, Union

import grpc
import numpy as np

from octavo import errors, ring
from octavo.arguments import explained, real, short, whole
from octavo.names import Names, short_name
from octavo.packing import MOST, PACKED, packed_bytes, packed_rows
from octavo.v1 import scan_pb2, ingest_pb2, types_pb2

Block = Union[np.ndarray, Tuple[int, np.ndarray], Tuple[int, np.ndarray, List[Tuple[str, int]]]]
Blocks = Union[Iterable[Block], Callable[[int], Iterable[Block]]]

MESSAGE_BYTES = 2 << 20  # the size at which gRPC is fastest
TAKEN_SECONDS = 2.0  # to wait for the end of a ring's producer that has gone
LOOK_SECONDS = 5.0  # for the caller's iterator, once all is sent, to show whether there is more
RETRY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)


@dataclasses.dataclass
class PushResult:
    """How a push ended.

    next_record  records before this one were accepted or given up by the server
    done         the scan wants no more records: it has all of them, or the client said that no more
                 will come (end), or it has ended. next_record, and Scan.missing_ascans of
                 client.wait(scan), tell whether all records arrived
    sent         records sent, those sent again included
    connections  how many connections it took
    status       the server's octavo.v1.SourceStatus
    """

    next_record: int = 0
    done: bool = False
    sent: int = 0
    connections: int = 0
    status: Optional[object] = None


@dataclasses.dataclass
class ProjectionPushResult:
    """How a push of projections ended.

    done         the job wants no more frames: all have arrived, or the clients sent their end, or
               the job has ended. `missing` tells whether all arrived
    missing      (first, count) of the first 256 runs of frames that have not arrived, by sequence
               number
    sent         messages sent, those sent again included; through a ring: frames
    connections  how many connections it took
    status       the server's octavo.v1.ProjectionPushStatus
    """

    done: bool = False
    missing: List[Tuple[int, int]] = dataclasses.field(default_factory=list)
    sent: int = 0
    connections: int = 0
    status: Optional[object] = None


class _Pusher:
    """One push over as many connections as necessary. The caller's thread reads answers; gRPC's
    thread of a call takes requests from it."""

    def __init__(self, result, end: bool):
        self.end = end
        self.result = result
        self.error: Optional[BaseException] = None  # of blocks
        self.changed = threading.Condition()  # guards the members below
        self.ready: collections.deque = collections.deque()  # requests that wait for credit, in order
        self.sent: collections.deque = collections.deque()   # on this connection, not yet received by the server
        self.sent_blocks = 0         # on this connection
        self.answer = None           # the newest of this connection
        self.connection = 0
        self.exhausted = False       # `blocks` is exhausted
        self.fetching = threading.Lock()  # one thread takes more from `blocks`
        # warnings about the given data, to be issued on the caller's thread
        self.doubts: collections.deque = collections.deque()
        self.implied: List[str] = []  # texts of the server for the same problem
        self.source: Optional[Iterator] = None

    # -- differences of the two kinds

    def hello(self):
        """The first request of a connection."""
        raise NotImplementedError

    def goodbye(self):
        """The request that says that no more data will come."""
        raise NotImplementedError

    def split(self, answer) -> Iterator:
        """All requests, none larger than the server accepts."""
        raise NotImplementedError

    def lacks(self, request, answer) -> bool:
        """Whether the server has not received the data of this request."""
        raise NotImplementedError

    def note(self, answer) -> None:
        """Copies the server's answer into the result."""
        raise NotImplementedError

    def count(self, request) -> int:
        """The number that a request adds to result.sent."""
        return 1

    def full(self) -> bool:
        """All wanted data were given."""
        raise NotImplementedError

    def surplus(self) -> int:
        """The surplus of the data given so far."""
        raise NotImplementedError

    def judge(self) -> List[str]:
        """Warnings about too much or too little data, once the push is
        over."""
        raise NotImplementedError

    # -- common parts

    def start(self) -> int:
        """A new connection begins."""
        with self.changed:
            self.connection += 1
            self.sent_blocks, self.answer = 0, None
            self.result.connections += 1
            return self.connection

    def stop(self) -> None:
        """The connection is over: its request thread ends."""
        with self.changed:
            self.connection += 1
            self.changed.notify_all()

    def take(self, answer) -> bool:
        """Handles an answer. True when everything is done."""
        with self.changed:
            # requests of this connection: those that the server did not receive on the last one
            # come first
            if self.answer is None:
                lost = [r for r in self.sent if self.lacks(r, answer)]
                self.sent.clear()
                self.ready.extendleft(reversed(lost))
            self.answer = answer
            while len(self.sent) > self.sent_blocks - answer.received:
                self.sent.popleft()
            self.result.done, self.result.status = answer.done, answer.status
            self.note(answer)
            self.changed.notify_all()
            return answer.done

    def requests(self, connection: int) -> Iterator:
        yield self.hello()
        while True:
            with self.changed:
                self.changed.wait_for(lambda: connection != self.connection or (self.answer is not None and self.answer.credit > self.sent_blocks))
                answer = self.answer
            with self.fetching:
                if connection == self.connection and not self.ready and not self.exhausted:
                    self.fetch(answer)
            with self.changed:
                if connection != self.connection:
                    return
                request = self.ready.popleft() if self.ready else None
                if request is not None:
                    self.sent.append(request)
                    self.sent_blocks += 1
                    self.result.sent += self.count(request)
            if request is None:
                break
            yield request
        if not self.end or self.error is not None:
            return  # the server ends the stream when it has read all
        yield self.goodbye()
        with self.changed:  # the stream stays open until the server wants no more
            self.changed.wait_for(lambda: connection != self.connection)

    def finish(self) -> None:
        """Ends the push: warns about surplus data. Takes one more element on a separate thread,
        because an iterator may be slow or wait for ever."""
        if self.answer is None or not (self.exhausted or self.full() or self.surplus()):
            return
        found: List[str] = []
        error = self.error

        def look():
            with self.fetching:
                if not self.exhausted and not self.surplus():
                    self.fetch(self.answer)
                    self.error = error  # data that are not needed cannot fail a push that is over
                found.extend(self.judge())

        thread = threading.Thread(target=look, name="octavo-look", daemon=True)
        thread.start()
        thread.join(LOOK_SECONDS)
        self.doubts.extend(found)

    def fetch(self, answer) -> None:
        request = None
        try:
            if self.source is None:
                self.source = self.split(answer)
            request = next(self.source, None)
        except BaseException as error:  # of the caller's own iterator: raised again on the caller's thread
            self.error = error
        with self.changed:
            if request is not None:
                self.ready.append(request)
            else:
                self.exhausted = True
            self.changed.notify_all()


class _RecordPusher(_Pusher):
    def __init__(self, scan: str, blocks: Blocks, spec: scan_pb2.ScanSpec, end: bool):
        super().__init__(PushResult(), end)
        self.scan, self.blocks, self.acquisition = scan, blocks, spec.acquisition
        if isinstance(blocks, np.ndarray):
            self.doubts.extend(_doubts_of_shape(blocks, spec))
        self.listed = False  # how many there are can be counted
        self.rest: Iterator = iter(())  # of blocks
        self.following = 0  # the record behind the last block
        self.reached = 0    # the furthest of them within the scan
        self.beyond = 0     # records given beyond the scan
        self.outside = 0    # records with numbers outside the scan, before it had all
        self.first_outside = 0
        self.told_of: List[str] = []  # in the first block

    def knows(self, text: str) -> bool:
        """Whether the server's warning repeats one that was issued for the first block
        already."""
        return any(word in text for word in self.told_of)

    def hello(self):
        return ingest_pb2.PushRequest(scan=self.scan)

    def goodbye(self):
        return ingest_pb2.PushRequest(end=True)

    def split(self, answer):
        most = min(answer.max_block_records, max(1, MESSAGE_BYTES // answer.record_bytes))
        self.following = self.reached = answer.next_record
        blocks = self.blocks(answer.next_record) if callable(self.blocks) else self.blocks
        self.listed = isinstance(blocks, (list, tuple, np.ndarray))
        self.rest = iter(blocks)
        for i, block in enumerate(self.rest):
            first, array, markers = self.parts(block)
            array = _records(array, self.acquisition, answer.record_bytes)
            first = whole("the number of a block's first record", first, 0, 2 ** 63 - 1)
            markers = [(name, whole(f"the record of the marker {name!r}", record, 0, 2 ** 63 - 1)) for name, record in markers]
            if i == 0:
                doubts = _doubts(array, self.acquisition)
                self.told_of = ["are all 0"] if doubts and "are all 0" in doubts[0] else ["acquisition.adc_bits is"] if doubts else []
                self.doubts.extend(doubts)
            if len(array) == 0 and markers:
                raise ValueError(f"an empty block carries the markers {markers}; a block with markers needs at least one record")
            self.given(first, len(array), answer.total_records)
            yield from _parts(first, array, markers, most)

    def parts(self, block) -> tuple:
        return (*block, [])[:3] if isinstance(block, tuple) and len(block) > 1 else (self.following, block, [])

    def given(self, first: int, count: int, total: int) -> None:
        self.following = first + count
        if total and first >= total > self.reached:
            self.first_outside = self.first_outside if self.outside else first
            self.outside += count
        elif total:
            self.beyond += max(0, self.following - max(first, total))
            self.reached = max(self.reached, min(self.following, total)) if first < total else self.reached

    def full(self):
        return self.reached >= self.answer.total_records > 0

    def surplus(self):
        return self.beyond + self.outside

    def judge(self):
        return self.judge_numbers() + self.judge_count()

    def judge_numbers(self):
        if not self.outside:
            return []
        last = self.answer.total_records - 1
        self.implied.append(f"Records were pushed with numbers outside of the scan's 0 to {last}, the first of them {self.first_outside}: they are left "
                            "out, and counted as out_of_range_records.")
        return [f"{self.outside} records were given with numbers outside of the scan's 0 to {last}, the first of them {self.first_outside}: they are "
                "left out"]

    def judge_count(self):
        total = self.answer.total_records
        if self.listed and self.full():
            for block in self.rest:
                first, array, _ = self.parts(block)
                if isinstance(first, (int, np.integer)) and hasattr(array, "__len__"):  # a wrong element no longer matters
                    self.given(first, len(array), total)
        if self.beyond:
            self.implied.append(f"More records were pushed than the {total} that the scan takes: the surplus is left out, and counted as "
                                "out_of_range_records.")
            return [f"{f'{self.beyond} records more' if self.listed else 'more records'} were given than the {total} that the scan takes, "
                    "which are those of its pattern and its volumes: the surplus is left out"]
        if self.end and self.exhausted and total and not self.full():
            return [f"the records that were given end at {self.reached} of the {total} that the scan takes: the missing part of its volumes "
                    "holds 0 or NaN (Volume.missing_ascans). To go on in another call, give end=False"]
        return []

    def lacks(self, request, answer):
        return request.first_record + request.records > answer.next_record

    def note(self, answer):
        self.result.next_record = answer.next_record

    def count(self, request):
        return request.records


@dataclasses.dataclass
class ProjectionFrame:
    """A frame of a tomography scan.

    sequence   its number within the scan, counted over all kinds
    array      [row, column] of the job's type; if its raw_type is packed: uint8 [row, bytes], rows as the camera packed them, or uint16
               [row, column], which are packed when they are sent
    kind       "projection", "flat" or "dark"
    angle_rad  of a projection
    """

    sequence: int
    array: np.ndarray
    kind: str = "projection"
    angle_rad: float = 0.0


class _Frames:
    """An iterator with the number of remaining elements, if its arrays have
    one."""

    def __init__(self, frames: Iterator[ProjectionFrame], count: Optional[int]):
        self._frames, self._left = frames, count

    def __iter__(self) -> Iterator[ProjectionFrame]:
        return self

    def __next__(self) -> ProjectionFrame:
        frame = next(self._frames)
        self._left = None if self._left is None else self._left - 1
        return frame

    def __length_hint__(self):
        return NotImplemented if self._left is None else max(0, self._left)


@explained()
def projection_frames(projections: Iterable[np.ndarray], angles_rad: Iterable[float], flats: Optional[Iterable[np.ndarray]] = None,
                      darks: Optional[Iterable[np.ndarray]] = None) -> Iterator[ProjectionFrame]:
    """Frames of arrays [frame, row, column] in the order darks, flats, projections; each projection
    has an angle in radians. The sequence numbers count all of them, so `frames` of
    PushedProjections must be their total."""
    for name, arrays in (("projections", projections), ("flats", flats), ("darks", darks)):
        if hasattr(arrays, "ndim") and arrays.ndim != 3:
            raise ValueError(f"{name} has the shape {arrays.shape}; expected the axes [frame, row, column]")
    for name, arrays in (("flats", flats), ("darks", darks)):
        if hasattr(arrays, "ndim") and hasattr(projections, "ndim") and arrays.shape[1:] != projections.shape[1:]:
            raise ValueError(f"{name} has the shape {arrays.shape}; expected [frame, {projections.shape[1]}, {projections.shape[2]}], frames as large as those "
                             f"of projections, {projections.shape}")
    if hasattr(projections, "__len__") and hasattr(angles_rad, "__len__") and len(projections) != len(angles_rad):
        raise ValueError(f"angles_rad has {len(angles_rad)} values; expected {len(projections)}, an angle for each projection")
    if hasattr(angles_rad, "__len__"):
        _check_unit(np.asarray(angles_rad, np.float64))
    given = [arrays for arrays in (projections, flats, darks) if arrays is not None]
    count = sum(len(arrays) for arrays in given) if all(hasattr(arrays, "__len__") for arrays in given) else None
    return _Frames(_projection_frames(projections, angles_rad, flats, darks), count)


def _check_unit(angles: np.ndarray) -> None:
    """ValueError for angles that look like degrees: from 8 on, a scan over 180 or 360, with or without its last one. Golden angles that were
    not reduced to a turn may cover as much (the rule of the server for the angles of a file, server/tomography/plausible.cc)."""
    if angles.ndim != 1 or len(angles) < 8:
        return
    width = np.ptp(angles)
    step = width / (len(angles) - 1)
    turned, golden = abs(math.remainder(step, 2 * math.pi)), (3 - 5 ** 0.5, (5 ** 0.5 - 1) / 2)
    if min(abs(turned - math.pi * one) for one in golden) >= 1e-5 and any(whole - 1.5 * step < width < whole + 0.5 * step for whole in (180, 360)):
        raise ValueError(f"angles_rad are {angles.min():g} to {angles.max():g}, {width / (2 * math.pi):.1f} turns, which look like degrees; expected "
                         "radians: np.deg2rad(angles)")


def _projection_frames(projections, angles_rad, flats, darks) -> Iterator[ProjectionFrame]:
    sequence = itertools.count()
    for kind, arrays in (("dark", darks), ("flat", flats)):
        for array in () if arrays is None else arrays:
            yield ProjectionFrame(next(sequence), array, kind)
    for array, angle in zip(projections, angles_rad, strict=True):
        yield ProjectionFrame(next(sequence), array, "projection", float(angle))


_KINDS = Names({"projection": ingest_pb2.PushProjectionsRequest.KIND_PROJECTION, "flat": ingest_pb2.PushProjectionsRequest.KIND_FLAT,
                "dark": ingest_pb2.PushProjectionsRequest.KIND_DARK}, aliases={"white": "flat"}, of=ingest_pb2.PushProjectionsRequest.Kind)
_TYPES = {types_pb2.DTYPE_U8: np.dtype("u1"), types_pb2.DTYPE_U16: np.dtype("<u2"), types_pb2.DTYPE_I16: np.dtype("<i2"), types_pb2.DTYPE_F32: np.dtype("<f4")}


class _ProjectionPusher(_Pusher):
    def __init__(self, job: str, frames, raw_type: int, end: bool):
        super().__init__(ProjectionPushResult(), end)
        self.job, self.frames = job, frames
        self.raw_type = raw_type
        self.packed = next((name for name, number in PACKED.items() if number == raw_type), "")  # "u12p"; "": the job's frames are not packed
        self.listed = False   # how many there are can be counted
        self.rest: Iterator = iter(())  # of frames
        self.given = 0
        self.beyond = 0       # those of them whose number the job does not have
        self.first_beyond = 2 ** 64

    def hello(self):
        return ingest_pb2.PushProjectionsRequest(job=self.job)

    def goodbye(self):
        return ingest_pb2.PushProjectionsRequest(end=True)

    def split(self, answer):
        for sequence, kind, angle, array in self.checked(answer):
            most = max(1, MESSAGE_BYTES // array[0].nbytes)
            for row in range(0, answer.rows, most):
                part = array[row:row + most]
                yield ingest_pb2.PushProjectionsRequest(sequence=sequence, kind=kind, angle_rad=angle, first_row=row, rows=len(part),
                                                        data=part.tobytes())

    def checked(self, answer) -> Iterator[tuple]:
        """Sequence, kind, angle and array of each frame, which fit the job, as they are sent: packed if the job's frames are."""
        dtype = _TYPES[answer.dtype]
        row_bytes = packed_bytes(answer.columns) if self.packed else answer.columns * dtype.itemsize
        frames = self.frames(self.result.missing) if callable(self.frames) else self.frames
        self.listed = isinstance(frames, (list, tuple))
        self.rest = iter(frames)
        for frame in self.rest:
            if not isinstance(frame, ProjectionFrame):
                raise ValueError(f"frames has {short(frame)}; expected an octavo.ProjectionFrame; octavo.projection_frames() makes them of arrays")
            array = np.ascontiguousarray(frame.array)
            sent_packed = self.packed and array.dtype == np.uint8 and array.shape == (answer.rows, row_bytes)
            if not sent_packed and (array.dtype != dtype or array.shape != (answer.rows, answer.columns)):
                wanted = f"{dtype} {(answer.rows, answer.columns)}"
                rows = f"rows packed as {self.packed}, uint8 {(answer.rows, row_bytes)}, or " if self.packed else ""
                raise ValueError(f"frame {frame.sequence} is {array.dtype} {array.shape}; the job wants {rows}{wanted}")
            if self.packed and not sent_packed and array.max() > MOST:
                raise ValueError(f"frame {frame.sequence} has the value {array.max()}; the job wants {self.packed}, counts of 0 to {MOST}")
            sequence = whole("the sequence of a frame", frame.sequence, 0, 2 ** 64 - 1)
            self.count_in(sequence, answer.frames)
            kind, angle = _KINDS.pick(f"kind of frame {sequence}", frame.kind), real(f"angle_rad of frame {sequence}", frame.angle_rad)
            yield sequence, kind, angle, packed_rows(array, self.raw_type) if self.packed and not sent_packed else array

    def count_in(self, sequence: int, frames: int) -> None:
        self.given += 1
        if sequence >= frames:
            self.beyond += 1
            self.first_beyond = min(self.first_beyond, sequence)

    def full(self):
        return self.answer.status.frames >= self.answer.frames

    def surplus(self):
        return self.beyond

    def judge(self):
        frames, exact = self.answer.frames, self.listed
        if self.listed and self.full():
            for frame in self.rest:
                if isinstance(getattr(frame, "sequence", None), (int, np.integer)):  # a wrong element no longer matters
                    self.count_in(frame.sequence, frames)
        elif isinstance(self.rest, _Frames) and self.beyond:  # in their order: the others are beyond, too
            more = operator.length_hint(self.rest, -1)
            exact = more >= 0
            self.given, self.beyond = self.given + max(0, more), self.beyond + max(0, more)
        if not self.beyond:
            return []
        self.implied.append(f"More frames were pushed than the {frames} of tomography.push.frames, which counts projections, flat and dark fields together, or some "
                            "came after the end: they are left out, and counted as out_of_range_frames.")
        what = "(projections, flat and dark fields together: PushedProjections(frames=))"
        which = f"those with sequence number {self.first_beyond} and above are left out"
        return [f"{self.given} frames were given, the job takes {frames} {what}: {self.beyond} of them, {which}" if exact else
                f"more frames were given than the {frames} that the job takes {what}: {which}"]

    def lacks(self, request, answer):
        return len(answer.missing) >= 256 or any(r.first <= request.sequence < r.first + r.count for r in answer.missing)

    def note(self, answer):
        self.result.missing = [(r.first, r.count) for r in answer.missing]


class _ProjectionRingPusher(_ProjectionPusher):
    """The frames go through a ring. The stream, which carries none, tells what the job lacks and how the push goes on, and takes the end."""

    def __init__(self, job: str, frames, raw_type: int, end: bool, open_ring: Callable[[], ring.Ring]):
        super().__init__(job, frames, raw_type, end)
        self.open_ring = open_ring

    def split(self, answer):
        producer = self.open()
        if producer is None:
            next(self.checked(answer), None)  # as much as a stream looks at
            return
        with producer:
            for sequence, kind, angle, array in self.checked(answer):
                if not producer.publish_frame(array, sequence=sequence, kind=kind, angle_rad=angle):
                    break
                self.result.sent += 1
            producer.flush()
        yield from ()

    def open(self) -> Optional[ring.Ring]:
        """None: the job wants no more frames, which the stream tells, too. The server may not have noticed yet that the producer before has
        gone."""
        until = time.monotonic() + TAKEN_SECONDS
        while True:
            try:
                return self.open_ring()
            except (errors.OctavoError, ring.RingError) as error:
                if error.reason == "JOB_STATE":
                    return None
                if error.reason != "RING_TAKEN" or time.monotonic() > until:
                    raise
            time.sleep(0.01)


def _doubts_of_shape(array: np.ndarray, spec: scan_pb2.ScanSpec) -> List[str]:
    """Whether the axes of an array [B-scan, A-scan, sample] are those of the scan's raster (the rule of the server for the axes of a file,
    server/storage/formats/record_file.h). Arrays whose blocks are parts of B-scans, or several of them, are in the right order, too."""
    raster, average = spec.pattern.raster, spec.acquisition.record_average
    if array.ndim != 3 or not spec.pattern.HasField("raster") or average > 1:
        return []
    bscans, ascans = array.shape[:2]
    line = raster.ascans_per_bscan + raster.flyback_records
    fits = ascans in (raster.ascans_per_bscan, line) or (ascans > 0 and (ascans % line == 0 or line % ascans == 0))
    exchanged = (ascans, bscans) == (raster.bscans_per_volume, raster.ascans_per_bscan) != (raster.ascans_per_bscan, raster.bscans_per_volume)
    if fits and not exchanged:
        return []
    return [f"the array's own shape is {bscans} x {ascans} records, B-scans of {ascans} A-scans; the pattern has {raster.bscans_per_volume} B-scans of "
            f"{raster.ascans_per_bscan} A-scans" + (f": are ascans and bscans exchanged? octavo.raster(ascans={ascans}, bscans={bscans}) fits the array" if exchanged else "")]


_RAW_TYPES = {scan_pb2.RAW_TYPE_U8: "u1", scan_pb2.RAW_TYPE_I16: "<i2", scan_pb2.RAW_TYPE_F32: "<f4", scan_pb2.RAW_TYPE_U12P: "u1", scan_pb2.RAW_TYPE_U12_PACKED: "u1"}


def _records(block: np.ndarray, acquisition: scan_pb2.Acquisition, record_bytes: int) -> np.ndarray:
    """The array in the scan's form: only its byte order may differ. Packed samples are bytes."""
    dtype = np.dtype(_RAW_TYPES.get(acquisition.raw_type, "<u2"))
    array = np.asarray(block)  # np.ascontiguousarray would make a number an array of one axis
    array = np.ascontiguousarray(array) if array.ndim else array
    if array.dtype.kind not in "biufc":
        raise ValueError(f"a block is {short(block)}; expected an array of records, {dtype} [records, {record_bytes // dtype.itemsize}]")
    if array.dtype.newbyteorder("<") != dtype or array.ndim != 2 or array.shape[1] * dtype.itemsize != record_bytes:
        channels = f" in {acquisition.channels} channels" if acquisition.channels > 1 else ""
        raise ValueError(f"a block is {array.dtype} {array.shape}; the scan takes records of {acquisition.samples_per_record} samples{channels}, "
                         f"{short_name(scan_pb2.RawType.DESCRIPTOR, acquisition.raw_type)}: expected {dtype} [records, {record_bytes // dtype.itemsize}]")
    return array.astype(dtype, copy=False)


def _doubts(array: np.ndarray, acquisition: scan_pb2.Acquisition) -> List[str]:
    """Possible mistakes in the first block, by the checks that the server applies to
    files."""
    look = array[:max(1, (1 << 20) // max(1, array.shape[1]))]
    if look.size and not look.any():
        return [f"the first {len(look)} records are all 0: there is nothing to see in them"]
    bits = acquisition.adc_bits
    if not 0 < bits < 8 * look.dtype.itemsize or look.dtype.kind not in "ui" or acquisition.raw_type in (scan_pb2.RAW_TYPE_U12P, scan_pb2.RAW_TYPE_U12_PACKED):
        return []
    top, bottom = 2 ** bits - 1, -2 ** bits if look.dtype.kind == "i" else 0
    most = int(look.max()) if look.size and look.max() > top else int(look.min()) if look.size else 0
    if bottom <= most <= top:
        return []
    beyond = int(np.count_nonzero((look > top) | (look < bottom)))
    if beyond * 1000 < look.size:
        return []  # individual records may be broken
    return [f"adc_bits is {bits}, which are samples of {bottom} to {top}, but {beyond} of the first {look.size} lie beyond, up to {most}: give the "
            f"bits that they have, or leave adc_bits out, which means all {8 * look.dtype.itemsize}"]


def _parts(first: int, array: np.ndarray, markers: list, most: int) -> Iterator[ingest_pb2.PushRequest]:
    """A block as requests of at most `most` records."""
    starts = range(first, first + len(array), most)
    for start in starts:
        # Each part carries the markers of its records; the first and the last part also carry those
        # before and after the block.
        brought = [m for m in markers if (m[1] >= start or start == starts[0]) and (m[1] < start + most or start == starts[-1])]
        part = array[start - first:start - first + most]
        yield ingest_pb2.PushRequest(first_record=start, records=len(part), data=part.tobytes(),
                                     markers=[ingest_pb2.PushMarker(name=name, record=record) for name, record in brought])


def push(method, scan: str, blocks: Blocks, spec: scan_pb2.ScanSpec, *, end: bool, reconnect: float, progress: Optional[Callable],
         tell: Callable) -> _Pusher:
    """Returns the result, after issuing the remaining warnings."""
    _check_blocks(blocks, spec.acquisition)
    if isinstance(blocks, np.ndarray) and blocks.ndim == 2:
        blocks = [blocks]
    return _run(method, _RecordPusher(scan, blocks, spec, end), reconnect, progress, tell)


def _check_blocks(blocks: Blocks, acquisition: scan_pb2.Acquisition) -> None:
    """ValueError for what can be no records at all, before anything is sent."""
    expected = f"expected an array [records, {acquisition.samples_per_record}], several of them, or a function that gives them"
    if isinstance(blocks, (str, os.PathLike)):
        raise ValueError(f"blocks is {short(blocks)}, a path; {expected}: np.load(path), of a .npy file. The server reads files itself: "
                         "octavo.replay(path) is the source of such a scan")
    if isinstance(blocks, np.ndarray) and blocks.ndim < 2:
        one = f": array[None, :] is {acquisition.samples_per_record} samples as one record" if blocks.ndim == 1 and len(blocks) == acquisition.samples_per_record else ""
        raise ValueError(f"blocks is {short(blocks)}; {expected}{one}")
    if not callable(blocks) and not hasattr(blocks, "__iter__"):
        raise ValueError(f"blocks is {short(blocks)}; {expected}")


def push_projections(method, job: str, frames, raw_type: int, *, end: bool, reconnect: float, progress: Optional[Callable],
                     tell: Callable, open_ring: Optional[Callable[[], ring.Ring]] = None) -> _Pusher:
    """raw_type: of the job's PushedProjections. open_ring: the frames go through a ring of this host, which it opens."""
    pusher = _ProjectionPusher(job, frames, raw_type, end) if open_ring is None else _ProjectionRingPusher(job, frames, raw_type, end, open_ring)
    return _run(method, pusher, reconnect, progress, tell)


def _run(method, pusher: _Pusher, reconnect: float, progress: Optional[Callable], tell: Callable) -> _Pusher:
    deadline, pause = time.monotonic() + reconnect, 0.05
    while True:
        call = method(pusher.requests(pusher.start()))
        try:
            for answer in call:
                deadline, pause = time.monotonic() + reconnect, 0.05
                over = pusher.take(answer)
                while pusher.doubts:
                    tell([pusher.doubts.popleft()])
                if progress:
                    progress(answer)
                if over:
                    # read to the end of the stream, because the server still counts messages in
                    # flight
                    pusher.stop()
            break
        except grpc.RpcError as error:
            if pusher.error is not None:
                raise pusher.error from None
            if pusher.result.done:
                break
            if error.code() not in RETRY or time.monotonic() + pause > deadline:
                raise errors.from_rpc_error(error) from None
        finally:
            pusher.stop()
            call.cancel()
        time.sleep(pause)
        pause = min(2 * pause, 2.0)
    if pusher.error is None:
        pusher.finish()
    if pusher.error is not None:
        raise pusher.error
    return pusher
