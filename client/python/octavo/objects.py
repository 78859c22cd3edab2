"""Scan, Volume, Job, Buffer, Operation: what the server said about a resource, and its calls.

    scan = client.submit_scan(octavo.simulated(seed=1), octavo.raster(512, 256, volumes=4)).wait()
    for volume in scan.volumes():
        print(volume, volume.state)      # <Volume volumes/… HELD [256, 512, 512] U16 128 MiB> HELD
        array = volume.read()            # or np.asarray(volume)
        volume.discard()

An object has every field of its message by its name (see octavo.fields.Fields), as the server sent it: reading a
field makes no call. Methods are the calls of the client for this resource. Those that return the
object itself (wait, stop, hold, refresh, …) first bring its fields up to date; watch() yields a new
object each time.

Objects of one kind are equal if their names are, and hash alike. A name stands for an object in
every call, and an object for its name. Objects belong to the client that gave them, so they cannot
be pickled: a name can.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union

import grpc
import numpy as np
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from octavo import errors
from octavo.arguments import Seconds, explained_methods
from octavo.fields import Choice, Fields, choices, of_message, plain
from octavo.v1 import buffer_pb2, job_pb2, operation_pb2, scan_pb2, types_pb2, volume_pb2

if TYPE_CHECKING:
    from octavo.buffers import Buffers
    from octavo.client import Client
    from octavo.frames import Frame
    from octavo.pictures import Picture

ScanState: Any = choices(types_pb2.ScanState.DESCRIPTOR)
VolumeState: Any = choices(types_pb2.VolumeState.DESCRIPTOR)
JobState: Any = choices(job_pb2.JobState.DESCRIPTOR)
BufferState: Any = choices(buffer_pb2.BufferState.DESCRIPTOR)
OperationState: Any = choices(operation_pb2.OperationState.DESCRIPTOR)

_Self = TypeVar("_Self", bound="Resource")
_Kind = TypeVar("_Kind", bound=type)


class Resource(Fields):
    """What Scan, Volume, Job, Buffer and Operation have in common.

    name     "volumes/…"
    state    a member of VolumeState, …: state == "HELD"
    address  of the server that it is of
    """

    __slots__ = ()
    name: str
    state: Choice

    @property
    def address(self) -> str:
        return self._context.address

    def refresh(self: _Self) -> _Self:
        """Asks the server how it is now."""
        raise NotImplementedError

    def _become(self: _Self, newer: Any) -> _Self:
        """Takes the fields of a newer object for the same resource."""
        self._message = newer.message
        return self

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if type(other) is type(self) else NotImplemented  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<{' '.join(one for one in (type(self).__name__, self.name, str(self.state), *self._about()) if one)}>"

    def _about(self) -> Sequence[str]:
        """What repr says behind the state."""
        return ()

    def _elsewhere(self, name: str) -> str:
        method = getattr(type(self._context), name, None) if not name.startswith("_") else None
        if not callable(method):
            return ""
        takes = [one for one in inspect.signature(method).parameters if one != "self"]
        client = "client" if hasattr(self._context, "buffers") else "client.buffers"
        return f"{client}.{name}() is a call of the client" + (f": {client}.{name}({type(self).__name__.lower()}, …)" if takes[:1] in (["name"], ["resource"], ["scan"], ["parent"]) else "")

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError(f"{self!r} belongs to a client, whose connection cannot be pickled: pickle its name ({self.name!r}), "
                        "or its `message`, which has the fields")


@explained_methods
class Scan(Resource, of=scan_pb2.Scan.DESCRIPTOR):
    """A scan. volume_names has the names of the volumes that it had acquired or held when the fields came.

    earlier_run  an earlier process of the server had it; state == "LOST" if that died before its end
    resumed_from  the scan of an earlier process that it goes on with (on_restart="resume"); "" = none
    """

    __slots__ = ()
    _context: "Client"

    @property
    def volume_names(self) -> List[str]:
        """The field `volumes` of octavo.v1.Scan."""
        return list(self._message.volumes)

    def volumes(self, *arguments: Any, **options: Any) -> List["Volume"]:
        """Its volumes, as Client.volumes gives them."""
        return self._context.volumes(self.name, *arguments, **options)

    def refresh(self) -> "Scan":
        return self._become(self._context.scan(self.name))

    def wait(self, *, timeout: Optional[Seconds] = None, check: bool = True) -> "Scan":
        """Waits for its end, at most `timeout` seconds (OctavoTimeout). What might be a mistake is an OctavoWarning. check: raises OctavoError if
        it is LOST, with the server that died before its end."""
        self._become(self._context.wait(self.name, check=False, timeout=timeout))
        return self._checked() if check else self

    def _checked(self) -> "Scan":
        """Itself. OctavoError if it is LOST."""
        if self.state == "LOST":
            raise errors.OctavoError(grpc.StatusCode.DATA_LOSS, f"{self.name} is LOST: {self.reason}", str(self.reason_code), numbers={"scan": self.name})
        return self

    def watch(self) -> Iterator["Scan"]:
        """Yields the scan at once, at every change of state, and twice a second, until it has ended."""
        return self._context.watch(self.name)

    def stop(self) -> "Scan":
        """Ends it after the current volume."""
        return self._become(self._context.stop(self.name))

    def cancel(self) -> "Scan":
        """Ends it at once."""
        return self._become(self._context.cancel(self.name))

    def mark(self, marker: str) -> Fields:
        """Puts a marker at the record that is being processed now; gives the event."""
        return self._context.mark(self.name, marker)

    def update(self, processing: Any, fields: Union[str, Sequence[str]] = "*") -> "Scan":
        """Changes the processing, from the next volume on (see Client.update_scan)."""
        return self._become(self._context.update_scan(self.name, processing, fields))

    def subscribe(self, products: Union[str, Sequence[str]] = ("mip",), **options: Any) -> Iterator["Frame"]:
        """Yields its frames as they arrive (see Client.subscribe)."""
        return self._context.subscribe(self.name, products, **options)

    def _about(self) -> Sequence[str]:
        done = self._message.volumes_done
        return f"{done} volume{'' if done == 1 else 's'}", _title(self._message.spec.title)


@explained_methods
class Volume(Resource, of=volume_pb2.Volume.DESCRIPTOR):
    """A volume. commit_result has the result of its commit once it is COMMITTED, else None."""

    __slots__ = ()
    _context: "Client"

    @property
    def commit_result(self) -> Optional[Fields]:
        """The field `commit` of octavo.v1.Volume."""
        return of_message(self._context, self._message.commit) if self._message.HasField("commit") else None

    def refresh(self) -> "Volume":
        return self._become(self._context.volume(self.name))

    def wait(self, *, timeout: Optional[Seconds] = None) -> "Volume":
        """Waits until it is complete: HELD, or a later state; at most `timeout` seconds (OctavoTimeout)."""
        return self._become(self._context.wait_volume(self.name, timeout=timeout))

    def read(self, start: Sequence[int] = (), count: Sequence[int] = (), *, downsample: int = 1, downsampling: Union[str, int, None] = None,
             window: Optional[Tuple[float, float]] = None, connections: int = 0, out: Optional[np.ndarray] = None) -> np.ndarray:
        """Its voxels, or those of the box at `start` of extent `count`, along `axes`. Coarser ones with `downsample`, as u8 with `window`; large ones
        over several connections at once, or into the array `out` (see Client.read)."""
        return self._context.read(self.name, start, count, downsample=downsample, downsampling=downsampling, window=window, connections=connections, out=out)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        """np.asarray(volume): its voxels, read from the server each time."""
        return _copied(self, self.read, dtype, copy)

    def commit(self, destination: str, format: str = "", progress: Optional[Callable[[Any], Any]] = None, **options: Any) -> Fields:
        """Writes it to storage and frees its memory (see Client.commit); gives the CommitResult: path, bytes, checksum, …
        A retry after the server was started again has no such object: Client.commit takes the name, and tells what became of the first call."""
        result = self._context.commit(self.name, destination, format, progress, **options)
        now = volume_pb2.Volume()
        now.CopyFrom(self._message)
        now.state = types_pb2.VOLUME_STATE_COMMITTED
        now.commit.CopyFrom(plain(result))
        self._message = now
        return result

    def discard(self, **options: Any) -> "Volume":
        """Frees its memory. Its data are gone (see Client.discard)."""
        return self._become(self._context.discard(self.name, **options))

    def hold(self) -> "Volume":
        """A LIVE scan does not overwrite it, and its time to live is removed."""
        return self._become(self._context.hold(self.name))

    def release(self, **options: Any) -> "Volume":
        """Ends the hold (see Client.release)."""
        return self._become(self._context.release(self.name, **options))

    def derive(self, *operations: Any, **options: Any) -> "Volume":
        """Makes a new held volume from it: volume.derive({"mip": {"axis": "z"}}) (see Client.derive)."""
        return self._context.derive(self.name, *operations, **options)

    def render(self, rendering: Union[str, int] = "plane", axis: Optional[str] = None, **options: Any) -> "Picture":
        """A picture of it: volume.render("max", "z") (see Client.render)."""
        return self._context.render(self.name, rendering, axis, **options)

    def spill(self, tier: Union[str, int] = "disk", **options: Any) -> "Volume":
        """Moves its bytes out of device memory, to "host" or "disk"."""
        return self._become(self._context.spill(self.name, tier, **options))

    def restore(self, **options: Any) -> "Volume":
        """Moves its bytes back to its device."""
        return self._become(self._context.restore(self.name, **options))

    # These answer as soon as the work has begun, with the Operation.

    def start_commit(self, destination: str, format: str = "", **options: Any) -> "Operation":
        """Begins commit(); does not wait for it."""
        return self._context.start_commit(self.name, destination, format, **options)

    def start_derive(self, *operations: Any, **options: Any) -> "Operation":
        """Begins derive(); does not wait for it. Operation.volumes names the new volume."""
        return self._context.start_derive(self.name, *operations, **options)

    def start_spill(self, tier: Union[str, int] = "disk", **options: Any) -> "Operation":
        """Begins spill(); does not wait for it."""
        return self._context.start_spill(self.name, tier, **options)

    def start_restore(self, **options: Any) -> "Operation":
        """Begins restore(); does not wait for it."""
        return self._context.start_restore(self.name, **options)

    def _about(self) -> Sequence[str]:
        return str(list(self._message.shape)), str(self.dtype), _size(self._message.bytes), _title(self._message.title)


@explained_methods
class Job(Resource, of=job_pb2.Job.DESCRIPTOR):
    """A job. volume_names has the names of the volumes that it has made.

    earlier_run  an earlier process of the server had it; state == "LOST" if that died before its end
    """

    __slots__ = ()
    _context: "Client"

    @property
    def volume_names(self) -> List[str]:
        """The field `volumes` of octavo.v1.Job."""
        return list(self._message.volumes)

    def volumes(self, *arguments: Any, **options: Any) -> List["Volume"]:
        """The volumes that it has made, as Client.volumes gives them."""
        return self._context.volumes(self.name, *arguments, **options)

    def refresh(self) -> "Job":
        return self._become(self._context.job(self.name))

    def wait(self, *, timeout: Optional[Seconds] = None, check: bool = True) -> "Job":
        """Waits for its end, at most `timeout` seconds (OctavoTimeout). check: raises OctavoError unless it is DONE."""
        self._become(self._context.wait_job(self.name, check=False, timeout=timeout))
        return self._checked() if check else self

    def watch(self) -> Iterator["Job"]:
        """Yields the job at once, at every change, and twice a second, until it has ended."""
        return self._context.watch_job(self.name)

    def series_volumes(self, *, timeout: Optional[Seconds] = None) -> Iterator["Volume"]:
        """Yields the volumes of its series, each as soon as it is held (see Client.series_volumes)."""
        return self._context.series_volumes(self.name, timeout=timeout)

    def cancel(self) -> "Job":
        """Ends it at any time and frees all its memory."""
        return self._become(self._context.cancel_job(self.name))

    def subscribe(self, products: Union[str, Sequence[str]] = ("mip",), **options: Any) -> Iterator["Frame"]:
        """Yields its frames as they arrive (see Client.subscribe)."""
        return self._context.subscribe(self.name, products, **options)

    def _checked(self) -> "Job":
        """Itself. OctavoError unless it is DONE."""
        if self.state != "DONE":
            code = {"CANCELLED": grpc.StatusCode.CANCELLED, "LOST": grpc.StatusCode.DATA_LOSS}.get(str(self.state), grpc.StatusCode.ABORTED)
            raise errors.OctavoError(code, f"{self.name}{' is LOST' if self.state == 'LOST' else ''}: {self.reason}", str(self.reason_code))
        return self

    def _about(self) -> Sequence[str]:
        return (str(self.kind).lower() if self.kind else "", f"{100 * self._message.fraction:.0f} %" if self.state == "RUNNING" else "",
                _title(self._message.spec.title))


@explained_methods
class Buffer(Resource, of=buffer_pb2.Buffer.DESCRIPTOR):
    """A buffer."""

    __slots__ = ()
    _context: "Buffers"

    def refresh(self) -> "Buffer":
        return self._become(self._context.get(self.name))

    def wait(self, *, timeout: Optional[Seconds] = None) -> "Buffer":
        """Waits until all work requested on it is done, at most `timeout` seconds (OctavoTimeout)."""
        return self._become(self._context.wait(self.name, timeout=timeout))

    def read(self, **options: Any) -> np.ndarray:
        """Its array, or a box of it; of any replica, of one, or of all stacked (see Buffers.read)."""
        return self._context.read(self.name, **options)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        """np.asarray(buffer): its array, read from the server each time."""
        return _copied(self, self.read, dtype, copy)

    def write(self, array: Any, **options: Any) -> "Buffer":
        """Writes to all replicas, or to one (see Buffers.write)."""
        return self._become(self._context.write(self.name, array, **options))

    def apply(self, *operations: Any, **options: Any) -> "Buffer":
        """Runs operations on it, into a new buffer or `output`: buffer.apply({"fft": {"axis": 0}})
        (see Buffers.apply)."""
        return self._context.apply(self.name, *operations, **options)

    def commit(self, destination: str, format: str = "", *, axes: Sequence[str], **options: Any) -> Fields:
        """Writes it to storage, as a volume; the buffer stays (see Buffers.commit). Gives the CommitResult: uri, bytes, checksum, …"""
        return self._context.commit(self.name, destination, format, axes=axes, **options)

    def sync(self, source: int, targets: Sequence[int] = ()) -> "Buffer":
        """Copies one replica to others (all), from device to device."""
        return self._become(self._context.sync(self.name, source, targets))

    def update(self, **options: Any) -> "Buffer":
        """Changes labels and time to live."""
        return self._become(self._context.update(self.name, **options))

    def destroy(self, **options: Any) -> None:
        """Frees its memory (see Buffers.destroy)."""
        self._context.destroy(self.name, **options)

    def _about(self) -> Sequence[str]:
        lanes = self._message.type.lanes
        count = len(self._message.replicas)
        return (str(list(self._message.shape)), f"{choices(types_pb2.Dtype.DESCRIPTOR)(self._message.type.dtype)}{f' x {lanes}' if lanes > 1 else ''}",
                f"{_size(self._message.byte_size)}{f' on {count} devices' if count > 1 else ''}")


@explained_methods
class Operation(Resource, of=operation_pb2.Operation.DESCRIPTOR):
    """Long work: a commit, a spill, a restore, a derivation or a job.

    kind      "commit", "spill", "restore", "derive", "job"
    state     a member of OperationState: state == "SUCCEEDED"
    done      it has SUCCEEDED, FAILED or was CANCELLED
    progress  its stage ("writing", …), fraction, bytes, elapsed
    commit    the CommitResult of a commit that has SUCCEEDED, else None
    volumes   the names of the volumes that it makes
    """

    __slots__ = ()
    _context: "Client"

    @property
    def error(self) -> Optional[errors.OctavoError]:
        """Why it has FAILED or was CANCELLED; None for another one."""
        return errors.of_operation(self._message)

    def refresh(self) -> "Operation":
        return self._become(self._context.operation(self.name))

    def wait(self, *, timeout: Optional[Seconds] = None, check: bool = True) -> "Operation":
        """Waits for its end, at most `timeout` seconds (OctavoTimeout). check: raises its error if it has FAILED or was CANCELLED."""
        self._become(self._context.wait_operation(self.name, check=False, timeout=timeout))
        if check and self.error is not None:
            raise self.error
        return self

    def result(self, timeout: Optional[Seconds] = None) -> Any:
        """Waits for its end like wait(), and gives what it has made: of a commit the CommitResult, of a derivation the new Volume, of a spill
        or restore its Volume, of a job the Job."""
        self.wait(timeout=timeout)
        if self.kind == "commit":
            return self.commit  # type: ignore[attr-defined]
        if self.kind == "job":
            return self._context.job(self._message.target)
        return self._context.volume(self._message.volumes[0] if self.kind == "derive" else self._message.target)

    def watch(self) -> Iterator["Operation"]:
        """Yields the operation at once, at every change, and twice a second, until it has ended."""
        return self._context.watch_operation(self.name)

    def cancel(self) -> "Operation":
        """Asks it to end: a volume that it works on stays as it was. wait(check=False) waits until it has ended."""
        return self._become(self._context.cancel_operation(self.name))

    def _about(self) -> Sequence[str]:
        progress = of_message(None, self._message.progress)
        return (f"{str(self.kind).lower()} of {self._message.target}" if self.kind else "",
                f"{str(progress.stage).lower()} {100 * progress.fraction:.0f} %" if self.state == "RUNNING" else "")  # type: ignore[attr-defined]


# For annotations of arguments: an object or its name. `explained` (arguments.py) puts the name in
# the place of the object.
ScanName = Union[str, Scan]
VolumeName = Union[str, Volume]
JobName = Union[str, Job]
BufferName = Union[str, Buffer]
OperationName = Union[str, Operation]
Name = Union[str, Scan, Volume, Job, Buffer]

_KINDS = (Scan, Volume, Job, Buffer, Operation)
_RESOURCES = {kind._descriptor.full_name for kind in _KINDS}
_PARTS = {field.message_type.full_name for kind in _KINDS for field in kind._descriptor.fields if field.message_type is not None}


@functools.lru_cache(maxsize=None)
def _is_given(descriptor: Descriptor) -> bool:
    """Whether calls give an object in place of such a message: for the five kinds, for messages
    that are fields of these (a ScanEvent, a CommitResult), and for those that hold one of the five (an event of a
    watch)."""
    return descriptor.full_name in _RESOURCES | _PARTS or any(
        field.message_type is not None and field.message_type.full_name in _RESOURCES for field in descriptor.fields)


def giving_objects(kind: _Kind) -> _Kind:
    """Class decorator: its public methods give objects where they would give messages of the server,
    also in lists and one after the other."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, _giving(method))
    return kind


def _giving(method: Callable) -> Callable:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _given(self, method(self, *args, **kwargs))

    return call


def _given(context: Any, value: Any) -> Any:
    if isinstance(value, Message):
        return of_message(context, value) if _is_given(value.DESCRIPTOR) else value
    if isinstance(value, list):
        return [_given(context, one) for one in value]
    return _each(context, value) if inspect.isgenerator(value) else value


def _each(context: Any, values: Any) -> Iterator[Any]:
    try:
        for value in values:
            yield _given(context, value)
    finally:
        values.close()


def _copied(resource: Resource, read: Callable[[], np.ndarray], dtype: Any, copy: Optional[bool]) -> np.ndarray:
    if copy is False:
        raise ValueError(f"copy is False, and {resource!r} is read from the server; expected None or True (client.map maps its memory)")
    array = read()
    return array if dtype is None else array.astype(dtype, copy=False)


def _title(title: str) -> str:
    return repr(title if len(title) <= 40 else title[:37] + "...") if title else ""


def _size(count: int) -> str:
    """A number of bytes: "256 MiB", "1.5 KiB"."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}"


