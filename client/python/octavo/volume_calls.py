"""VolumeService of a client."""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import threading
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, Union

import grpc
import numpy as np

from octavo import buffers, deposit, errors, formats, frames, pictures, specs, wire
from octavo.arguments import Seconds, explained, explained_methods, limit, message, several
from octavo.devices import with_device_name
from octavo.fields import Fields, of_message
from octavo.names import Names
from octavo.objects import Buffer, Name, Operation, ScanName, Volume, VolumeName, giving_objects
from octavo.paging import pages
from octavo.session import Lease, Session, secret_of, token_of as _token
from octavo.v1 import ingest_pb2, scan_pb2, types_pb2, volume_pb2

TIERS = Names({"device": types_pb2.TIER_DEVICE, "host": types_pb2.TIER_HOST, "disk": types_pb2.TIER_DISK}, of=types_pb2.Tier)


_SCAN_ENDED = object()


def _quoted(text: str) -> str:
    """The text as a value in a filter."""
    for character in "\\\"*":
        text = text.replace(character, "\\" + character)
    return f'"{text}"'


class _News:
    """The changes of a scan's volumes, and its end, in the order in which they come."""

    def __init__(self, client: "VolumeCalls", scan: str):
        self._client = client
        with errors.raising(client.address):
            self._volumes = client._volumes.WatchVolumes(volume_pb2.WatchVolumesRequest(filter=f"parent = {_quoted(scan)}"))
            self._scan = client._scans.WatchScan(scan_pb2.WatchScanRequest(name=scan))
        self._news: queue.Queue = queue.Queue()

    def __enter__(self) -> "_News":
        for run in (self._hear_volumes, self._hear_scan):
            threading.Thread(target=run, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self._volumes.cancel()
        self._scan.cancel()

    def next(self):
        """The next change, or _SCAN_ENDED. Raises OctavoError."""
        news = self._news.get()
        if isinstance(news, grpc.RpcError):
            with errors.raising(self._client.address):
                raise news
        return news

    def _hear_volumes(self) -> None:
        try:
            for change in self._volumes:
                self._news.put(change)
        except grpc.RpcError as error:
            self._news.put(error)

    def _hear_scan(self) -> None:
        try:
            for _ in self._scan:
                pass
            self._news.put(_SCAN_ENDED)
        except grpc.RpcError as error:
            self._news.put(error)


@giving_objects
@explained_methods
class VolumeCalls:
    """The volume methods of octavo.Client."""

    def _check_volume(self, name: str) -> None:
        """An error for the name of a scan or job, which lists its volumes."""
        more, kind = "", errors.other_kind(name, "volumes")
        if kind in ("scans", "jobs"):
            try:
                volumes = list((self.scan(name) if kind == "scans" else self.job(name)).volume_names)
            except errors.OctavoError:  # there is none of that name
                volumes = []
            wait = f"client.{'wait' if kind == 'scans' else 'wait_job'}({name!r}).volumes()"
            some = ", ".join(volumes[:4]) + (" …" if len(volumes) > 4 else "")
            more = f"Its volumes are those of {wait}: {some or 'none yet'}"
        errors.check_kind("name", name, "volumes", more)

    def volumes(self, parent: Name = "", states: Sequence[Union[str, int]] = (), *, filter: str = "", order_by: str = "") -> List[Volume]:
        """Volumes that the server holds in any tier (or in `states`: "held", "committed",
        "discarded", ...), oldest first; parent: only those of this scan or job.

        filter    those that match: 'labels.eye = "OD" AND bytes > 1e6'
        order_by  "hold_time desc, name"
        """
        errors.check_kind("parent", parent, ("scans", "jobs"))
        return pages(functools.partial(self._call, self._volumes.ListVolumes), message(volume_pb2.ListVolumesRequest, dict(
            parent=parent, states=states, filter=filter, order_by=order_by)), "volumes")

    def watch_volumes(self, filter: str = "", *, existing: bool = True) -> Iterator[Fields]:
        """Yields each volume in memory (unless `existing` is False), then each change of one
        (octavo.v1.WatchVolumesResponse): `kind`, and `volume` as it is then. filter: hear of those that match, as in volumes().
        Leaving the loop ends it."""
        with errors.raising(self.address):
            call = self._volumes.WatchVolumes(volume_pb2.WatchVolumesRequest(filter=filter, skip_existing=not existing))
            try:
                yield from call
            finally:
                call.cancel()

    def volume(self, name: VolumeName) -> Volume:
        self._check_volume(name)
        try:
            return self._call(self._volumes.GetVolume, volume_pb2.GetVolumeRequest(name=name)).volume
        except errors.OctavoError as error:
            if error.reason not in ("NO_VOLUME", "VOLUME_GONE", "LOST"):
                raise
            raise errors.advised_by(error, "what became of an earlier commit, client.commit(name, destination, request_id=…) tells without this object") from None

    def read(self, name: VolumeName, start: Sequence[int] = (), count: Sequence[int] = (), *, downsample: int = 1,
             downsampling: Union[str, int, None] = None, window: Optional[Tuple[float, float]] = None, connections: int = 0,
             out: Optional[np.ndarray] = None) -> np.ndarray:
        """The voxels of a volume, or of the box at `start` of extent `count`, along its axes (Volume.axes): [y, x, z], of tomograms [z, y, x].

        downsample    a coarser picture, made on the volume's device: each sample stands for a cube of this many voxels along each axis (a
                      power of two up to 64); downsampling  the "max" (default) or the "mean" of the cube
        window        (lo, hi), in stored units: samples are sent as u8, lo as 0 and hi as 255
        connections   over which a large box comes at the same time, 1 to 16; 0: as the processors allow. At most one for every 8 MiB
        out           an array of the box's shape and type, to be filled and returned instead of a new one: for many volumes, this is faster.
                      If the call raises, it may hold a part of the voxels
        """
        self._check_volume(name)
        if window is not None:
            lo, hi = several("window", window, "lo, hi")
        request = message(volume_pb2.ReadVolumeRequest, dict(
            name=name, start=start, count=count, downsample=downsample, downsampling=downsampling or None,
            window=None if window is None else dict(lo=lo, hi=hi)))

        def volume() -> Optional[volume_pb2.Volume]:
            try:
                return self._volumes.GetVolume(volume_pb2.GetVolumeRequest(name=request.name), timeout=self.timeout, metadata=self._metadata).volume
            except grpc.RpcError:  # the read itself is told what is wrong
                return None

        with errors.raising(self.address):
            return self._reader.read(request, connections, out, volume)

    @explained(volume_pb2.RenderVolumeRequest)
    def render(self, name: VolumeName, rendering: Union[str, int] = "plane", axis: Union[str, None] = None, *, index: Optional[int] = None,
               encoding: Union[str, int] = "png", image: Optional[dict] = None, **fields: Any) -> pictures.Picture:
        """A picture of a held volume in any tier: a plane across an axis, or a projection along it. The server makes it, on the volume's device.

        rendering  "plane", "max" (MIP), "mean" (AIP), "min", "std";  axis  "x", "y", "z" (default: planes across the first axis of the
                   volume, projections along z), never a number;  index  of the plane along the axis, from 0 on (default: the middle one)
        begin, end  projections: the samples [begin, end) along the axis (a slab);  start, count  a box, as in read
        encoding   "png", "jpeg", "webp", made as `image` says (as in subscribe); "raw": the projection as an array
        """
        self._check_volume(name)
        frames.check_axis(axis)
        if index is not None and index < 0:
            raise ValueError(f"index is {index}; expected a whole number from 0 on, or None for the plane in the middle")
        request = message(volume_pb2.RenderVolumeRequest, dict(name=name, rendering=rendering, axis=axis or None, index=index, encoding=encoding,
                                                               image=image if image is None else frames.image_of(image), **fields),
                          names=dict(rendering=pictures.RENDERINGS, axis=frames.AXES, encoding=frames.ENCODINGS))
        with errors.raising(self.address):
            picture = pictures.of(self, self._volumes.RenderVolume(request))  # as long as it takes
        if picture is None:
            raise errors.OctavoError(grpc.StatusCode.DATA_LOSS, f"the server sent only a part of the picture of {name}")
        return picture

    # lease: your own lease of the volume. A lease of another client makes the call fail (ABORTED,
    # reason LEASED).

    def hold(self, name: VolumeName) -> Volume:
        """Holds a volume: a LIVE scan does not overwrite it, and its time to live is removed."""
        self._check_volume(name)
        return self._call(self._volumes.HoldVolume, volume_pb2.HoldVolumeRequest(name=name)).volume

    def release(self, name: VolumeName, *, lease: Optional[Lease] = None) -> Volume:
        """Ends the hold: a volume of a LIVE scan returns to its ring, and its time to live begins
        anew."""
        self._check_volume(name)
        return self._call(self._volumes.ReleaseVolume, volume_pb2.ReleaseVolumeRequest(name=name, lease_token=_token(lease))).volume

    # spill, restore, commit and derive wait for the end of what they begin. start_spill and its like answer at once, with the Operation,
    # which waits, watches and cancels. request_id: a retry with the same id and arguments finds the
    # first operation, running or ended.

    def spill(self, name: VolumeName, tier: Union[str, int] = "disk", *, lease: Optional[Lease] = None, request_id: str = "") -> Volume:
        """Moves a held volume's bytes out of device memory, to "host" or "disk". It keeps its name, and can be read and committed."""
        return self._ended(self._volumes.SpillVolume, self._spill(name, tier, lease, request_id)).volume

    def start_spill(self, name: VolumeName, tier: Union[str, int] = "disk", *, lease: Optional[Lease] = None,
                    request_id: str = "") -> Operation:
        """Begins spill(); does not wait for it."""
        return self._begun(self._volumes.SpillVolume, self._spill(name, tier, lease, request_id))

    def restore(self, name: VolumeName, *, request_id: str = "") -> Volume:
        """Moves the bytes back to the volume's device."""
        return self._ended(self._volumes.RestoreVolume, self._restore(name, request_id)).volume

    def start_restore(self, name: VolumeName, *, request_id: str = "") -> Operation:
        """Begins restore(); does not wait for it."""
        return self._begun(self._volumes.RestoreVolume, self._restore(name, request_id))

    @explained(formats.commit_options)
    def commit(self, name: VolumeName, destination: str, format: str = "", progress: Optional[Callable] = None, request_id: str = "",
               lease: Optional[Lease] = None, **options: Any) -> Fields:
        """Writes a held volume to storage and frees its memory. Gives octavo.v1.CommitResult. progress(OperationProgress) is called along the way. A KeyboardInterrupt
        or an exception of progress() cancels the commit.

        format   "zarr", "npy", "nrrd", "nifti", "tiff", "mat", "hdf5", "bin"; default: by the
                 destination's ending (.zarr, .npy, .nrrd, .nii, .tif, .mat, .h5, .bin), and "zarr"
                 without one. An ending of another format, or of files that Octavo does not write
                 (.nii.gz, .png, .dcm), raises OctavoError
        options  fields of CommitOptions: chunk, shard, zstd_level, level, pyramid_levels, pyramid_um, nifti_version, tiff_stack;
                 ngff "0.5", "0.4";  tiff_plane "bscan", "en_face";  codec "zstd", "gzip", "blosc-zstd", "blosc-lz4";  shuffle "none", "byte", "bit"
        """
        result = None
        with contextlib.closing(self._steps(self._commit(name, destination, format, request_id, lease, options), lease)) as steps:
            for step in steps:
                if progress:
                    progress(step.progress)
                if step.commit is not None:
                    result = step.commit
        return result

    @explained(formats.commit_options)
    def commit_iter(self, name: VolumeName, destination: str, format: str = "", request_id: str = "", lease: Optional[Lease] = None,
                    **options: Any) -> Iterator[Operation]:
        """The same, step by step: leaving the loop cancels the commit."""
        return self._steps(self._commit(name, destination, format, request_id, lease, options), lease)

    @explained(formats.commit_options)
    def start_commit(self, name: VolumeName, destination: str, format: str = "", request_id: str = "", lease: Optional[Lease] = None,
                     **options: Any) -> Operation:
        """Begins commit(); does not wait for it."""
        return self._begun(self._volumes.CommitVolume, self._commit(name, destination, format, request_id, lease, options))

    def derive(self, name: VolumeName, *operations: dict, request_id: str = "") -> Volume:
        """Makes a new held volume from a held one. operations, in sequence: {"cartesian": {...}},
        {"angiography": {...}}, {"doppler": {...}} with the fields of those messages, or operations
        on the array [y, x, z]: {"mip": {"axis": 2}}, {"crop": {"start": [...], "count": [...]}},
        ... (see octavo.buffers.array_operation). Axes are numbers as in NumPy, or the names in
        Volume.axes: {"mip": {"axis": "z"}}."""
        return self._ended(self._volumes.DeriveVolume, self._derive(name, operations, request_id)).volume

    def start_derive(self, name: VolumeName, *operations: dict, request_id: str = "") -> Operation:
        """Begins derive(); returns when the work is planned and has its memory. Operation.volumes names the new volume."""
        return self._begun(self._volumes.DeriveVolume, self._derive(name, operations, request_id))

    @explained(specs.import_request)
    def import_volume(self, path: str, *, session: Optional[Session] = None, request_id: str = "", **fields: Any) -> Volume:
        """Makes a held volume of a file or folder: what a commit wrote, in any format, with its
        metadata; or OME-Zarr, Zarr, .npy, TIFF (OME, ImageJ, a folder), NIfTI, NRRD, HDF5, MATLAB, a
        folder of linumpy, raw numbers. Waits until it is done. The path is one of the server, below one of its
        replay roots. Another one of this host is handed over by descriptor, if the server is here
        and has a hand-over socket.

        session     the session that the import and its volume belong to
        request_id  a retry with the same id, path and fields finds the first import
        fields      how the file is read (octavo.volume_import): format, raw, dataset, image, level, axes, select,
                    spacing_um, allow_unknown_spacing, order, dtype, scaled, start, count, value,
                    quantity; and title, labels, priority, device, orphan, ttl, group
        What the file says and might be a mistake is an OctavoWarning.
        """
        if fields.get("buffer"):
            raise ValueError("buffer is True; expected a volume: client.import_buffer_from() makes a buffer")
        answer = self._imported(self._ended, path, session, request_id, fields)
        errors.tell(answer.volume.name, self.job(answer.operation.target).warnings)
        return answer.volume

    @explained(specs.import_request, covered=("buffer", "value", "quantity", "title"))
    def import_buffer_from(self, path: str, *, session: Optional[Session] = None, request_id: str = "", **fields: Any) -> Buffer:
        """Makes a buffer of the numbers in a file or folder, [3 axes] in the order of `order`, on one device: all that import_volume
        reads, of any type but complex128. Waits until it is done; nobody sees the buffer before. It is of this client, as one of
        buffers.create is, and belongs to no session: `orphan="discard"` cancels the import with its session.

        session     the session that the import belongs to
        request_id  a retry with the same id, path and fields finds the first import
        fields      how the file is read (octavo.volume_import), without value and quantity; private=True: only clients with this one's key
                    see it; and labels, priority, device, orphan, ttl, group
        What the file says and might be a mistake is an OctavoWarning.
        """
        answer = self._imported(self._ended, path, session, request_id, dict(fields, buffer=True))
        if not answer.HasField("buffer"):  # a retry came after its end
            name = self.job(answer.operation.target).buffer
            raise errors.OctavoError(grpc.StatusCode.NOT_FOUND, f"{name} is gone", "NO_BUFFER", "request_id")
        errors.tell(answer.buffer.name, self.job(answer.operation.target).warnings)
        return of_message(self.buffers, answer.buffer)

    @explained(specs.import_request)
    def start_import(self, path: str, *, session: Optional[Session] = None, request_id: str = "", **fields: Any) -> Operation:
        """Begins import_volume(), or with buffer=True import_buffer_from(); returns when the file is opened and its description read.
        Operation.target is the job, whose `buffer` is the name of the buffer once it is DONE."""
        return self._imported(self._begun, path, session, request_id, fields)

    def _imported(self, how, path, session, request_id, fields):
        request = specs.import_request(path, **with_device_name(self, fields))
        request.request_id, request.session_secret = request_id, secret_of(session)
        try:
            return how(self._ingest.ImportVolume, request)
        except errors.OctavoError as error:
            elsewhere = ("NO_FILE", "OUTSIDE_ROOTS", "FAILED_PRECONDITION", "IDEMPOTENCY_MISMATCH")  # the last: an earlier try may have handed it over
            if error.reason not in elsewhere or not os.path.exists(path):
                raise
            handed = self._hand_over(path, error)
        with handed:
            request.volume_import.ClearField("path")
            request.volume_import.deposit = handed.ticket
            return how(self._ingest.ImportVolume, request)

    def _hand_over(self, path: str, why: errors.OctavoError) -> deposit.Deposit:
        """The server takes a file of this host; or raises `why` its path is of no use."""
        try:
            name = os.path.basename(os.path.realpath(path)) or "."  # of "/"
            answer = self._call(self._ingest.OpenDeposit, ingest_pb2.OpenDepositRequest(name=name))
        except errors.OctavoError as error:
            if error.reason in ("NOT_LOCAL", "HANDOFF_DISABLED"):
                raise why from None
            raise
        try:
            return deposit.Deposit(answer.socket_path, answer.ticket, path, self.timeout)
        except wire.Refused as error:
            raise errors.OctavoError(getattr(grpc.StatusCode, error.code, grpc.StatusCode.UNKNOWN), error.message, error.reason, "path") from None

    def _spill(self, name, tier, lease, request_id) -> volume_pb2.SpillVolumeRequest:
        self._check_volume(name)
        return message(volume_pb2.SpillVolumeRequest, dict(name=name, tier=tier, lease_token=_token(lease), request_id=request_id))

    def _restore(self, name, request_id) -> volume_pb2.RestoreVolumeRequest:
        self._check_volume(name)
        return volume_pb2.RestoreVolumeRequest(name=name, request_id=request_id)

    def _commit(self, name, destination, format, request_id, lease, options) -> volume_pb2.CommitVolumeRequest:
        self._check_volume(name)
        return volume_pb2.CommitVolumeRequest(name=name, request_id=request_id, lease_token=_token(lease),
                                              options=formats.commit_options(destination, format, **options))

    def _derive(self, name, operations, request_id) -> volume_pb2.DeriveVolumeRequest:
        self._check_volume(name)
        axes = self._axes(name) if any(buffers.names_axes(one) for one in operations) else ()
        return volume_pb2.DeriveVolumeRequest(name=name, request_id=request_id, operations=buffers.volume_operations(operations, axes))

    def _begun(self, call, request) -> Operation:
        request.wait.SetInParent()  # 0: answer as soon as it has begun
        with errors.raising(self.address):
            return call(request, metadata=self._metadata).operation

    def _ended(self, call, request):
        """The answer when the work is done; raises the error of the work."""
        with errors.raising(self.address):
            answer = call(request, metadata=self._metadata)  # as long as it takes
        if (error := errors.of_operation(answer.operation)) is not None:
            raise error
        return answer

    def _steps(self, request: volume_pb2.CommitVolumeRequest, lease: Optional[Lease]) -> Iterator[Operation]:
        step, left = self._begun(self._volumes.CommitVolume, request), True
        try:
            for step in self.watch_operation(step.name):
                if lease is not None and step.commit is not None:
                    lease.ended = True  # with the volume's memory
                yield step
            left = False
        except errors.OctavoError:  # the connection is lost: the commit goes on
            left = False
            raise
        finally:
            if left and not step.done:
                with contextlib.suppress(errors.OctavoError, ValueError):  # the server, or this client, has ended meanwhile
                    self.cancel_operation(step.name)
        if (error := errors.of_operation(step)) is not None:
            raise error

    def _axes(self, name: str) -> tuple:
        return tuple(self._call(self._volumes.GetVolume, volume_pb2.GetVolumeRequest(name=name)).volume.axes)

    def wait_volume(self, name: VolumeName, *, timeout: Optional[Seconds] = None) -> Volume:
        """Waits until a volume of a scan, or of its chains, is complete (HELD, or a later state), at most `timeout` seconds (OctavoTimeout)."""
        self._check_volume(name)
        most = limit("timeout", timeout)
        with errors.waiting(most, lambda: self.volume(name)), errors.raising(self.address):
            return self._volumes.WaitVolume(volume_pb2.WaitVolumeRequest(name=name), timeout=most).volume

    def chain(self, scan: ScanName, name: str) -> Iterator[Volume]:
        """Yields the results of a chain of the scan (scan_spec(chains={name: [...]})), one per
        volume, as they complete, until the scan has ended and all results exist. A result that the
        server cannot make is an OctavoWarning with the reason (Volume.skipped_chains)."""
        errors.check_kind("scan", scan, "scans")
        made, sources, ended = set(), set(), False

        def without(source: str, why: str) -> None:
            if source not in made:
                made.add(source)
                errors.tell(scan, [f"the chain {name!r} made nothing of {source}: {why}"])

        def see(volume: volume_pb2.Volume) -> None:
            for skipped in volume.skipped_chains:
                if skipped.chain == name:
                    without(volume.name, skipped.reason)

        with _News(self, scan) as news:
            while not (ended and sources <= made):
                change = news.next()
                if change is _SCAN_ENDED:
                    # Some of its volumes may not have been heard of yet, and results may be gone.
                    held = [v for v in self.volumes(scan) if not v.derived_from and not v.raw]
                    ended, sources = True, {v.name for v in held}
                    for volume in held:
                        see(volume)
                    gone = f"chain = {_quoted(name)} AND (state = COMMITTED OR state = DISCARDED OR state = FAILED)"
                    made.update(v.derived_from for v in self.volumes(scan, filter=gone))
                    continue
                volume = change.volume
                if not volume.derived_from:
                    see(volume)
                    if not volume.raw and change.kind != volume_pb2.WatchVolumesResponse.KIND_GONE:
                        sources.add(volume.name)
                    elif volume.name not in made:
                        sources.discard(volume.name)  # nothing is made of what is gone
                    continue
                if volume.chain != name or volume.state == types_pb2.VOLUME_STATE_ACQUIRING or volume.derived_from in made:
                    continue
                if volume.state == types_pb2.VOLUME_STATE_FAILED:
                    without(volume.derived_from, volume.reason)
                    continue
                made.add(volume.derived_from)
                yield volume

    def discard(self, name: VolumeName, *, detach_exports: bool = False, lease: Optional[Lease] = None) -> Volume:
        """Frees a held volume's memory. Its data are gone. detach_exports: even if other processes
        map it. Of a volume that was discarded already, returns it as it is."""
        self._check_volume(name)
        request = volume_pb2.DiscardVolumeRequest(name=name, detach_exports=detach_exports, lease_token=_token(lease))
        volume = self._call(self._volumes.DiscardVolume, request).volume
        if lease is not None:
            lease.ended = True
        return volume
