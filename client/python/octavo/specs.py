"""Short ways to say what a scan is. Each returns a message of octavo.v1; every field of the protos can be given by name."""

from __future__ import annotations

from typing import Optional, Sequence, Union

import numpy as np

from octavo import buffers
from octavo.v1 import job_pb2, scan_pb2, tomography_pb2, types_pb2

Source = Union[scan_pb2.Simulated, scan_pb2.ReplayFile, scan_pb2.Push, scan_pb2.Camera, scan_pb2.Ring]
SHAPES = {"raster": scan_pb2.Raster, "repeated_raster": scan_pb2.RepeatedRaster, "radial": scan_pb2.Radial,
          "repeated_radial": scan_pb2.RepeatedRadial, "spiral": scan_pb2.Spiral, "lissajous": scan_pb2.Lissajous, "freeform": scan_pb2.Freeform}
Shape = Union[scan_pb2.Raster, scan_pb2.RepeatedRaster, scan_pb2.Radial, scan_pb2.RepeatedRadial, scan_pb2.Spiral, scan_pb2.Lissajous,
              scan_pb2.Freeform]
Work = Union[job_pb2.JobSpec, job_pb2.ReprocessJob, job_pb2.DispersionAutofocusJob, job_pb2.KCalibrationJob, tomography_pb2.TomographyJob]
WORKS = {job_pb2.ReprocessJob: "reprocess", job_pb2.DispersionAutofocusJob: "dispersion_autofocus", job_pb2.KCalibrationJob: "k_calibration",
         tomography_pb2.TomographyJob: "tomography"}
FLYBACKS = {"fixed": scan_pb2.FIXED, "fixed_linear": scan_pb2.FIXED_LINEAR, "minimum_time": scan_pb2.MINIMUM_TIME}
DTYPES = {"u8": types_pb2.U8, "i8": types_pb2.I8, "u16": types_pb2.U16, "f16": types_pb2.F16, "f32": types_pb2.F32, "c64": types_pb2.C64}
RAW_TYPES = {"u8": scan_pb2.RAW_U8, "u16": scan_pb2.RAW_U16, "i16": scan_pb2.RAW_I16, "f32": scan_pb2.RAW_F32, "u12p": scan_pb2.RAW_U12P,
             "u12_packed": scan_pb2.RAW_U12_PACKED}
VALUES = {"db": scan_pb2.DB, "magnitude": scan_pb2.MAGNITUDE, "power": scan_pb2.POWER, "real": scan_pb2.REAL, "complex": scan_pb2.COMPLEX}
FIXED_PATTERN_NOISE = {"keep": scan_pb2.Processing.KEEP, "mean": scan_pb2.Processing.MEAN, "quiet_segment": scan_pb2.Processing.QUIET_SEGMENT}
WINDOWS = {"rect": scan_pb2.RECT, "hann": scan_pb2.HANN, "hamming": scan_pb2.HAMMING, "gauss": scan_pb2.GAUSS,
           "blackman": scan_pb2.BLACKMAN, "flat_top": scan_pb2.FLAT_TOP}
INTERPOLATIONS = {"linear": scan_pb2.LINEAR, "cubic": scan_pb2.CUBIC, "lanczos": scan_pb2.LANCZOS}
INSERTS = {"append": scan_pb2.Queue.APPEND, "interrupt_at_volume": scan_pb2.Queue.INTERRUPT_AT_VOLUME,
           "interrupt_now": scan_pb2.Queue.INTERRUPT_NOW}
MARKER_PLACES = {"volume": scan_pb2.Marker.VOLUME_START, "bscan": scan_pb2.Marker.BSCAN_START, "record": scan_pb2.Marker.RECORD}


def simulated(seed: int = 0, *, fast: bool = False, layers: Sequence[dict] = (), **fields) -> scan_pb2.Simulated:
    """A simulated spectrometer. fast: as fast as possible. layers: dicts of SimulatedLayer fields (depth_um, ...)."""
    return scan_pb2.Simulated(seed=seed, as_fast_as_possible=fast, layers=[scan_pb2.SimulatedLayer(**layer) for layer in layers], **fields)


