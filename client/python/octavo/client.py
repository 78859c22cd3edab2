"""The client: one channel, typed calls, arrays in and out."""

from __future__ import annotations

import os

# Larger reads on the receiving side: about a third more throughput for volumes. Must be set before gRPC starts.
os.environ.setdefault("GRPC_EXPERIMENTS", "tcp_frame_size_tuning")

import contextlib
import dataclasses
import threading
import time
from typing import Callable, Iterator, List, Optional, Sequence, Union

import grpc
import numpy as np

from octavo import buffers, errors, mapping, push, ring, specs
from octavo import session as sessions
from octavo.v1 import (buffer_pb2, job_pb2, job_pb2_grpc, scan_pb2, scan_pb2_grpc, session_pb2, session_pb2_grpc, source_pb2, source_pb2_grpc, stream_pb2,
                       stream_pb2_grpc, system_pb2, system_pb2_grpc, types_pb2, volume_pb2, volume_pb2_grpc)

NUMPY = {types_pb2.U8: np.dtype("u1"), types_pb2.I8: np.dtype("i1"), types_pb2.U16: np.dtype("<u2"), types_pb2.I16: np.dtype("<i2"),
         types_pb2.F16: np.dtype("<f2"), types_pb2.F32: np.dtype("<f4"), types_pb2.F64: np.dtype("<f8"), types_pb2.C64: np.dtype("<c8")}
PRODUCTS = {"mip": stream_pb2.MIP, "aip": stream_pb2.AIP, "bscan": stream_pb2.BSCAN, "volume": stream_pb2.VOLUME, "event": stream_pb2.EVENT,
            "angiogram": stream_pb2.ANGIOGRAM}
AXES = {"x": stream_pb2.X, "y": stream_pb2.Y, "z": stream_pb2.Z}
DELIVERIES = {"latest": stream_pb2.LATEST, "drop_oldest": stream_pb2.DROP_OLDEST, "lossless": stream_pb2.LOSSLESS}
ENCODINGS = {"raw": stream_pb2.RAW, "png": stream_pb2.PNG, "jpeg": stream_pb2.JPEG}
COLOUR_MAPS = {"gray": stream_pb2.GRAY, "gray_inverted": stream_pb2.GRAY_INVERTED, "viridis": stream_pb2.VIRIDIS, "magma": stream_pb2.MAGMA,
               "inferno": stream_pb2.INFERNO, "plasma": stream_pb2.PLASMA, "hot": stream_pb2.HOT}
FORMATS = {"zarr": scan_pb2.OME_ZARR_05, "npy": scan_pb2.NPY, "nrrd": scan_pb2.NRRD, "nifti": scan_pb2.NIFTI, "tiff": scan_pb2.OME_TIFF,
           "mat": scan_pb2.MATLAB_V5, "hdf5": scan_pb2.HDF5, "bin": scan_pb2.BIN}
CODECS = {"zstd": scan_pb2.CODEC_ZSTD, "gzip": scan_pb2.CODEC_GZIP, "blosc-zstd": scan_pb2.CODEC_BLOSC_ZSTD, "blosc-lz4": scan_pb2.CODEC_BLOSC_LZ4}
SHUFFLES = {"none": scan_pb2.SHUFFLE_NONE, "byte": scan_pb2.SHUFFLE_BYTE, "bit": scan_pb2.SHUFFLE_BIT}
TIERS = {"device": types_pb2.DEVICE, "host": types_pb2.HOST, "disk": types_pb2.DISK}
FINAL = (scan_pb2.DONE, scan_pb2.FAILED, scan_pb2.CANCELLED)


@dataclasses.dataclass
class Frame:
    """One live result. `array`: [rows, columns], or [y, x, z] for volumes; None for events and for PNG and JPEG (`data` is the file)."""

    scan: str
    volume: str
    volume_index: int
    product: str
    axis: str
    sequence: int
    dropped_before: int
    complete: bool
    array: Optional[np.ndarray]
    data: bytes
    spacing_um: List[float]
    display: tuple
    acquired_ns: int   # monotonic clock of the server
    published_ns: int
    event: str
    shape: tuple = ()          # of the array, or the picture's [rows, columns]
    scale_bar_um: float = 0.0  # PNG and JPEG: length of the bar drawn; 0 = none
    scan_event: Optional[types_pb2.ScanEvent] = None  # events: the same for programs
    stages: Optional[stream_pb2.StageTimes] = None  # of projections and B-scans of completed volumes: times on the way here


