"""VolumeService of a client."""

from __future__ import annotations

import time
from typing import Any, Callable, Iterator, List, Optional, Sequence, Union

import grpc
import numpy as np

from octavo import buffers, errors, formats
from octavo.arguments import explained, explained_methods, message
from octavo.fields import Fields
from octavo.frames import NUMPY
from octavo.names import Names
from octavo.objects import Name, ScanName, Volume, VolumeName, giving_objects
from octavo.paging import pages
from octavo.session import Lease, token_of as _token
from octavo.v1 import array_operation_pb2, types_pb2, volume_pb2

TIERS = Names({"device": types_pb2.TIER_DEVICE, "host": types_pb2.TIER_HOST, "disk": types_pb2.TIER_DISK}, of=types_pb2.Tier)


def _operation(operation, axes: Sequence[str]) -> volume_pb2.VolumeOperation:
    """An operation on a volume: one for volumes only, or an array
    operation."""
    if isinstance(operation, volume_pb2.VolumeOperation):
        return operation
    if isinstance(operation, array_operation_pb2.ArrayOperation):
        return volume_pb2.VolumeOperation(array=operation)
    name, fields = buffers.one_operation(operation, volume_pb2.VolumeOperation, array_operation_pb2.ArrayOperation)
    if name == "array":
        return volume_pb2.VolumeOperation(array=buffers.array_operation(fields, axes))
    if name in volume_pb2.VolumeOperation.DESCRIPTOR.fields_by_name:
        return message(volume_pb2.VolumeOperation, {name: fields})
    return volume_pb2.VolumeOperation(array=buffers.array_operation(operation, axes))


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

    def volumes(self, parent: Name = "", states: Sequence[Union[str, int]] = ()) -> List[Volume]:
        """Volumes that the server holds in any tier (or in `states`: "held", "committed",
        "discarded", ...), oldest first; parent: only those of this scan or job."""
        errors.check_kind("parent", parent, ("scans", "jobs"))
        return pages(lambda token: self._call(self._volumes.ListVolumes, message(volume_pb2.ListVolumesRequest, dict(
            parent=parent, states=states, page_size=1000, page_token=token))), "volumes")

    def volume(self, name: VolumeName) -> Volume:
        self._check_volume(name)
        return self._call(self._volumes.GetVolume, volume_pb2.GetVolumeRequest(name=name)).volume

    def read(self, name: VolumeName, start: Sequence[int] = (), count: Sequence[int] = ()) -> np.ndarray:
        """The voxels of a volume, or of the box at `start` of extent `count`, along its axes (Volume.axes): [y, x, z], of tomograms [z, y, x]."""
        self._check_volume(name)
        array = flat = None
        done = 0
        with errors.raising(self.address):
            for part in self._volumes.ReadVolume(message(volume_pb2.ReadVolumeRequest, dict(name=name, start=start, count=count))):
                if array is None:
                    array = np.empty(tuple(part.shape), NUMPY[part.volume.dtype])
                    flat = memoryview(array).cast("B")
                flat[part.offset:part.offset + len(part.data)] = part.data
                done += len(part.data)
        if array is None or done != array.nbytes:
            raise errors.OctavoError(grpc.StatusCode.DATA_LOSS, f"got {done} bytes of {name}")
        return array

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

    def spill(self, name: VolumeName, tier: Union[str, int] = "disk", *, lease: Optional[Lease] = None) -> Volume:
        """Moves a held volume's bytes out of device memory, to "host" or "disk". It keeps its name, and can be read and committed."""
        self._check_volume(name)
        request = message(volume_pb2.SpillVolumeRequest, dict(name=name, tier=tier, lease_token=_token(lease)))
        with errors.raising(self.address):
            return self._volumes.SpillVolume(request).volume  # as long as it takes

    def restore(self, name: VolumeName) -> Volume:
        """Moves the bytes back to the volume's device."""
        self._check_volume(name)
        with errors.raising(self.address):
            return self._volumes.RestoreVolume(volume_pb2.RestoreVolumeRequest(name=name)).volume  # as long as it takes

    @explained(formats.commit_options)
    def commit(self, name: VolumeName, destination: str, format: str = "", progress: Optional[Callable] = None, request_id: str = "",
               lease: Optional[Lease] = None, **options: Any) -> Fields:
        """Writes a held volume to storage and frees its memory. progress(CommitProgress) is called along the way.

        format   "zarr", "npy", "nrrd", "nifti", "tiff", "mat", "hdf5", "bin"; default: by the
                 destination's ending (.zarr, .npy, .nrrd, .nii, .tif, .mat, .h5, .bin), and "zarr"
                 without one. An ending of another format, or of files that Octavo does not write
                 (.nii.gz, .png, .dcm), raises OctavoError
        options  fields of CommitOptions: chunk, shard, zstd_level, level, pyramid_levels, nifti_version, tiff_stack;
                 tiff_plane "bscan", "en_face";  codec "zstd", "gzip", "blosc-zstd", "blosc-lz4";  shuffle "none", "byte", "bit"
        """
        result = None
        for step in self.commit_iter(name, destination, format, request_id, lease, **options):
            if progress:
                progress(step)
            result = step.result or result
        return result

    @explained(formats.commit_options)
    def commit_iter(self, name: VolumeName, destination: str, format: str = "", request_id: str = "", lease: Optional[Lease] = None,
                    **options: Any) -> Iterator[Fields]:
        """The same, step by step (octavo.v1.CommitVolumeResponse): leaving the loop cancels the commit."""
        self._check_volume(name)
        request = volume_pb2.CommitVolumeRequest(name=name, request_id=request_id, lease_token=_token(lease),
                                                 options=formats.commit_options(destination, format, **options))
        return self._commit(request, lease)

    def _commit(self, request: volume_pb2.CommitVolumeRequest, lease: Optional[Lease]) -> Iterator[volume_pb2.CommitVolumeResponse]:
        call = self._volumes.CommitVolume(request)
        with errors.raising(self.address):
            try:
                for step in call:
                    if lease is not None and step.HasField("result"):
                        lease.ended = True  # with the volume's memory
                    yield step
            finally:
                call.cancel()

    def derive(self, name: VolumeName, *operations: dict, request_id: str = "", asynchronous: bool = False) -> Volume:
        """Makes a new held volume from a held one. operations, in sequence: {"cartesian": {...}},
        {"angiography": {...}}, {"doppler": {...}} with the fields of those messages, or operations
        on the array [y, x, z]: {"mip": {"axis": 2}}, {"crop": {"start": [...], "count": [...]}},
        ... (see octavo.buffers.array_operation). Axes are numbers as in NumPy, or the names in
        Volume.axes: {"mip": {"axis": "z"}}. asynchronous: returns when the work is planned;
        wait_volume() waits for it."""
        self._check_volume(name)
        axes = self._axes(name) if any(buffers.names_axes(one) for one in operations) else ()
        made = []
        for one in operations:
            made.append(_operation(one, axes))
            axes = buffers.axes_after(made[-1].array, axes)
        request = volume_pb2.DeriveVolumeRequest(name=name, request_id=request_id, asynchronous=asynchronous, operations=made)
        with errors.raising(self.address):
            return self._volumes.DeriveVolume(request).volume  # as long as it takes

    def _axes(self, name: str) -> tuple:
        return tuple(self._call(self._volumes.GetVolume, volume_pb2.GetVolumeRequest(name=name)).volume.axes)

    def wait_volume(self, name: VolumeName) -> Volume:
        """Waits until a volume is complete (HELD, or a later state)."""
        self._check_volume(name)
        with errors.raising(self.address):
            return self._volumes.WaitVolume(volume_pb2.WaitVolumeRequest(name=name)).volume

    def chain(self, scan: ScanName, name: str) -> Iterator[Volume]:
        """Yields the results of a chain of the scan (scan_spec(chains={name: [...]})), one per
        volume, as they complete, until the scan has ended and all results exist."""
        seen = set()
        for frame in self.subscribe(scan, ["event"], from_sequence=0):
            if frame.event.kind != types_pb2.ScanEvent.KIND_VOLUME_DONE or frame.volume in seen:
                continue
            seen.add(frame.volume)
            volume = self.volume(frame.volume)
            if volume.chain == name:
                yield volume
        # The last results may still be computing, or waiting for a worker.
        patience = time.monotonic() + 10
        while True:
            volumes = self.volumes(scan)
            for volume in volumes:
                if volume.chain == name and volume.name not in seen:
                    seen.add(volume.name)
                    patience = time.monotonic() + 10
                    yield self.wait_volume(volume.name)
            made = {volume.derived_from for volume in volumes if volume.chain == name}
            if all(volume.derived_from or volume.name in made for volume in volumes) or time.monotonic() > patience:
                return
            time.sleep(0.01)

    def discard(self, name: VolumeName, *, detach_exports: bool = False, lease: Optional[Lease] = None) -> Volume:
        """Frees a held volume's memory. Its data are gone. detach_exports: even if other processes
        map it."""
        self._check_volume(name)
        request = volume_pb2.DiscardVolumeRequest(name=name, detach_exports=detach_exports, lease_token=_token(lease))
        volume = self._call(self._volumes.DiscardVolume, request).volume
        if lease is not None:
            lease.ended = True
        return volume
