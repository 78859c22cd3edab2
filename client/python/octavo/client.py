"""The client: one channel, typed calls, arrays in and out."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import threading
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import grpc
import numpy as np
from google.protobuf import field_mask_pb2

from octavo import announced, buffers, errors, frame_feed, frames, lending, mapping, mosaic, native_read, push, ring, specs, tls, tokens, volume_read
from octavo.arguments import Seconds, duration, explained, explained_methods, limit, message, real, short
from octavo import session as sessions
from octavo.fields import Fields
from octavo.job_calls import JobCalls
from octavo.objects import JobName, Name, Scan, ScanName, VolumeName, giving_objects
from octavo.operation_calls import OperationCalls
from octavo.paging import pages
from octavo.v1 import (access_pb2, access_pb2_grpc, buffer_pb2, export_pb2, export_pb2_grpc, ingest_pb2, ingest_pb2_grpc, job_pb2, job_pb2_grpc,
                       operation_pb2_grpc, scan_pb2, scan_pb2_grpc, session_pb2, session_pb2_grpc, stream_pb2, stream_pb2_grpc, system_pb2, system_pb2_grpc, types_pb2, volume_pb2_grpc)
from octavo.volume_calls import VolumeCalls

def _port_is_good(one: str, v6: bool) -> bool:
    """Whether a text is host:port. gRPC takes a port modulo 65536, and 0 for words."""
    found = re.fullmatch(r"([^\s/]+):([0-9]{1,5})", one)
    if not found or not 1 <= int(found[2]) <= 65535:
        return False
    return ":" not in found[1] or v6 or re.fullmatch(r"\[.+\]", found[1]) is not None


def _address(address: str, whence: str) -> str:
    """host:port, unix:/path, or another gRPC target (dns:///host:port). ValueError for an address
    that gRPC would misunderstand; it names `whence`, which gave the address."""
    wrong = f"{whence} is {short(address)}"
    bad = ValueError(f"{wrong}; expected host:port with port 1 to 65535, or unix:/path")
    if not isinstance(address, str):
        raise ValueError(f"{wrong}; expected host:port (octavod listens on 50051) or unix:/path, as text")
    if address != address.strip() or address in ("unix:", "unix://", "unix-abstract:"):
        raise bad
    if address.startswith(("unix:", "unix-abstract:")):
        return address
    if "://" in address and not address.startswith("dns://"):
        raise ValueError(f"{wrong}; expected host:port or unix:/path, without {address.split('://')[0]}://")
    if ":" not in address:
        raise ValueError(f"{wrong} without a port; expected host:port (octavod listens on 50051) or unix:/path")
    scheme, rest = re.fullmatch(r"(dns://[^/]*/|dns:|ipv4:|ipv6:|)(.*)", address, re.DOTALL).groups()
    if not all(_port_is_good(one, scheme == "ipv6:") for one in (rest.split(",") if scheme in ("ipv4:", "ipv6:") else [rest])):
        raise bad
    return address


def _prepare_grpc() -> None:
    """Lets gRPC read more at once: about a third more throughput for volumes. It looks at the
    environment when the first channel of the process is made, so a program that makes one of its own
    before its first Client goes without. A value that is set already stays."""
    os.environ.setdefault("GRPC_EXPERIMENTS", "tcp_frame_size_tuning")


_MOST_SECONDS = 1e6  # of a short call
# after which a subscriber gets a warning that says what the scan or job waits for
QUIET_SECONDS = 5.0


@dataclasses.dataclass
class Waveform:
    """The scanner's position at each record of a volume: x, y [record] in `unit`; placement
    [record]: A-scan or -1 for flyback."""

    x: np.ndarray
    y: np.ndarray
    placement: np.ndarray
    unit: str
    sample_rate_hz: float
    plot_png: bytes = dataclasses.field(repr=False)  # empty unless requested


@giving_objects
@explained_methods
class Client(VolumeCalls, JobCalls, OperationCalls):
    """A connection to octavod. `address`: "host:port" or "unix:/path"; default $OCTAVO_ADDRESS or
    127.0.0.1:50051. `client`: what it calls itself, for others to see; `key`: opens its private ones.
    `token_file`: a file with the bearer token to log in with, as octavo token add makes it; default
    $OCTAVO_TOKEN_FILE, or no token. `ca_file`: PEM file of the authority that issued the server's
    certificate; with it the client speaks TLS to host:port; default $OCTAVO_CA_FILE, or no TLS.
    `cert_file`, `key_file`: PEM files of the client's own certificate and its key, to log in with;
    default $OCTAVO_CERT_FILE and $OCTAVO_KEY_FILE, or none. `server_name`: a name in the server's
    certificate, if the host of the address is none of them; default $OCTAVO_SERVER_NAME, or that host."""

    def __init__(self, address: Union[str, None] = None, timeout: float = 30.0, client: str = "", key: str = "",
                 token_file: Union[str, "os.PathLike[str]", None] = None, ca_file: Union[str, "os.PathLike[str]", None] = None,
                 cert_file: Union[str, "os.PathLike[str]", None] = None, key_file: Union[str, "os.PathLike[str]", None] = None,
                 server_name: Union[str, None] = None):
        if address in (None, ""):
            self.address = tls.Address(_address(os.environ.get("OCTAVO_ADDRESS") or "127.0.0.1:50051", "OCTAVO_ADDRESS"))
        else:
            self.address = tls.Address(_address(address, "address"))
        self.address.tls = tls.given(ca_file, cert_file, key_file, server_name)
        self.timeout = real("timeout", timeout)
        if not 0 < self.timeout < _MOST_SECONDS:
            raise ValueError(f"timeout is {short(timeout)}; expected seconds above 0, for calls that answer at once")
        _prepare_grpc()
        login = lambda channel: channel  # noqa: E731

        def connect(more: list) -> grpc.Channel:
            """A connection of its own that logs in as this client does."""
            return login(tls.channel(self.address, options=[
                ("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_http_proxy", 0), *more]))  # a proxy of the environment (http_proxy) would read everything, the token included

        self.channel = connect([])
        whence, path = ("token_file", token_file) if token_file not in (None, "") else ("OCTAVO_TOKEN_FILE", os.environ.get("OCTAVO_TOKEN_FILE"))
        if path:
            token = tokens.read(path, whence)
            tls.check_not_in_clear(self.address, whence)
            login = functools.partial(tokens.giving, token=token)
            self.channel = login(self.channel)
        self._reader = volume_read.Reader(self.channel, connect, native_read.Reader(self.address, path))
        self._scans = scan_pb2_grpc.ScanServiceStub(self.channel)
        self._volumes = volume_pb2_grpc.VolumeServiceStub(self.channel)
        self._streams = stream_pb2_grpc.StreamServiceStub(self.channel)
        self._jobs = job_pb2_grpc.JobServiceStub(self.channel)
        self._operations = operation_pb2_grpc.OperationServiceStub(self.channel)
        self._ingest = ingest_pb2_grpc.IngestServiceStub(self.channel)
        self._exports = export_pb2_grpc.ExportServiceStub(self.channel)
        self._system = system_pb2_grpc.SystemServiceStub(self.channel)
        self._sessions = session_pb2_grpc.SessionServiceStub(self.channel)
        self._access = access_pb2_grpc.AccessServiceStub(self.channel)
        self._metadata = buffers.caller(client, key)
        self.buffers = buffers.Buffers(self.channel, self.timeout, self._metadata, self.address)
        self.mosaic = mosaic.Mosaic(self.channel, self.timeout, self._metadata, self.buffers)
        self._handoff: Optional[mapping.Connection] = None
        self._handoff_lock = threading.Lock()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        if self._handoff is not None:
            self._handoff.close()
        self._reader.close()
        self.channel.close()

    def _call(self, method, request, extra: float = 0.0):
        with errors.raising(self.address):
            return method(request, timeout=self.timeout + extra, metadata=self._metadata)

    # -- scans

    @explained(specs.scan_spec)
    def submit_scan(self, source: Union[scan_pb2.ScanSpec, specs.Source], pattern: Union[specs.Shape, scan_pb2.Pattern, None] = None,
                    *, session: Optional[sessions.Session] = None, request_id: str = "", **fields: Any) -> Scan:
        """Starts a scan: a whole ScanSpec, or a source and a pattern (and the arguments of
        specs.scan_spec). Returns the Scan.

        session     the session that the scan belongs to, for retention=dict(orphan=...) when the
                    client is gone
        request_id  a retry with the same id and spec returns the first Scan
        """
        spec = _spec(source, pattern, fields)
        scan = self._call(self._scans.SubmitScan, scan_pb2.SubmitScanRequest(
            spec=spec, request_id=request_id, session_secret=sessions.secret_of(session))).scan
        errors.tell(scan.name, scan.warnings)
        return scan

    @explained(specs.scan_spec)
    def plan_scan(self, source: Union[scan_pb2.ScanSpec, specs.Source], pattern: Union[specs.Shape, scan_pb2.Pattern, None] = None, *, session: Optional[sessions.Session] = None, **fields: Any) -> scan_pb2.PlanScanResponse:
        """The needs and the answer of submit_scan, without starting
        anything."""
        spec = _spec(source, pattern, fields)
        return self._call(self._scans.PlanScan, scan_pb2.PlanScanRequest(spec=spec, session_secret=sessions.secret_of(session)))

    @explained(specs.scan_spec)
    def waveform(self, source: Union[scan_pb2.ScanSpec, specs.Source], pattern: Union[specs.Shape, scan_pb2.Pattern, None] = None, *, odd_volume: bool = False, plot: bool = False, **fields: Any) -> Waveform:
        """The scanner's waveforms of one volume, ready to be looped; np.save them, or plot=True for a PNG."""
        spec = _spec(source, pattern, fields)
        parts, first, total = [], 0, 1
        while first < total:
            part = self._call(self._scans.PlanWaveform, scan_pb2.PlanWaveformRequest(spec=spec, odd_volume=odd_volume, first_sample=first)).waveform
            parts.append(part)
            total = part.total_samples
            first += len(part.x)
        plot_png = self._call(self._scans.PlotWaveform, scan_pb2.PlotWaveformRequest(spec=spec, odd_volume=odd_volume)).png if plot else b""
        return Waveform(np.concatenate([p.x for p in parts]).astype(np.float32), np.concatenate([p.y for p in parts]).astype(np.float32),
                        np.concatenate([p.placement for p in parts]).astype(np.int32), parts[0].unit, parts[0].sample_rate_hz, plot_png)

    def scan(self, name: ScanName) -> Scan:
        errors.check_kind("name", name, "scans")
        return self._call(self._scans.GetScan, scan_pb2.GetScanRequest(name=name)).scan

    def scans(self, *, filter: str = "", order_by: str = "") -> List[Scan]:
        """All scans that the server knows (that match the filter: 'state = RUNNING'), newest
        first."""
        return pages(functools.partial(self._call, self._scans.ListScans),
                     scan_pb2.ListScansRequest(filter=filter, order_by=order_by), "scans")

    def watch(self, name: ScanName) -> Iterator[Scan]:
        """Yields the scan at once, at every change of state, and twice a second, until its
        final state."""
        errors.check_kind("name", name, "scans")
        yield from self._states_of_scan(name, None)

    def _states_of_scan(self, name: str, timeout: Optional[float]) -> Iterator[scan_pb2.Scan]:
        with errors.raising(self.address):
            for answer in self._scans.WatchScan(scan_pb2.WatchScanRequest(name=name), timeout=timeout):
                yield answer.scan

    def wait(self, name: ScanName, *, timeout: Optional[Seconds] = None, check: bool = True) -> Scan:
        """Waits for the end of a scan, at most `timeout` seconds (OctavoTimeout). Issues Scan.warnings as Python warnings (OctavoWarning),
        like submit_scan.

        check  raises OctavoError (DATA_LOSS, LOST) if the scan is LOST: the server died before its end. A scan that ended FAILED or
               CANCELLED is returned, because its volumes are there
        """
        errors.check_kind("name", name, "scans")
        most, last = limit("timeout", timeout), None
        with errors.waiting(most, lambda: self.scan(name)):
            for last in self._states_of_scan(name, most):
                errors.tell(name, last.warnings)
        ended = Scan(self, last)
        return ended._checked() if check else ended

    def update_scan(self, name: ScanName, processing: scan_pb2.Processing, fields: Union[str, Sequence[str]] = "*") -> Scan:
        """Changes the processing, from the next volume on.

        fields  names of the fields of Processing that change ("background", ["window", "levels"]); the others stay as they
                were requested. "*": all of them, `processing` replaces the earlier one as a whole
        """
        errors.check_kind("name", name, "scans")
        paths = [fields] if isinstance(fields, str) else list(fields)
        return self._call(self._scans.UpdateScan, message(scan_pb2.UpdateScanRequest, dict(
            name=name, processing=processing, update_mask=field_mask_pb2.FieldMask(paths=paths)))).scan

    def stop(self, name: ScanName) -> Scan:
        """Ends after the current volume."""
        errors.check_kind("name", name, "scans")
        return self._call(self._scans.StopScan, scan_pb2.StopScanRequest(name=name)).scan

    def cancel(self, name: ScanName) -> Scan:
        """Ends at once."""
        errors.check_kind("name", name, "scans")
        return self._call(self._scans.CancelScan, scan_pb2.CancelScanRequest(name=name)).scan

    def mark(self, name: ScanName, marker: str) -> Fields:
        """Puts a marker at the record that is being processed now."""
        errors.check_kind("name", name, "scans")
        return self._call(self._scans.MarkScan, scan_pb2.MarkScanRequest(name=name, marker=marker)).event

    # -- sources

    def push(self, scan: ScanName, blocks: push.Blocks, *, end: bool = True, reconnect: float = 30.0,
             progress: Optional[Callable] = None) -> push.PushResult:
        """Sends the records of a scan whose source is `push`, as fast as the server takes them, and
        waits until the server has them: the volumes are ready after client.wait(scan). Surplus
        records are left out, and too few records leave volumes with missing A-scans; both give an
        OctavoWarning, and so do samples beyond `adc_bits` and a first block of zeros. To detect
        surplus records, the call takes one block more from `blocks` than it sends. An array [B-scan, A-scan, sample] whose axes are not
        those of the scan's raster is an OctavoWarning, too.

        blocks     arrays [records, S] of the scan's raw_type, which continue the scan's records; or
                   (first_record, array) pairs: records in between are lost; or (first_record,
                   array, [(marker, record), ...]); or a function that maps the next record to any
                   of those, to continue a scan that another client began
        end        after the last block, tell the server that no more will come
        reconnect  seconds to try for a new connection when one breaks; records that the server did not take are sent again
        progress   called with each PushResponse
        """
        errors.check_kind("scan", scan, "scans")
        spec = self.scan(scan).message.spec
        with errors.raising(self.address):
            pushed = push.push(self._ingest.Push, scan, blocks, spec, end=end, reconnect=reconnect, progress=progress,
                               tell=functools.partial(errors.tell, scan))
        now = self.scan(scan)
        if now.reason_code in ("UNSPECIFIED", "COMPLETED", "SOURCE_ENDED"):  # a stopped scan did not want all
            errors.tell(scan, pushed.doubts)
            errors.told(scan, pushed.implied)
        errors.told(scan, [text for text in now.warnings if pushed.knows(text)])
        errors.tell(scan, now.warnings)
        return pushed.result

    def ring_ticket(self, scan: Optional[ScanName] = None, *, job: Optional[JobName] = None, slots: int = 0) -> ingest_pb2.OpenRingResponse:
        """A ticket for a process on the server's host to open the ring of a scan whose source is
        `ring`, or of a tomography job whose input is pushed projections: `socket_path` and `ticket`,
        for octavo.Ring or for octavo_ring_open of client/cpp/include/octavo/octavo_ring.h. Valid once.

        slots  frames that the ring of a job holds, 2 to 1024 (0: 8). The first ticket of a job makes
               its ring
        """
        if (scan is None) == (job is None):
            raise ValueError(f"scan is {short(scan)} and job is {short(job)}; expected one of them: ring_ticket('scans/...') or ring_ticket(job='jobs/...')")
        errors.check_kind("scan" if job is None else "job", scan if job is None else job, "scans" if job is None else "jobs",
                          more="open_ring(job=...) and ring_ticket(job=...) take it" if job is None else "open_ring(...) and ring_ticket(...) take it as their scan")
        return self._call(self._ingest.OpenRing, message(ingest_pb2.OpenRingRequest, dict(scan=scan or "", job=job or "", slots=slots)))

    def open_ring(self, scan: Optional[ScanName] = None, *, job: Optional[JobName] = None, slots: int = 0) -> ring.Ring:
        """Attaches this process to the ring of a scan or job, as its producer (see octavo.Ring and
        ring_ticket)."""
        ticket = self.ring_ticket(scan, job=job, slots=slots)
        return ring.Ring(ticket.socket_path, ticket.ticket)

    def push_projections(self, job: JobName, frames: Union[Iterable[push.ProjectionFrame], Callable[[list], Iterable[push.ProjectionFrame]]], *, end: bool = True, reconnect: float = 30.0,
                         progress: Optional[Callable] = None, ring: bool = False) -> push.ProjectionPushResult:
        """Sends the frames of a tomography scan to a job whose input is `push`, as fast as the
        server takes them, and waits until the server has them.

        frames     octavo.ProjectionFrame, in any order: octavo.projection_frames(projections,
                   angles_rad, flats, darks) makes them from arrays; in total as many as the job's
                   PushedProjections(frames=), projections, flat and dark fields together (surplus
                   frames are left out with an OctavoWarning; to detect them, the call takes one
                   frame more than it sends); or a function that maps the runs (first, count) of
                   frames that the job lacks to such frames, to continue a push that another client
                   began
        end        after the last frame, tell the server that no more will come: the job continues
                   with the frames that it has, once every pushing client has said so (any number of
                   clients may push the frames of one job at once, each its own ones)
        reconnect  seconds to try for a new connection when one breaks; frames that the server did not get are sent again
        progress   called with each PushProjectionsResponse
        ring       the frames go through memory that this process shares with the server, which must be
                   on this host (octavo.Ring): faster than the connection, which only tells how it goes.
                   One ring at a time feeds a job; other clients may push meanwhile

        If the job's raw_type is packed ("u12p", "u12_packed"), frames may be rows that are packed already, uint8 [row, bytes], and go as they are; uint16
        [row, column] are packed here (octavo.pack12). A count above 4095 raises ValueError.

        A job that has ended without them (cancelled, failed) is an OctavoWarning.
        """
        errors.check_kind("job", job, "jobs")
        raw_type = self.job(job).message.spec.tomography.push.raw_type
        with errors.raising(self.address):
            pushed = push.push_projections(self._ingest.PushProjections, job, frames, raw_type, end=end, reconnect=reconnect, progress=progress,
                                           tell=functools.partial(errors.tell, job),
                                           open_ring=functools.partial(self.open_ring, job=job) if ring else None)
        errors.tell(job, pushed.doubts)
        errors.told(job, pushed.implied)
        if pushed.result.done:
            now = self.job(job)
            if now.state in (job_pb2.JOB_STATE_CANCELLED, job_pb2.JOB_STATE_FAILED):
                errors.tell(job, [f"the job is {now.state}, so the frames that were pushed are not used" + (f": {now.reason}" if now.reason else "")])
        return pushed.result

    def cameras(self, *, filter: str = "", order_by: str = "") -> List[ingest_pb2.CameraInfo]:
        """Cameras that the server can reach now. Takes about a second."""
        return pages(functools.partial(self._call, self._ingest.ListCameras),
                     ingest_pb2.ListCamerasRequest(filter=filter, order_by=order_by), "cameras")

    # -- memory of the server in this process

    def map(self, name: Name, *, replica: int = 0, lease: Optional[sessions.Lease] = None,
            writable: bool = False) -> Union[np.ndarray, mapping.Mapped]:
        """Maps the memory of a held volume, or of a buffer's replica under an exclusive lease,
        without a copy; the server must be on this host and have a hand-over socket (handoff.unix).
        Host backend: a read-only NumPy array. GPU: an octavo.Mapped, for cupy.asarray and
        torch.from_dlpack (`writable` is the flag that they see: torch.as_tensor requires it). The
        memory is given back when the last array of it is gone, or by unmap(). Raises OctavoError,
        or octavo.HandoffError if the socket refuses."""
        errors.check_kind("name", name, ("volumes", "buffers"))
        mapped = None
        with self._handoff_lock:
            if name.startswith("volumes/") and self._handoff is not None and self._handoff.alive and replica == 0:
                try:
                    mapped = self._handoff.take(name, writable=writable)  # one message; the ticket was presented before
                except mapping.HandoffError as error:
                    if error.reason not in ("SERVER_GONE", "NO_GRANT"):
                        raise
            if mapped is None:
                ticket = self._call(self._exports.Export, export_pb2.ExportRequest(
                    name=name, replica=replica, lease_token=sessions.token_of(lease), lease_fence=lease.fence if lease else 0))
                if self._handoff is None or not self._handoff.alive or self._handoff.path != ticket.socket_path:
                    self._handoff = mapping.Connection(ticket.socket_path, self.timeout)
                mapped = self._handoff.present(ticket.ticket, writable=writable)
        return np.asarray(mapped) if mapped.device[0] == 1 else mapped

    def map_volumes(self, scan: ScanName, *, most: int = 4, every: bool = False, timeout: Optional[float] = None,
                    writable: bool = False) -> "_MappedVolumes":
        """Yields the volumes of a scan as they complete, each in the form of map(): `for array in
        client.map_volumes(scan)`, until the scan has ended. The server counts the reference before
        it announces a volume, so the volume cannot be removed in between; a volume of a LIVE scan
        is kept while it is mapped. See octavo.mapping.Volumes for most, every, timeout;
        mapping.owner(array) has index, skipped and sealed_ns."""
        errors.check_kind("scan", scan, "scans")
        ticket = self._call(self._exports.Export, export_pb2.ExportRequest(name=scan))
        return _MappedVolumes(ticket.socket_path, ticket.ticket, most=most, every=every, timeout=timeout, writable=writable)

    @staticmethod
    def unmap(mapped: Union[np.ndarray, mapping.Mapped]) -> None:
        """Gives back the result of map() now. It must not be used any more."""
        mapping.owner(mapped).release()

    # -- memory of this process in the server

    def import_buffer(self, memory: Union[np.ndarray, int], shape: Sequence[int] = (), dtype: Any = None, *, lanes: int = 1, device: Union[str, int] = 0,
                      byte_size: int = 0, labels: Optional[Dict[str, str]] = None, private: bool = False, session: Optional[sessions.Session] = None,
                      ttl: Optional[Seconds] = None, request_id: str = "") -> lending.ImportedBuffer:
        """Lends memory of this process to a buffer, without a copy; the server must be on this host and have a hand-over socket
        (handoff.unix). The server reads it where it lies and never writes it; the buffer ends with the returned object, with
        its close(), or with this process. After a change of the bytes, publish() tells the server. Raises OctavoError, or
        octavo.HandoffError if the socket refuses.

        memory     an array of octavo.shared_array is lent as it is; any other array is copied into such a one first (`array` of the result).
                   Or the descriptor of memory that this process has: a sealed memory file of os.memfd_create; of a GPU what
                   cuMemExportToShareableHandle gave
        shape, dtype  of the array in a descriptor's memory
        lanes      more than 1: the last axis holds the lanes of the elements
        device     that works on it: "devices/0" or 0
        byte_size  of a descriptor's memory; 0 = as the array needs (see ImportBufferRequest)
        session    the buffer ends with this session, too
        """
        array, descriptor, kind, extents = self._memory_to_lend(memory, shape, dtype, lanes)
        if array is not None and descriptor < 0:
            file = lending.file_of(array)
            assert file is not None
            descriptor, byte_size = file.descriptor, len(file)
        ticket = self._call(self._ingest.ImportBuffer, message(ingest_pb2.ImportBufferRequest, dict(
            type=message(types_pb2.ElementType, dict(dtype=buffers.scalar(kind), lanes=lanes)), shape=extents,
            device=buffers._device_names([device])[0], byte_size=byte_size, labels=labels or {}, is_private=private,
            session_secret=sessions.secret_of(session), ttl=ttl, request_id=request_id)))
        if array is None and ticket.kind == buffer_pb2.IMPORT_KIND_HOST_MEMFD:
            array = lending.view_of(descriptor, tuple(shape), lending.numpy_type(dtype), ticket.byte_size)
        lent = lending.ImportedBuffer(ticket.socket_path, ticket.ticket, descriptor, self.timeout, array)
        try:
            lent.buffer = self.buffers.get(lent.name)
        except BaseException:
            lent.close()
            raise
        return lent

    @staticmethod
    def _memory_to_lend(memory, shape, dtype, lanes: int) -> tuple:
        """The array (None: of a descriptor), the descriptor (-1: the array's own), the type, and the shape without lanes."""
        if isinstance(memory, (int, np.integer)):
            if dtype is None or len(shape) == 0:
                raise ValueError("memory is a descriptor, whose shape and dtype are needed: import_buffer(fd, (512, 1024), 'f32')")
            array, descriptor, kind, whole = None, int(memory), dtype, tuple(shape)
        else:
            if dtype is not None or len(shape) != 0:
                raise ValueError("memory is an array, which has a shape and a dtype; leave out shape and dtype")
            array = np.asarray(memory)
            if lending.file_of(array) is None:
                copy = lending.shared_array(array.shape, array.dtype.newbyteorder("<"))
                copy[...] = array
                array = copy
            descriptor, kind, whole = -1, array.dtype, array.shape
        if lanes > 1 and (not whole or whole[-1] != lanes):
            raise ValueError(f"the array has the shape {whole}; lanes={lanes} needs a last axis of {lanes} elements")
        return array, descriptor, kind, whole[:-1] if lanes > 1 else whole

    def exports(self, *, filter: str = "", order_by: str = "") -> List[export_pb2.ExportStatus]:
        """The memory that other processes (and this one) map (that matches the filter:
        'resource = "volumes/…"'), oldest first."""
        return pages(functools.partial(self._call, self._exports.ListExports),
                     export_pb2.ListExportsRequest(filter=filter, order_by=order_by), "exports")

    def revoke_export(self, name: Name) -> int:
        """Asks for exports/..., or all exports of volumes/... or buffers/..., back. Returns
        their number."""
        return self._call(self._exports.RevokeExport, export_pb2.RevokeExportRequest(name=name)).exports

    # -- sessions and leases

    def session(self, client: Optional[str] = None, *, secret: str = "") -> sessions.Session:
        """A session that keeps itself alive, or (secret) a session of this or another process,
        revived if it has expired. client: who it is, for people."""
        if client == "":
            raise ValueError("client is ''; expected a name for people, or none at all: client.session()")
        if secret:
            alive = self._call(self._sessions.KeepAlive, session_pb2.KeepAliveRequest(secret=secret)).session
            config = self._call(self._system.GetInfo, system_pb2.GetInfoRequest())
            return sessions.Session(self, alive.name, secret, config.heartbeat_interval.ToTimedelta().total_seconds(),
                                    config.session_expiry.ToTimedelta().total_seconds())
        opened = self._call(self._sessions.OpenSession, session_pb2.OpenSessionRequest(client=client or ""))
        return sessions.Session(self, opened.session.name, opened.secret, opened.heartbeat_interval.ToTimedelta().total_seconds(),
                                opened.expiry.ToTimedelta().total_seconds())

    def sessions(self, *, filter: str = "", order_by: str = "") -> List[session_pb2.ClientSession]:
        return pages(functools.partial(self._call, self._sessions.ListSessions),
                     session_pb2.ListSessionsRequest(filter=filter, order_by=order_by), "sessions")

    def lease(self, resource: Name, *, exclusive: bool = False, seconds: float = 0.0, wait: float = 0.0,
              session: Optional[sessions.Session] = None, holder: str = "") -> sessions.Lease:
        """A lease of volumes/... or buffers/...; end it with release(), or use it in a `with`
        block.

        seconds  time until it expires unless renewed; 0 = with `session`, which is then
                 required
        wait     seconds to wait in the queue; 0 = do not wait
        """
        errors.check_kind("resource", resource, ("volumes", "buffers"))
        return sessions.acquire(self, resource, exclusive, seconds, wait, session, holder)

    def leases(self, *, filter: str = "", order_by: str = "") -> List[session_pb2.LeaseGrant]:
        """All leases (those that match the filter: 'resource = "volumes/…"'), by resource."""
        return pages(functools.partial(self._call, self._sessions.ListLeases),
                     session_pb2.ListLeasesRequest(filter=filter, order_by=order_by), "leases")

    # -- grants

    def grant(self, object: Optional[Name], to: str, *, seconds: Optional[Seconds] = None) -> access_pb2.Grant:
        """Lets another principal change an object: a scan or a job with its volumes, a volume or a buffer; None = all that this caller makes,
        also later. What the other one makes of it is the other one's. A grant of the same object to the same one gets the new end.

        to       the name of the other one, as client.info().caller.name tells it there
        seconds  until it ends, 1 s to 365 days (or a timedelta); None = 30 days
        """
        if object == "":
            raise ValueError("object is ''; expected a scan, a job, a volume or a buffer, or None for all that this caller makes")
        if object is not None:
            errors.check_kind("object", object, ("scans", "jobs", "volumes", "buffers"))
        request = access_pb2.CreateGrantRequest(object=object or "", grantee=to)
        if seconds is not None:
            if not seconds:
                raise ValueError(f"seconds is {short(seconds)}; expected 1 s to 365 days, or None for 30 days")
            request.ttl.CopyFrom(duration("seconds", seconds))
        with errors.renaming({"ttl": "seconds", "grantee": "to"}):
            return self._call(self._access.CreateGrant, request).grant

    def grants(self, *, filter: str = "", order_by: str = "") -> List[access_pb2.Grant]:
        """All grants that have not ended (those that match the filter: 'grantee = "bob"'), oldest first."""
        return pages(functools.partial(self._call, self._access.ListGrants), access_pb2.ListGrantsRequest(filter=filter, order_by=order_by), "grants")

    def revoke_grant(self, name: Union[str, access_pb2.Grant]) -> access_pb2.Grant:
        """Takes a grant (grants/..., or what grant() returned) back, or gives up one that this caller has. Returns it as it was."""
        if isinstance(name, access_pb2.Grant):
            name = name.name
        return self._call(self._access.RevokeGrant, access_pb2.RevokeGrantRequest(name=name)).grant

    # -- live products

    @explained(stream_pb2.SubscribeRequest)
    def subscribe(self, parent: Name = "", products: Union[str, Sequence[str]] = ("mip",), *, axis: Union[str, None] = None, index: Optional[int] = None,
                  delivery: Union[str, int] = "", encoding: Union[str, int] = "raw", image: Optional[dict] = None,
                  slab: Optional[Tuple[int, int]] = None, from_sequence: Optional[int] = None, timeout: Optional[float] = None,
                  same_host: bool = False, volumes_by_read: Optional[bool] = None, **fields: Any) -> Iterator[frames.Frame]:
        """Yields the frames of a scan or job (`parent`; "" = of all) as they arrive, until it ends
        (all: for ever) or the generator is closed, at most for `timeout` seconds (OctavoTimeout). For one that has
        ended: the newest kept picture
        (from_sequence=0: all kept frames, also volumes and events), B-scans of its held volumes;
        OctavoError (NOTHING_KEPT) if no frame would come.

        products  "mip", "aip", "bscan", "volume", "event", "angiogram", "spectrum", "ascan";  axis  "x", "y", "z" (default: B-scans across y, of
                  tomography jobs slices across z; projections over z), never a number;  index  of the B-scan along the axis, from 0 on
                  (default: the middle one), of "spectrum" and "ascan" the column x (default: any);  delivery  "latest", "drop_oldest",
                  "lossless" (default: pictures, spectra and A-scans "latest", volumes and events "lossless", also together)
        slab      "mip" of scans: only the depths (begin, end) of each complete volume, end excluded: an en face slab
        spectrum  form of "spectrum": "raw" (default: as the source gave it) or "corrected" (as the transform gets it);
                  frame.record has minimum, maximum and the saturated samples
        encoding  "raw" (arrays), "png", "jpeg", "webp": pictures, made as `image` says:
                  dict(colour_map="viridis", percentiles=(1, 99.8) or levels=(lo, hi), in value units, or display_levels=True, max_width=, max_height=,
                  square_pixels=True, depth_down=True, scale_bar=True, colour_bar=True, quality=85); with "raw", sizes and depth_down only.
                  Without depth_down the depth of B-scans runs to the right, [x, z] as stored; with it downwards, as in the pictures of the
                  command line
        same_host True: the frames come through memory that a server on this host shares with this program, which is sooner than
                  gRPC (a projection on an H200 in 0.6 ms instead of 0.95). Arrays are read-only views of it; a copy is the caller's. OctavoError where that cannot be (EXPORT_REMOTE:
                  the server is on another host; EXPORT_DISABLED: it has no handoff.unix)
        volumes_by_read  "volume": the client reads the data of large volumes over several connections, which is faster than the one stream.
                  None (default): so, but not with same_host. False: all through the stream. A volume that was discarded, committed or
                  overwritten before its turn counts in the next frame's dropped_before; where nothing may be lost ("lossless", the default)
                  it ends the subscription with an OctavoError (VOLUME_GONE, VOLUME_STATE; numbers["resume_from"])
        """
        errors.check_kind("parent", parent, ("scans", "jobs"),
                          f"It is of client.volume({parent!r}).parent; client.read takes the volume itself" if parent.startswith("volumes/") else "")
        frames.check_axis(axis)
        request = message(stream_pb2.SubscribeRequest, dict(
            parent=parent, products=[products] if isinstance(products, (str, int)) else products, axis=axis or None, index=index,
            delivery=delivery or None, encoding=encoding, slab=frames.slab_of(slab), from_sequence=from_sequence, image=image if image is None else frames.image_of(image), **fields))
        frames.check_index(index, request.products)
        if not isinstance(same_host, bool):
            raise ValueError(f"same_host is {short(same_host)}; expected True or False")
        if volumes_by_read is None:
            volumes_by_read = not same_host and stream_pb2.PRODUCT_VOLUME in request.products
        elif not isinstance(volumes_by_read, bool):
            raise ValueError(f"volumes_by_read is {short(volumes_by_read)}; expected True or False, or None: as the client can")
        request.volumes_by_read = volumes_by_read
        return self._frames(request, limit("timeout", timeout), same_host)

    def _frames(self, request: stream_pb2.SubscribeRequest, timeout: Optional[float], same_host: bool) -> Iterator[frames.Frame]:
        count = 0
        came, over = threading.Event(), threading.Event()
        if request.parent:
            threading.Thread(target=self._tell_what_it_waits_for, args=(request.parent, came, over), name="octavo-waits", daemon=True).start()
        close = None
        try:
            with errors.raising(self.address):
                if same_host:
                    ticket = self._call(self._streams.OpenFrames, stream_pb2.OpenFramesRequest(subscription=request))
                    arrivals = frame_feed.FrameFeed(ticket.socket_path, ticket.ticket, timeout)
                    close = arrivals.close
                else:
                    call = self._streams.Subscribe(request, timeout=timeout)
                    arrivals, close = frames.of_messages(call), call.cancel
                if request.volumes_by_read:
                    arrivals = announced.Announced(arrivals, request, self._reader.read, timeout)
                    close = _both(close, arrivals.close)
                for head, data in arrivals:
                    came.set()
                    count += 1
                    frame = frames.frame_of(head, data)
                    del data  # the frame alone keeps it
                    if frame.data:
                        errors.tell(frame.parent, frames.left_out(request.image, frame.shape, frame.scale_bar_um, frame.colour_bar_columns))
                    yield frame
                    del frame
        except errors.OctavoError as error:
            if timeout is None or error.code != grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            raise errors.OctavoTimeout(f"timeout is {timeout:g} s, which are over after {count} frames of {self._now(request.parent)}") from None
        finally:
            over.set()
            came.set()
            if close is not None:
                close()

    def _now(self, parent: str) -> str:
        """A scan or job with its state, for people; "" stands for all."""
        return repr(self.job(parent) if parent.startswith("jobs/") else self.scan(parent)) if parent else "all scans and jobs"

    def _tell_what_it_waits_for(self, name: str, came: threading.Event, over: threading.Event) -> None:
        """Issues an OctavoWarning if a subscriber has received nothing for
        QUIET_SECONDS."""
        while not came.wait(QUIET_SECONDS):
            try:
                reason = self.waits_for(name)
            except Exception:  # noqa: BLE001 — the subscription itself says what is wrong
                return
            if reason and not over.is_set():
                errors.tell(name, [f"nothing comes yet: it waits for {reason}"])

    def waits_for(self, name: Name) -> str:
        """The reason why no frames come from a scan or job yet, for people; "" = none."""
        if not name.startswith("jobs/"):
            return self.scan(name).waits_for
        job = self.job(name)
        if job.state == "QUEUED":
            return f"its turn ({job.reason})"
        return f"frames that are pushed: {job.step} of {job.steps} are in" if job.state == "RUNNING" and job.stage == "PROJECTIONS" else ""

    # -- the server

    def info(self) -> system_pb2.GetInfoResponse:
        return self._call(self._system.GetInfo, system_pb2.GetInfoRequest())

    def devices(self, *, filter: str = "", order_by: str = "") -> List[system_pb2.DeviceStatus]:
        return pages(functools.partial(self._call, self._system.ListDevices),
                     system_pb2.ListDevicesRequest(filter=filter, order_by=order_by), "devices")

    def memory(self) -> system_pb2.GetMemoryResponse:
        """The holders of device memory, and the spilled volumes."""
        return self._call(self._system.GetMemory, system_pb2.GetMemoryRequest())

    def probe_storage(self, root: str, *, device: str = "", size: int = 0) -> system_pb2.StorageBackend:
        """Measures how files below a storage root come fastest into a device: through the page cache, by O_DIRECT or by
        cuFile. The server reads that way from then on. Waits until it is measured.

        root    a path of info().storage
        device  "devices/<n>"; empty = the first
        size    bytes to read, 16 MiB to 16 GiB; 0 = 256 MiB
        """
        request = system_pb2.ProbeStorageRequest(root=root, device=device, bytes=size)
        return self._call(self._system.ProbeStorage, request, extra=600).backend  # a slow drive takes long

    def health(self) -> bool:
        """Whether the server reports that it is serving (grpc.health.v1)."""
        check = self.channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=lambda _: b"", response_deserializer=bytes)
        with errors.raising(self.address):
            return check(None, timeout=self.timeout) == b"\x08\x01"


def _spec(source, pattern, fields: dict) -> scan_pb2.ScanSpec:
    if not isinstance(source, scan_pb2.ScanSpec):
        return specs.scan_spec(source, pattern, **fields)
    if pattern is not None or fields:
        raise ValueError(f"source is a whole ScanSpec, which says everything; leave out {', '.join(['pattern'] * (pattern is not None) + [*fields])}")
    return source


def _both(*calls: Callable[[], Any]) -> Callable[[], None]:
    def call() -> None:
        for one in calls:
            one()
    return call


class _MappedVolumes(mapping.Volumes):
    """Returns arrays for host memory."""

    def __next__(self):
        mapped = super().__next__()
        return np.asarray(mapped) if mapped.device[0] == 1 else mapped