def commit_options(destination: str, format: str = "zarr", **options) -> scan_pb2.CommitOptions:
    """CommitOptions, with names for format, codec and shuffle (as Client.commit takes them); for retention=dict(auto_commit=...) too."""
    for field, table in (("codec", CODECS), ("shuffle", SHUFFLES)):
        if isinstance(options.get(field), str):
            options[field] = table[options[field]]
    return scan_pb2.CommitOptions(destination=destination, format=FORMATS[format], **options)


@dataclasses.dataclass
class Waveform:
    """Where the scanner has to be at each record of a volume: x, y [record] in `unit`; placement [record]: A-scan or -1 for flyback."""

    x: np.ndarray
    y: np.ndarray
    placement: np.ndarray
    unit: str
    sample_rate_hz: float
    plot_png: bytes  # empty unless asked for


def _name(table: dict, value: int) -> str:
    return next((name for name, number in table.items() if number == value), "")


@contextlib.contextmanager
def _raising():
    try:
        yield
    except grpc.RpcError as error:
        raise errors.from_rpc_error(error) from None


class Client:
    """A connection to octavod. `address`: "host:port" or "unix:/path"; default $OCTAVO_ADDRESS or 127.0.0.1:50051.
    `client`: what the owner of its buffers is called; `key`: opens its private ones."""

    def __init__(self, address: Optional[str] = None, timeout: float = 30.0, client: str = "", key: str = ""):
        self.address = address or os.environ.get("OCTAVO_ADDRESS", "127.0.0.1:50051")
        self.timeout = timeout
        self.channel = grpc.insecure_channel(self.address, options=[
            ("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20),
            ("grpc.use_local_subchannel_pool", 1)])
        self._scans = scan_pb2_grpc.ScanServiceStub(self.channel)
        self._volumes = volume_pb2_grpc.VolumeServiceStub(self.channel)
        self._streams = stream_pb2_grpc.StreamServiceStub(self.channel)
        self._jobs = job_pb2_grpc.JobServiceStub(self.channel)
        self._sources = source_pb2_grpc.SourceServiceStub(self.channel)
        self._system = system_pb2_grpc.SystemServiceStub(self.channel)
        self._sessions = session_pb2_grpc.SessionServiceStub(self.channel)
        self._metadata = buffers.caller(client, key)
        self.buffers = buffers.Buffers(self.channel, self.timeout, self._metadata)
        self._handoff: Optional[mapping.Connection] = None
        self._handoff_lock = threading.Lock()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        if self._handoff is not None:
            self._handoff.close()
        self.channel.close()

    def _call(self, method, request, extra: float = 0.0):
        with _raising():
            return method(request, timeout=self.timeout + extra, metadata=self._metadata)

    # -- scans

    def submit_scan(self, source: Union[scan_pb2.ScanSpec, specs.Source], pattern: Union[specs.Shape, scan_pb2.Pattern, None] = None,
                    *, session: Optional[sessions.Session] = None, **fields) -> scan_pb2.Scan:
        """Starts a scan: a whole ScanSpec, or a source and a pattern (and what specs.scan_spec takes). Returns the Scan.

        session  whose client it belongs to: says when that is gone, for retention=dict(orphan=...)
        """
        spec = source if isinstance(source, scan_pb2.ScanSpec) else specs.scan_spec(source, pattern, **fields)
        return self._call(self._scans.SubmitScan, scan_pb2.SubmitScanRequest(spec=spec, session_secret=session.secret if session is not None else ""))

    def plan_scan(self, source, pattern=None, *, session: Optional[sessions.Session] = None, **fields) -> scan_pb2.PlanScanResponse:
        """What submit_scan would need and answer; starts nothing."""
        spec = source if isinstance(source, scan_pb2.ScanSpec) else specs.scan_spec(source, pattern, **fields)
        return self._call(self._scans.PlanScan, scan_pb2.PlanScanRequest(spec=spec, session_secret=session.secret if session is not None else ""))

    def waveform(self, source, pattern=None, *, odd_volume: bool = False, plot: bool = False, **fields) -> Waveform:
        """The scanner's waveforms of one volume, ready to be looped; np.save them, or plot=True for a PNG."""
        spec = source if isinstance(source, scan_pb2.ScanSpec) else specs.scan_spec(source, pattern, **fields)
        parts, plot_png, first, total = [], b"", 0, 1
        while first < total:
            answer = self._call(self._scans.PlanScan, scan_pb2.PlanScanRequest(spec=spec, waveform=True, plot=plot and first == 0,
                                                                               first_sample=first, odd_volume=odd_volume))
            parts.append(answer.waveform)
            plot_png = plot_png or answer.plot_png
            total = answer.waveform.total_samples
            first += len(answer.waveform.x)
        return Waveform(np.concatenate([p.x for p in parts]).astype(np.float32), np.concatenate([p.y for p in parts]).astype(np.float32),
                        np.concatenate([p.placement for p in parts]).astype(np.int32), parts[0].unit, parts[0].sample_rate_hz, plot_png)

    def scan(self, name: str) -> scan_pb2.Scan:
        return self._call(self._scans.GetScan, scan_pb2.GetScanRequest(name=name))

    def scans(self) -> List[scan_pb2.Scan]:
        """All scans the server knows, newest first."""
        result, token = [], ""
        while True:
            page = self._call(self._scans.ListScans, scan_pb2.ListScansRequest(page_size=1000, page_token=token))
            result.extend(page.scans)
            token = page.next_page_token
            if not token:
                return result

    def watch(self, name: str) -> Iterator[scan_pb2.Scan]:
        """The scan now, at every change of state, and twice a second, until its final state."""
        with _raising():
            yield from self._scans.WatchScan(scan_pb2.WatchScanRequest(name=name))

    def wait(self, name: str) -> scan_pb2.Scan:
        """Waits for the end of a scan."""
        last = None
        for last in self.watch(name):
            pass
        return last

    def update_scan(self, name: str, processing: scan_pb2.Processing) -> scan_pb2.Scan:
        """Other processing from the next volume on."""
        return self._call(self._scans.UpdateScan, scan_pb2.UpdateScanRequest(name=name, processing=processing))

    def stop(self, name: str) -> scan_pb2.Scan:
        """Ends after the current volume."""
        return self._call(self._scans.StopScan, scan_pb2.StopScanRequest(name=name))

    def cancel(self, name: str) -> scan_pb2.Scan:
        """Ends at once."""
        return self._call(self._scans.CancelScan, scan_pb2.CancelScanRequest(name=name))

    def mark(self, name: str, marker: str) -> types_pb2.ScanEvent:
        """Puts a marker at the record that is being processed now."""
        return self._call(self._scans.MarkScan, scan_pb2.MarkScanRequest(name=name, marker=marker))

    # -- sources

    def push(self, scan: str, blocks: push.Blocks, *, end: bool = True, reconnect: float = 30.0,
             progress: Optional[Callable] = None) -> push.PushResult:
        """Sends the records of a scan whose source is `push`, as fast as the server takes them, and waits until it has them.

        blocks     arrays [records, S], which follow on from what the scan has; or (first_record, array) pairs: what lies between
                   is lost; or (first_record, array, [(marker, record), ...]); or a function from the next record to any of
                   those, to go on with a scan that another client began
        end        after the last block, say that no more will come
        reconnect  seconds to try for a new connection when one breaks; records that the server did not take are sent again
        progress   called with each PushResponse
        """
        return push.push(self._sources.Push, scan, blocks, end=end, reconnect=reconnect, progress=progress)

    def ring_ticket(self, scan: str) -> source_pb2.OpenRingResponse:
        """How a process on the server's host gets at the ring of a scan whose source is `ring`: `socket` and `ticket`, for octavo.Ring there
        or octavo_ring_open of client/cpp/octavo_ring.h. Good once."""
        return self._call(self._sources.OpenRing, source_pb2.OpenRingRequest(scan=scan))

    def open_ring(self, scan: str) -> ring.Ring:
        """Attaches this process to the ring of a scan, as its producer (see octavo.Ring)."""
        ticket = self.ring_ticket(scan)
        return ring.Ring(ticket.socket, ticket.ticket)

    def push_projections(self, job: str, frames, *, end: bool = True, reconnect: float = 30.0,
                         progress: Optional[Callable] = None) -> push.ProjectionPushResult:
        """Sends the frames of a tomography scan to a job whose input is `push`, as fast as the server takes them, and waits until it has them.

        frames     octavo.ProjectionFrame, in any order: octavo.projection_frames(projections, angles_rad, flats, darks) makes them of
                   arrays; or a function from the runs (first, count) of frames that the job lacks to such frames, to go on with
                   what another client began
        end        after the last frame, say that no more will come: the job goes on with what it has
        reconnect  seconds to try for a new connection when one breaks; frames that the server did not get are sent again
        progress   called with each PushProjectionsResponse
        """
        return push.push_projections(self._sources.PushProjections, job, frames, end=end, reconnect=reconnect, progress=progress)

    def cameras(self) -> List[source_pb2.CameraInfo]:
        """Cameras that the server can reach now. Takes about a second."""
        return list(self._call(self._sources.ListCameras, source_pb2.ListCamerasRequest()).cameras)

    # -- volumes

    def volumes(self, scan: str = "", states: Sequence[int] = ()) -> List[volume_pb2.Volume]:
        """Volumes in device memory (or in `states`), oldest first."""
        result, token = [], ""
        while True:
            page = self._call(self._volumes.ListVolumes,
                              volume_pb2.ListVolumesRequest(scan=scan, states=states, page_size=1000, page_token=token))
            result.extend(page.volumes)
            token = page.next_page_token
            if not token:
                return result

    def volume(self, name: str) -> volume_pb2.Volume:
        return self._call(self._volumes.GetVolume, volume_pb2.GetVolumeRequest(name=name))

    def read(self, name: str, start: Sequence[int] = (), count: Sequence[int] = ()) -> np.ndarray:
        """The voxels of a volume, or of the box at `start` of extent `count`, as [y, x, z]."""
        array = flat = None
        done = 0
        with _raising():
            for part in self._volumes.ReadVolume(volume_pb2.ReadVolumeRequest(name=name, start=start, count=count)):
                if array is None:
                    array = np.empty(tuple(part.shape), NUMPY[part.volume.dtype])
                    flat = memoryview(array).cast("B")
                flat[part.offset:part.offset + len(part.data)] = part.data
                done += len(part.data)
        if array is None or done != array.nbytes:
            raise errors.OctavoError(grpc.StatusCode.DATA_LOSS, f"got {done} bytes of {name}")
        return array

    def hold(self, name: str, *, release: bool = False) -> volume_pb2.Volume:
        """Marks a volume: a LIVE scan does not overwrite it, and its time to live ends. release: takes the mark back."""
        return self._call(self._volumes.HoldVolume, volume_pb2.HoldVolumeRequest(name=name, release=release))

    def spill(self, name: str, tier: str = "disk") -> volume_pb2.Volume:
        """Moves a held volume's bytes out of device memory, to "host" or "disk". It keeps its name, and can be read and committed."""
        with _raising():
            return self._volumes.SpillVolume(volume_pb2.SpillVolumeRequest(name=name, tier=TIERS[tier]))  # as long as it takes

    def restore(self, name: str) -> volume_pb2.Volume:
        """Moves them back to its device."""
        with _raising():
            return self._volumes.RestoreVolume(volume_pb2.RestoreVolumeRequest(name=name))  # as long as it takes

    def commit(self, name: str, destination: str, format: str = "zarr", progress: Optional[Callable] = None, request_id: str = "",
               **options) -> volume_pb2.CommitResult:
        """Writes a held volume to storage and frees its memory. progress(CommitProgress) is called along the way.

        format   "zarr", "npy", "nrrd", "nifti", "tiff", "mat", "hdf5", "bin"
        options  fields of CommitOptions: chunk, shard, uncompressed, zstd_level, level, pyramid_levels, nifti_version;
                 codec "zstd", "gzip", "blosc-zstd", "blosc-lz4";  shuffle "none", "byte", "bit"
        """
        result = None
        for step in self.commit_iter(name, destination, format, request_id, **options):
            if progress:
                progress(step)
            if step.HasField("result"):
                result = step.result
        return result

    def commit_iter(self, name: str, destination: str, format: str = "zarr", request_id: str = "", **options) -> Iterator[volume_pb2.CommitProgress]:
        request = volume_pb2.CommitVolumeRequest(name=name, request_id=request_id, options=commit_options(destination, format, **options))
        call = self._volumes.CommitVolume(request)
        with _raising():
            try:
                yield from call
            finally:
                call.cancel()

    def derive(self, name: str, *operations: dict, request_id: str = "", asynchronous: bool = False) -> volume_pb2.Volume:
        """A new held volume made of a held one. operations, one after the other: {"cartesian": {...}}, {"angiography": {...}},
        {"doppler": {...}} with the fields of those messages, or operations on the array [y, x, z]: {"mip": {"axis": 2}},
        {"crop": {"start": [...], "count": [...]}}, ... (see octavo.buffers.array_operation). asynchronous: returns when the work is planned;
        wait_volume() waits for it."""
        request = volume_pb2.DeriveVolumeRequest(name=name, request_id=request_id, asynchronous=asynchronous)
        for operation in operations:
            if not operation or set(operation) & {"cartesian", "angiography", "doppler", "reprocess", "array"}:
                request.operations.add(**operation)
            else:
                request.operations.add(array=buffers.array_operation(operation))
        with _raising():
            return self._volumes.DeriveVolume(request)  # as long as it takes

    def wait_volume(self, name: str) -> volume_pb2.Volume:
        """Waits until a volume is complete (HELD, or whatever became of it)."""
        with _raising():
            return self._volumes.WaitVolume(volume_pb2.WaitVolumeRequest(name=name))

    def chain(self, scan: str, name: str) -> Iterator[volume_pb2.Volume]:
        """What a chain of the scan (scan_spec(chains={name: [...]})) makes of each volume, as it completes; until the scan has ended and
        all are there."""
        seen = set()
        for frame in self.subscribe(scan, ["event"], from_sequence=0):
            if frame.event != "volume HELD" or frame.volume in seen:
                continue
            seen.add(frame.volume)
            volume = self.volume(frame.volume)
            if volume.chain == name:
                yield volume
        # The last ones may still be at work, or wait for a worker.
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

    def discard(self, name: str, *, detach_exports: bool = False) -> volume_pb2.Volume:
        """Frees a held volume's memory. Its data is gone. detach_exports: although other processes map it."""
        return self._call(self._volumes.DiscardVolume, volume_pb2.DiscardVolumeRequest(name=name, detach_exports=detach_exports))

    # -- memory of the server in this process

    def map(self, name: str, *, replica: int = 0, lease: Optional[sessions.Lease] = None, writable: bool = False):
        """The memory of a held volume, or of a replica of a buffer under an exclusive lease, without a copy; the server must be on this host
        and have a hand-over socket (handoff.unix). Host backend: a read-only NumPy array. GPU: an octavo.Mapped, for cupy.asarray and
        torch.from_dlpack (`writable` is what they are told: torch.as_tensor wants it). Given back when the last array of it is gone, or
        by unmap(). Raises OctavoError, or octavo.HandoffError where the socket refuses."""
        mapped = None
        with self._handoff_lock:
            if name.startswith("volumes/") and self._handoff is not None and self._handoff.alive and replica == 0:
                try:
                    mapped = self._handoff.take(name, writable=writable)  # one message; the ticket was presented before
                except mapping.HandoffError as error:
                    if error.reason not in ("SERVER_GONE", "NO_GRANT"):
                        raise
            if mapped is None:
                ticket = self.buffers._call(self.buffers._stub.Export, buffer_pb2.ExportRequest(
                    name=name, replica=replica, lease_token=lease.token if lease else "", lease_fence=lease.fence if lease else 0))
                if self._handoff is None or not self._handoff.alive or self._handoff.path != ticket.socket_path:
                    self._handoff = mapping.Connection(ticket.socket_path, self.timeout)
                mapped = self._handoff.present(ticket.nonce, writable=writable)
        return np.asarray(mapped) if mapped.device[0] == 1 else mapped

    def map_volumes(self, scan: str, *, most: int = 4, every: bool = False, timeout: Optional[float] = None,
                    writable: bool = False) -> "_MappedVolumes":
        """The volumes of a scan as they complete, each as map() gives it, without asking for it: `for array in client.map_volumes(scan)`,
        until the scan has ended. The server counts the reference before it tells, so that nobody can take the volume away in between; a
        volume of a LIVE scan is kept while it is mapped. See octavo.mapping.Volumes for most, every, timeout; mapping.owner(array) knows
        index, skipped and sealed_ns."""
        ticket = self.buffers._call(self.buffers._stub.Export, buffer_pb2.ExportRequest(name=scan))
        return _MappedVolumes(ticket.socket_path, ticket.nonce, most=most, every=every, timeout=timeout, writable=writable)

    @staticmethod
    def unmap(mapped) -> None:
        """Gives back what map() returned, now. It must not be used any more."""
        mapping.owner(mapped).release()

    def exports(self, of: str = "") -> List[buffer_pb2.ExportStatus]:
        """What other processes (and this one) map, oldest first."""
        return list(self.buffers._call(self.buffers._stub.ListExports, buffer_pb2.ListExportsRequest(of=of)).exports)

    def revoke_export(self, name: str) -> int:
        """Asks for exports/..., or all of volumes/... or buffers/..., back. Returns how many."""
        return self.buffers._call(self.buffers._stub.RevokeExport, buffer_pb2.RevokeExportRequest(name=name)).exports

    # -- sessions and leases

    def session(self, client: str = "", *, secret: str = "") -> sessions.Session:
        """A session that keeps itself alive, or (secret) the one that this or another process had, revived if it has expired."""
        if secret:
            alive = self._call(self._sessions.KeepAlive, session_pb2.KeepAliveRequest(secret=secret))
            config = self._call(self._system.GetInfo, system_pb2.GetInfoRequest())
            return sessions.Session(self, alive.name, secret, config.heartbeat_seconds, config.expiry_seconds)
        opened = self._call(self._sessions.OpenSession, session_pb2.OpenSessionRequest(client=client))
        return sessions.Session(self, opened.session.name, opened.secret, opened.heartbeat_seconds, opened.expiry_seconds)

    def sessions(self) -> List[session_pb2.ClientSession]:
        return list(self._call(self._sessions.ListSessions, session_pb2.ListSessionsRequest()).sessions)

    def lease(self, resource: str, *, exclusive: bool = False, seconds: float = 0.0, wait: float = 0.0,
              session: Optional[sessions.Session] = None, holder: str = "") -> sessions.Lease:
        """A lease of volumes/... or buffers/...; give it back with release(), or use it in a `with` block.

        seconds  until it expires unless renewed; 0 = with `session`, which is needed then
        wait     seconds to stand in the queue; 0 = try
        """
        return sessions.acquire(self, resource, exclusive, seconds, wait, session, holder)

    def leases(self, resource: str = "") -> List[session_pb2.LeaseGrant]:
        return list(self._call(self._sessions.ListLeases, session_pb2.ListLeasesRequest(resource=resource)).leases)

    # -- jobs

    def submit_job(self, work: specs.Work, **fields) -> job_pb2.Job:
        """Queues a job: octavo.reprocess(...), octavo.dispersion_autofocus(...), octavo.k_calibration(...), or a whole JobSpec.

        fields  title, labels, priority (-100 ... 100), device, group, request_id
        """
        return self._call(self._jobs.SubmitJob, job_pb2.SubmitJobRequest(spec=specs.job_spec(work, **fields)))

    def plan_job(self, work: specs.Work, **fields) -> job_pb2.PlanJobResponse:
        """What submit_job would need and do; queues nothing."""
        return self._call(self._jobs.PlanJob, job_pb2.PlanJobRequest(spec=specs.job_spec(work, **fields)))

    def job(self, name: str) -> job_pb2.Job:
        return self._call(self._jobs.GetJob, job_pb2.GetJobRequest(name=name))

    def jobs(self, states: Sequence[int] = ()) -> List[job_pb2.Job]:
        """All jobs the server knows (or those in `states`), newest first, without steps and log."""
        result, token = [], ""
        while True:
            page = self._call(self._jobs.ListJobs, job_pb2.ListJobsRequest(states=states, page_size=1000, page_token=token))
            result.extend(page.jobs)
            token = page.next_page_token
            if not token:
                return result

    def watch_job(self, name: str) -> Iterator[job_pb2.Job]:
        """The job now, at every change, and twice a second, until its final state."""
        with _raising():
            yield from self._jobs.WatchJob(job_pb2.WatchJobRequest(name=name))

    def wait_job(self, name: str, check: bool = True) -> job_pb2.Job:
        """Waits for the end of a job. check: raises OctavoError unless it is DONE."""
        last = None
        for last in self.watch_job(name):
            pass
        if check and last.state != job_pb2.JOB_DONE:
            raise errors.OctavoError(grpc.StatusCode.CANCELLED if last.state == job_pb2.JOB_CANCELLED else grpc.StatusCode.ABORTED,
                                     f"{name}: {last.reason}", last.reason_code)
        return last

    def cancel_job(self, name: str) -> job_pb2.Job:
        """Ends a job at any time; all its memory is free again."""
        return self._call(self._jobs.CancelJob, job_pb2.CancelJobRequest(name=name))

    # -- live products

    def subscribe(self, scan: str = "", products: Sequence[str] = ("mip",), *, axis: str = "", index: Optional[int] = None,
                  delivery: str = "", encoding: str = "raw", image: Optional[dict] = None,
                  from_sequence: Optional[int] = None, timeout: Optional[float] = None, **fields) -> Iterator[Frame]:
        """Frames as they come, until the scan ends (all scans: for ever, or until `timeout` seconds) or the generator is closed.

        products  "mip", "aip", "bscan", "volume", "event", "angiogram";  axis  "x", "y", "z";  delivery  "latest", "drop_oldest", "lossless"
        encoding  "raw" (arrays), "png", "jpeg": pictures, made as `image` says:
                  dict(colour_map="viridis", percentiles=(1, 99) or levels=(lo, hi), max_width=, max_height=, square_pixels=True,
                  depth_down=True, scale_bar=True, jpeg_quality=85); with "raw", sizes and depth_down only
        """
        request = stream_pb2.SubscribeRequest(scan=scan, products=[PRODUCTS[p] for p in products], **fields)
        if axis:
            request.axis = AXES[axis]
        if index is not None:
            request.index, request.index_set = index, True
        if delivery:
            request.delivery = DELIVERIES[delivery]
        request.encoding = ENCODINGS[encoding]
        if image is not None:
            request.image.CopyFrom(image_options(**image))
        if from_sequence is not None:
            request.resume, request.from_sequence = True, from_sequence
        call = self._streams.Subscribe(request, timeout=timeout)
        with _raising():
            try:
                yield from _frames(call)
            finally:
                call.cancel()

    # -- the server

    def info(self) -> system_pb2.Info:
        return self._call(self._system.GetInfo, system_pb2.GetInfoRequest())

    def devices(self) -> List[system_pb2.DeviceStatus]:
        return list(self._call(self._system.ListDevices, system_pb2.ListDevicesRequest()).devices)

    def memory(self) -> system_pb2.Memory:
        """Who holds the memory of the devices, and what was spilled where."""
        return self._call(self._system.GetMemory, system_pb2.GetMemoryRequest())

    def health(self) -> bool:
        """Whether the server says it serves (grpc.health.v1)."""
        check = self.channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=lambda _: b"", response_deserializer=bytes)
        with _raising():
            return check(None, timeout=self.timeout) == b"\x08\x01"