def replay(path: str, *, loops: int = 1, rate_hz: float = 0.0) -> scan_pb2.ReplayFile:
    """Raw records from a file under one of the server's replay roots."""
    return scan_pb2.ReplayFile(path=path, loops=loops, rate_hz=rate_hz)


def push(*, credit_blocks: int = 0, idle_timeout_s: float = 0.0) -> scan_pb2.Push:
    """Records that Client.push sends. The scan needs `samples`, and `raw_type` unless that is u16."""
    return scan_pb2.Push(credit_blocks=credit_blocks, idle_timeout_s=idle_timeout_s)


def ring(*, slots: int = 0, idle_timeout_s: float = 0.0, restart_grace_s: float = 0.0, producer_waits: bool = False) -> scan_pb2.Ring:
    """Records that a process on the server's host writes into shared memory (Client.open_ring, client/cpp/octavo_ring.h). The scan needs
    `samples`, and `raw_type` unless that is u16. producer_waits: it waits while the ring is full, instead of losing records."""
    return scan_pb2.Ring(slots=slots, idle_timeout_s=idle_timeout_s, restart_grace_s=restart_grace_s, producer_waits=producer_waits)


def camera(id: str = "", *, width: int = 0, height: int = 0, pixel_format: str = "", **fields) -> scan_pb2.Camera:
    """A GenICam camera: each line of an image is a record. What is not given stays as the camera has it."""
    return scan_pb2.Camera(id=id, width=width, height=height, pixel_format=pixel_format, **fields)


def marker(name: str, at: str, *, every: int = 0, offset: int = 0) -> scan_pb2.Marker:
    """An event at each `every`-th "volume", "bscan" or "record" from `offset` on (ScanSpec.markers)."""
    return scan_pb2.Marker(name=name, at=MARKER_PLACES[at], every=every, offset=offset)


def raster(ascans: int, bscans: int, volumes: int = 0, **fields) -> scan_pb2.Raster:
    """ascans along x, bscans along y; volumes = 0 runs until stopped."""
    return scan_pb2.Raster(ascans_per_bscan=ascans, bscans_per_volume=bscans, volumes=volumes, **fields)


def _repeat(repeats: int, period: int, order: bool, average: bool) -> scan_pb2.Repeat:
    strategy = scan_pb2.Repeat.AVERAGE if average else scan_pb2.Repeat.ORDER if order else scan_pb2.Repeat.PACK
    return scan_pb2.Repeat(count=repeats, period=period, strategy=strategy)


def repeated_raster(ascans: int, bscans: int, volumes: int = 0, *, repeats: int = 3, period: int = 2, order: bool = False, average: bool = False,
                    **fields) -> scan_pb2.RepeatedRaster:
    """A raster that scans groups of `period` B-scans `repeats` times. Stored [B-scan, repeat] (order: as scanned;
    average: the mean power of the repeats)."""
    return scan_pb2.RepeatedRaster(raster=raster(ascans, bscans, volumes, **fields), repeat=_repeat(repeats, period, order, average))


def radial(ascans: int, bscans: int, volumes: int = 0, *, radius: Sequence[float] = (0.0, 0.0), angle: Sequence[float] = (0.0, 0.0),
           **fields) -> scan_pb2.Radial:
    """Straight segments in all directions. radius: (begin, end) in mm, negative on the other side; angle: (begin, end) in degrees."""
    return scan_pb2.Radial(ascans_per_bscan=ascans, bscans_per_volume=bscans, volumes=volumes, radius_begin_mm=radius[0],
                           radius_end_mm=radius[1], angle_begin_deg=angle[0], angle_end_deg=angle[1], **fields)


def repeated_radial(ascans: int, bscans: int, volumes: int = 0, *, repeats: int = 3, period: int = 2, order: bool = False, average: bool = False,
                    **fields) -> scan_pb2.RepeatedRadial:
    """A radial pattern that scans groups of `period` segments `repeats` times."""
    return scan_pb2.RepeatedRadial(radial=radial(ascans, bscans, volumes, **fields), repeat=_repeat(repeats, period, order, average))


