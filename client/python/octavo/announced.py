"""Frames of volumes that come without their data (SubscribeRequest.volumes_by_read): the client reads the volumes, over several connections at once."""

from __future__ import annotations

import collections
import threading
import time
from typing import Any, Callable, Deque, Dict, Iterator, Optional, Tuple

import grpc
import numpy as np

from octavo import errors, volume_read
from octavo.v1 import stream_pb2, volume_pb2

_LENGTH = 2             # of the queue of volumes by default, as the server's
_MOST_ANNOUNCED = 1024  # LOSSLESS: then the server keeps the rest
# A volume is not there any more, or the server has no memory to send it: as if it had made no frame of it.
_GONE = ("NO_VOLUME", "VOLUME_GONE", "VOLUME_STATE", "LOST", "NO_STAGING")
# A lossless subscriber waits so many seconds for memory of the server that others have, as the server does where it sends the volumes itself.
_PATIENCE = 30.0
_BETWEEN_TRIES = 0.05

Arrived = Tuple[stream_pb2.Frame, Any]  # what it is, and its data as a buffer


def _is_to_be_read(arrived: Arrived) -> bool:
    head, data = arrived
    return head.product == stream_pb2.PRODUCT_VOLUME and not len(data) and len(head.shape) > 0


def _is_timeout(error: Optional[BaseException]) -> bool:
    code = error.code() if isinstance(error, grpc.RpcError) else error.code if isinstance(error, errors.OctavoError) else None
    return code == grpc.StatusCode.DEADLINE_EXCEEDED


def _is_shortage(error: errors.OctavoError) -> bool:
    return error.code == grpc.StatusCode.RESOURCE_EXHAUSTED and error.numbers.get("retryable") == "true"


class _Waiting:
    """The frames that wait for the caller, in order. A thread takes them out of the call: one with data only when no other one waits (the server
    keeps the rest, and drops what its delivery says), those of volumes that are to be read at once, because the server would take them for
    delivered while they lie in gRPC. So the delivery of those applies here."""

    def __init__(self, request: stream_pb2.SubscribeRequest):
        self.lossless = request.delivery in (stream_pb2.DELIVERY_UNSPECIFIED, stream_pb2.DELIVERY_LOSSLESS)
        self._latest = request.delivery == stream_pb2.DELIVERY_LATEST
        self._most = request.queue_length or _LENGTH
        self._frames: Deque[Arrived] = collections.deque()
        self._lost: Dict[str, int] = collections.defaultdict(int)  # volumes of each parent since the last one that came
        self._changed = threading.Condition()
        self._over = self._closed = False
        self._error: Optional[BaseException] = None

    def put(self, arrived: Arrived) -> bool:
        """Waits until there is room. False: nobody takes any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or (len(self._frames) < _MOST_ANNOUNCED and all(map(_is_to_be_read, self._frames))))
            if self._over:
                return False
            if not self.lossless and _is_to_be_read(arrived):
                self._drop_for(arrived[0])
            self._frames.append(arrived)
            self._changed.notify_all()
            return True

    def end(self, error: Optional[BaseException]) -> None:
        """No frame comes any more. A deadline that is over is told before the frames that wait, other errors behind them."""
        with self._changed:
            if self._over:
                return
            self._over, self._error = True, error
            if _is_timeout(error):
                self._frames.clear()
            self._changed.notify_all()

    def take(self) -> Optional[Arrived]:
        """The next frame as it came; waits. None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._frames or self._over)
            if not self._frames:
                if self._error is not None:
                    raise self._error
                return None
            head, data = self._frames.popleft()
            self._changed.notify_all()
            if head.product == stream_pb2.PRODUCT_VOLUME:
                head.dropped_before += self._lost.pop(head.parent, 0)
            return head, data

    def lost(self, head: stream_pb2.Frame) -> None:
        """The volume of this frame, which was taken, has gone: the next one of its topic says so."""
        with self._changed:
            self._count(head)

    def close(self) -> None:
        with self._changed:
            self._closed = True
        self.end(None)
        with self._changed:
            self._frames.clear()
            self._changed.notify_all()

    def is_given_up(self, seconds: float) -> bool:
        """Whether the caller has closed the subscription, or its time is over; waits so long for it."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed or _is_timeout(self._error), seconds)

    def _drop_for(self, head: stream_pb2.Frame) -> None:
        replaced = [i for i, arrived in enumerate(self._frames) if _is_to_be_read(arrived) and (not self._latest or arrived[0].parent == head.parent)]
        if len(replaced) >= (1 if self._latest else self._most):
            self._count(self._frames[replaced[0]][0])
            del self._frames[replaced[0]]

    def _count(self, head: stream_pb2.Frame) -> None:
        self._lost[head.parent] += head.dropped_before + 1


class Announced:
    """The arrivals of a subscription, with the data of the volumes that come without.

    arrivals  of the call
    read      reads a volume: octavo.volume_read.Reader.read
    timeout   of the subscription, seconds: no volume is tried again after it. None: none
    """

    def __init__(self, arrivals: Iterator[Arrived], request: stream_pb2.SubscribeRequest, read: Callable[..., np.ndarray], timeout: Optional[float]):
        self._read = read
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._waiting = _Waiting(request)
        threading.Thread(target=_fill, args=(self._waiting, arrivals), name="octavo-frames", daemon=True).start()

    def close(self) -> None:
        """Call it with the end of the call."""
        self._waiting.close()

    def __iter__(self) -> Iterator[Arrived]:
        while True:
            arrived = self._waiting.take()
            if arrived is None:
                return
            head, data = arrived
            if _is_to_be_read(arrived):
                data = self._data_of(head)
                if data is None:
                    continue
            del arrived
            yield head, data
            del data  # the frame alone keeps it

    def _data_of(self, head: stream_pb2.Frame) -> Optional[np.ndarray]:
        """The voxels as u1; None if the volume has gone, and may have."""
        volume = volume_pb2.Volume(name=head.volume, shape=head.shape, dtype=head.dtype)
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                return self._read(volume_pb2.ReadVolumeRequest(name=head.volume), 0, None, lambda: volume).reshape(-1).view(np.uint8)
            except grpc.RpcError as error:
                why = errors.from_rpc_error(error)
                if self._waiting.lossless and _is_shortage(why) and time.monotonic() < end:
                    if self._waiting.is_given_up(_BETWEEN_TRIES):
                        return None
                    if self._deadline is not None and time.monotonic() > self._deadline:
                        raise errors.OctavoError(grpc.StatusCode.DEADLINE_EXCEEDED, why.message) from None
                    continue
                if why.reason not in _GONE:
                    raise
                if self._waiting.lossless:
                    raise errors.OctavoError(
                        why.code, f"{head.volume} (frame {head.sequence} of {head.parent}) could not be read, and delivery is lossless: {why.message}; "
                                  "allowed: delivery='latest' or 'drop_oldest', which count what is dropped, or volumes_by_read=False",
                        why.reason, why.field, {**why.numbers, "resume_from": str(head.sequence + 1)}, why.report, why.retry_seconds) from None
                self._waiting.lost(head)
                return None


def _fill(waiting: _Waiting, arrivals: Iterator[Arrived]) -> None:
    """The thread that takes the frames out of the call. It does not keep the subscription."""
    try:
        for arrived in arrivals:
            if not waiting.put(arrived):
                return
            del arrived  # the caller alone keeps it
        waiting.end(None)
    except BaseException as error:  # noqa: BLE001 — the caller's thread raises it
        waiting.end(error)