class _MappedVolumes(mapping.Volumes):
    """Arrays where the memory is the host's."""

    def __next__(self):
        mapped = super().__next__()
        return np.asarray(mapped) if mapped.device[0] == 1 else mapped


def image_options(*, colour_map: str = "", levels: Optional[Sequence[float]] = None, percentiles: Optional[Sequence[float]] = None,
                  **fields) -> stream_pb2.ImageOptions:
    """octavo.v1.ImageOptions; see Client.subscribe."""
    message = stream_pb2.ImageOptions(**fields)
    if colour_map:
        message.colour_map = COLOUR_MAPS[colour_map]
    for name, pair in (("levels", levels), ("percentiles", percentiles)):
        if pair is not None:
            getattr(message, name).CopyFrom(types_pb2.Levels(lo=pair[0], hi=pair[1]))
    return message


def _frames(messages) -> Iterator[Frame]:
    """Puts the chunks of each frame together."""
    head, buffer = None, bytearray()
    for message in messages:
        if message.offset == 0:
            head, buffer = message, bytearray(message.total_bytes)
        buffer[message.offset:message.offset + len(message.data)] = message.data
        if message.offset + len(message.data) < message.total_bytes:
            continue
        array = None
        if head.total_bytes and head.encoding == stream_pb2.RAW:
            array = np.frombuffer(buffer, NUMPY[head.dtype]).reshape(tuple(head.shape))
        yield Frame(scan=head.scan, volume=head.volume, volume_index=head.volume_index, product=_name(PRODUCTS, head.product),
                    axis=_name(AXES, head.axis), sequence=head.sequence, dropped_before=head.dropped_before, complete=head.complete,
                    array=array, data=b"" if array is not None else bytes(buffer), spacing_um=list(head.spacing_um),
                    display=(head.display.lo, head.display.hi), acquired_ns=head.acquired.monotonic_ns,
                    published_ns=head.published.monotonic_ns, event=head.event, shape=tuple(head.shape), scale_bar_um=head.scale_bar_um,
                    scan_event=head.scan_event if head.HasField("scan_event") else None,
                    stages=head.stages if head.HasField("stages") else None)