def spiral(ascans_per_ring: int, rings: int, volumes: int = 0, *, radius: Sequence[float] = (0.0, 0.0), linear: bool = False,
           **fields) -> scan_pb2.Spiral:
    """A spiral from radius[0] to radius[1] mm; linear: equal steps along the path instead of equal angles."""
    return scan_pb2.Spiral(ascans_per_ring=ascans_per_ring, rings=rings, volumes=volumes, inner_radius_mm=radius[0], outer_radius_mm=radius[1],
                           sampling=scan_pb2.Spiral.LINEAR if linear else scan_pb2.Spiral.ANGULAR, **fields)


def lissajous(ascans_per_row: int, rows: int, volumes: int = 0, *, extent: Sequence[float] = (0.0, 0.0), cycles: Sequence[int] = (0, 0),
              phase: Sequence[float] = (0.0, 0.0), **fields) -> scan_pb2.Lissajous:
    """x and y as sines of cycles[0] and cycles[1] periods over ascans_per_row * rows records; extent in mm, phase in degrees."""
    return scan_pb2.Lissajous(ascans_per_row=ascans_per_row, rows=rows, volumes=volumes, extent_x_mm=extent[0], extent_y_mm=extent[1],
                              cycles_x=cycles[0], cycles_y=cycles[1], phase_x_deg=phase[0], phase_y_deg=phase[1], **fields)


def freeform(points: np.ndarray, volumes: int = 0, **fields) -> scan_pb2.Freeform:
    """Any points in mm: [segment, A-scan, 2], or [A-scan, 2] for one segment; the last axis is x, y."""
    points = np.asarray(points, np.float64)
    if points.ndim == 2:
        points = points[None]
    if points.ndim != 3 or points.shape[2] != 2:
        raise ValueError(f"points has shape {points.shape}; needs [segment, A-scan, 2]")
    return scan_pb2.Freeform(x_mm=points[..., 0].ravel().tolist(), y_mm=points[..., 1].ravel().tolist(), ascans_per_bscan=points.shape[1],
                             volumes=volumes, **fields)


def angular_warp(factor: float = 0.0) -> scan_pb2.AngularWarp:
    """Position = factor (mm per degree) x scanner angle."""
    return scan_pb2.AngularWarp(factor=factor)


def telecentric_warp(galvo_lens_spacing_mm: float = 0.0, scale_rad_per_deg: float = 0.0) -> scan_pb2.TelecentricWarp:
    """Position = galvo_lens_spacing tan(scale x scanner angle)."""
    return scan_pb2.TelecentricWarp(galvo_lens_spacing_mm=galvo_lens_spacing_mm, scale_rad_per_deg=scale_rad_per_deg)


def scanner(velocity: float, acceleration: float, positions: Sequence[float] = (0.0, 0.0), y: Optional[dict] = None) -> scan_pb2.Scanner:
    """Limits of the scanner, in its units and seconds, for both axes; y: fields of Scanner.Axis where the y axis differs."""
    axis = scan_pb2.Scanner.Axis(velocity=velocity, acceleration=acceleration, position_min=positions[0], position_max=positions[1])
    limits = scan_pb2.Scanner(x=axis, y=axis)
    for name, value in (y or {}).items():
        setattr(limits.y, name, value)
    return limits


def pattern(shape: Shape, *, offset: Sequence[float] = (0.0, 0.0), rotation: float = 0.0,
            warp: Union[scan_pb2.AngularWarp, scan_pb2.TelecentricWarp, None] = None, flyback: Optional[str] = None,
            scanner: Optional[scan_pb2.Scanner] = None) -> scan_pb2.Pattern:
    """A pattern with what all kinds have in common: offset in mm, rotation in degrees, warp, limits of the scanner, and

    flyback  "fixed", "fixed_linear" (as many records as flyback_records of the shape), "minimum_time"
    """
    message = scan_pb2.Pattern(offset_x_mm=offset[0], offset_y_mm=offset[1], rotation_deg=rotation)
    name = next(field for field, kind in SHAPES.items() if isinstance(shape, kind))
    getattr(message, name).CopyFrom(shape)
    if isinstance(warp, scan_pb2.AngularWarp):
        message.angular_warp.CopyFrom(warp)
    elif warp is not None:
        message.telecentric_warp.CopyFrom(warp)
    if flyback:
        message.flyback = FLYBACKS[flyback]
    if scanner is not None:
        message.scanner.CopyFrom(scanner)
    return message


