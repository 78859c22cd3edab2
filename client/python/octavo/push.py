"""The client's side of SourceService.Push: credit, acknowledgement, new connections."""

from __future__ import annotations

import collections
import dataclasses
import threading
import time
from typing import Callable, Iterable, Iterator, List, Optional, Tuple, Union

import grpc
import numpy as np

from octavo import errors
from octavo.v1 import source_pb2

Block = Union[np.ndarray, Tuple[int, np.ndarray], Tuple[int, np.ndarray, List[Tuple[str, int]]]]
Blocks = Union[Iterable[Block], Callable[[int], Iterable[Block]]]

MESSAGE_BYTES = 2 << 20  # the size at which gRPC is fastest
RETRY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)


@dataclasses.dataclass
class PushResult:
    """How a push ended.

    next_record  records before this one were taken by the server or are given up
    done         the scan wants no more records
    sent         records sent, those sent again included
    connections  how many connections it took
    status       the server's octavo.v1.SourceStatus
    """

    next_record: int = 0
    done: bool = False
    sent: int = 0
    connections: int = 0
    status: Optional[object] = None


class _Pusher:
    """One push over as many connections as it takes. The caller's thread reads answers, gRPC's thread of a call asks for requests."""

    def __init__(self, scan: str, blocks: Blocks, end: bool):
        self.scan, self.blocks, self.end = scan, blocks, end
        self.result = PushResult()
        self.error: Optional[BaseException] = None  # of blocks
        self.changed = threading.Condition()  # guards what follows
        self.ready: collections.deque = collections.deque()  # requests that wait for credit, in order
        self.sent: collections.deque = collections.deque()   # on this connection, not yet received by the server
        self.sent_blocks = 0         # on this connection
        self.answer: Optional[source_pb2.PushResponse] = None  # the newest of this connection
        self.connection = 0
        self.exhausted = False       # blocks has nothing more
        self.fetching = threading.Lock()  # one thread asks blocks for more
        self.source: Optional[Iterator[source_pb2.PushRequest]] = None

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

    def take(self, answer: source_pb2.PushResponse) -> bool:
        """An answer came. True when everything is done."""
        with self.changed:
            if self.answer is None:  # of this connection: what the server did not get on the last one goes first
                lost = [r for r in self.sent if r.first_record + r.records > answer.next_record]
                self.sent.clear()
                self.ready.extendleft(reversed(lost))
            self.answer = answer
            while len(self.sent) > self.sent_blocks - answer.received:
                self.sent.popleft()
            self.result.next_record, self.result.done, self.result.status = answer.next_record, answer.done, answer.status
            self.changed.notify_all()
            return answer.done

    def requests(self, connection: int) -> Iterator[source_pb2.PushRequest]:
        yield source_pb2.PushRequest(scan=self.scan)
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
                    self.result.sent += request.records
            if request is None:
                break
            yield request
        if not self.end or self.error is not None:
            return  # the server ends the stream when it has read all
        yield source_pb2.PushRequest(end=True)
        with self.changed:  # the stream stays open until the scan wants no more
            self.changed.wait_for(lambda: connection != self.connection)

    def fetch(self, answer: source_pb2.PushResponse) -> None:
        request = None
        try:
            if self.source is None:
                self.source = _split(self.blocks, answer)
            request = next(self.source, None)
        except BaseException as error:  # of the caller's own iterator: raised again on the caller's thread
            self.error = error
        with self.changed:
            if request is not None:
                self.ready.append(request)
            else:
                self.exhausted = True
            self.changed.notify_all()


def _split(blocks: Blocks, answer: source_pb2.PushResponse) -> Iterator[source_pb2.PushRequest]:
    """Requests of at most the size that the server takes."""
    following = answer.next_record
    most = min(answer.max_block_records, max(1, MESSAGE_BYTES // answer.record_bytes))
    for block in blocks(following) if callable(blocks) else blocks:
        first, array, markers = (*block, [])[:3] if isinstance(block, tuple) else (following, block, [])
        array = np.ascontiguousarray(array)
        if array.ndim != 2 or array.shape[1] * array.dtype.itemsize != answer.record_bytes:
            raise ValueError(f"a block is {array.dtype} {array.shape}; the scan wants records of {answer.record_bytes} bytes: [records, samples]")
        for start in range(0, len(array), most):
            part = array[start:start + most]
            inside = [m for m in markers if first + start <= m[1] < first + start + len(part)]
            yield source_pb2.PushRequest(first_record=first + start, records=len(part), data=part.tobytes(),
                                         markers=[source_pb2.PushMarker(name=name, record=record) for name, record in inside])
        following = first + len(array)


def push(method, scan: str, blocks: Blocks, *, end: bool, reconnect: float, progress: Optional[Callable]) -> PushResult:
    pusher = _Pusher(scan, blocks, end)
    deadline, pause = time.monotonic() + reconnect, 0.05
    while True:
        call = method(pusher.requests(pusher.start()))
        try:
            for answer in call:
                deadline, pause = time.monotonic() + reconnect, 0.05
                over = pusher.take(answer)
                if progress:
                    progress(answer)
                if over:
                    break
            if pusher.error is not None:
                raise pusher.error
            return pusher.result
        except grpc.RpcError as error:
            if pusher.error is not None:
                raise pusher.error from None
            if error.code() not in RETRY or time.monotonic() + pause > deadline:
                raise errors.from_rpc_error(error) from None
        finally:
            pusher.stop()
            call.cancel()
        time.sleep(pause)
        pause = min(2 * pause, 2.0)