def processing(*, background: Union[str, np.ndarray, None] = None, k: Union[str, np.ndarray, None] = None,
               wavelength_nm: Optional[np.ndarray] = None, polynomial: Optional[Sequence[float]] = None,
               interpolation: Optional[str] = None, window: Union[str, np.ndarray, None] = None, a2: float = 0.0, a3: float = 0.0,
               phase: Optional[np.ndarray] = None, value: Optional[str] = None, levels: Optional[Sequence[float]] = None,
               dtype: Optional[str] = None, fixed_pattern_noise: Optional[str] = None, group_records: int = 0, window_records: int = 0,
               **fields) -> scan_pb2.Processing:
    """The spectral chain.

    background     "none", "rolling", "bscan" or a spectrum [S]; of a rolling one group_records (0: a B-scan with its flyback) have
                   the mean of the last window_records (0: the group)
    k              "none", "source" or positions r[N]; or wavelength_nm [S]; or polynomial coefficients
    interpolation  "linear", "cubic", "lanczos";  window  a name or values [N];  a2, a3, phase  dispersion
    value          "db", "magnitude", "power", "real", "complex";  levels  (lo, hi) in value units
    dtype          "u8", "i8", "u16", "f16", "f32"; "c64" for complex values. Default: "u16" over all that the chain can give for dB of integer
                   samples, else "f32"
    fixed_pattern_noise  "keep", "mean" or "quiet_segment" of each B-scan subtracted
    """
    message = scan_pb2.Processing(**fields)
    mode = scan_pb2.Processing.Background
    if isinstance(background, str):
        message.background.mode = {"none": mode.NONE, "rolling": mode.ROLLING, "bscan": mode.BSCAN}[background]
    elif background is not None:
        message.background.mode = mode.STATIC
        message.background.spectrum.extend(np.asarray(background, np.float32).tolist())
    if group_records:
        message.background.group_records = group_records
    if window_records:
        message.background.window_records = window_records
    lin = message.k_linearisation
    if wavelength_nm is not None:
        lin.wavelength_nm.values.extend(np.asarray(wavelength_nm, np.float64).tolist())
    elif polynomial is not None:
        lin.polynomial.values.extend([float(c) for c in polynomial])
    elif isinstance(k, str):
        setattr(lin, {"none": "none", "source": "from_source"}[k], True)
    elif k is not None:
        lin.index_f64.values.extend(np.asarray(k, np.float64).tolist())
    if interpolation:
        lin.interpolation = INTERPOLATIONS[interpolation]
    if isinstance(window, str):
        message.window = WINDOWS[window]
    elif window is not None:
        message.window_values.extend(np.asarray(window, np.float32).tolist())
    if a2 or a3:
        message.dispersion.a2, message.dispersion.a3 = a2, a3
    if phase is not None:
        message.dispersion.phase.extend(np.asarray(phase, np.float32).tolist())
    if value:
        message.value = VALUES[value]
    if levels is not None:
        message.levels.lo, message.levels.hi = levels
    if dtype:
        message.dtype = DTYPES[dtype]
    if fixed_pattern_noise:
        message.fixed_pattern_noise = FIXED_PATTERN_NOISE[fixed_pattern_noise]
    return message


_as_pattern = pattern


def scan_spec(source: Source, pattern: Union[Shape, scan_pb2.Pattern], *, processing: Optional[scan_pb2.Processing] = None, samples: int = 0,
              raw_type: Optional[str] = None, adc_bits: int = 0, rate_hz: float = 0.0, channels: int = 0, channel: int = 0, record_average: int = 0,
              acquisition: Optional[dict] = None, retention: Optional[dict] = None, products: Optional[dict] = None, queue: str = "",
              insert: str = "append", chains: Optional[dict] = None, **fields) -> scan_pb2.ScanSpec:
    """Puts a ScanSpec together. raw_type: "u8", "u16", "i16", "f32", "u12p", "u12_packed"; adc_bits: bits of a sample that
    carry numbers, if not all; record_average: records of the source in one of the pattern. acquisition, retention, products: fields of those messages; the rest: fields of ScanSpec.

    chains  {name: [operation, ...]}: made of every volume as it completes, see Client.chain and buffers.array_operation
    queue   scans of one queue acquire one after another;  insert  "append", "interrupt_at_volume", "interrupt_now"
    """
    spec = scan_pb2.ScanSpec(**fields)
    kinds = {scan_pb2.Simulated: "simulated", scan_pb2.ReplayFile: "replay", scan_pb2.Push: "push", scan_pb2.Camera: "camera",
             scan_pb2.Ring: "ring"}
    getattr(spec, kinds[type(source)]).CopyFrom(source)
    if queue:
        spec.queue.name, spec.queue.insert = queue, INSERTS[insert]
    spec.pattern.CopyFrom(pattern if isinstance(pattern, scan_pb2.Pattern) else _as_pattern(pattern))
    spec.acquisition.CopyFrom(scan_pb2.Acquisition(**{"samples_per_record": samples, "record_rate_hz": rate_hz, "channels": channels,
                                                      "channel": channel, "record_average": record_average, "adc_bits": adc_bits, **(acquisition or {})}))
    if raw_type:
        spec.acquisition.raw_type = RAW_TYPES[raw_type]
    if processing is not None:
        spec.processing.CopyFrom(processing)
    for name, operations in (chains or {}).items():
        spec.chains.add(name=name, operations=[buffers.array_operation(o) for o in operations])
    if retention:
        spec.retention.CopyFrom(scan_pb2.Retention(**retention))
    if products:
        spec.products.CopyFrom(scan_pb2.Products(**products))
    return spec


def reprocess(volume: str, processing: Optional[scan_pb2.Processing] = None) -> job_pb2.ReprocessJob:
    """The spectral chain again over held raw spectra (retention=dict(hold_raw=True)), for Client.submit_job."""
    return job_pb2.ReprocessJob(volume=volume, processing=processing)


def dispersion_autofocus(volume: str, processing: Optional[scan_pb2.Processing] = None, *, a2: Sequence[float] = (0.0, 0.0),
                         a3: Sequence[float] = (0.0, 0.0), **fields) -> job_pb2.DispersionAutofocusJob:
    """Looks for the a2 and a3 (ranges in rad per sample^2 and ^3; (0, 0) = chosen) that make held raw spectra sharpest: Job.dispersion.

    fields  only_a2, ascans, first_bin, bins, reprocess (also make the volume)
    """
    return job_pb2.DispersionAutofocusJob(volume=volume, processing=processing, a2_begin=a2[0], a2_end=a2[1], a3_begin=a3[0], a3_end=a3[1], **fields)


def k_calibration(volume: str, processing: Optional[scan_pb2.Processing] = None, **fields) -> job_pb2.KCalibrationJob:
    """Finds the k-linearisation from raw spectra of a mirror: Job.k_linearisation. Of processing only the background is used.

    fields  first_record, records, least_bin, polynomial_degree, edge
    """
    return job_pb2.KCalibrationJob(volume=volume, processing=processing, **fields)


def job_spec(work: Work, **fields) -> job_pb2.JobSpec:
    """Puts a JobSpec together. fields: title, labels, priority, device, group, request_id."""
    if isinstance(work, job_pb2.JobSpec):
        spec = job_pb2.JobSpec()
        spec.CopyFrom(work)
        spec.MergeFrom(job_pb2.JobSpec(**fields))
        return spec
    return job_pb2.JobSpec(**{WORKS[type(work)]: work}, **fields)
