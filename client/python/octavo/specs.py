"""Short ways to describe a scan. Each function returns a message of octavo.v1; every field of the
protos can be given by name, enums as text. A value that is not allowed raises ValueError (an
unknown argument: TypeError), which names it and lists what is allowed."""

from __future__ import annotations

import numbers
import os
from typing import Any, Mapping, Optional, Sequence, Union

import numpy as np

from octavo import arguments, buffers, errors
from octavo.arguments import Seconds, array, builder, message, several, short
from octavo.devices import HOST_DEVICE
from octavo.names import Names, Types
from octavo.v1 import ingest_pb2, job_pb2, projection_pb2, scan_pb2, tomography_pb2, types_pb2

Source = Union[scan_pb2.Simulated, scan_pb2.ReplayFile, scan_pb2.Push, scan_pb2.Camera, scan_pb2.Ring]
SOURCES = {"simulated": scan_pb2.Simulated, "replay": scan_pb2.ReplayFile, "push": scan_pb2.Push, "camera": scan_pb2.Camera, "ring": scan_pb2.Ring}
SHAPES = {"raster": scan_pb2.Raster, "repeated_raster": scan_pb2.RepeatedRaster, "radial": scan_pb2.Radial,
          "repeated_radial": scan_pb2.RepeatedRadial, "spiral": scan_pb2.Spiral, "lissajous": scan_pb2.Lissajous, "freeform": scan_pb2.Freeform}
Shape = Union[scan_pb2.Raster, scan_pb2.RepeatedRaster, scan_pb2.Radial, scan_pb2.RepeatedRadial, scan_pb2.Spiral, scan_pb2.Lissajous,
              scan_pb2.Freeform]
Work = Union[job_pb2.JobSpec, job_pb2.ReprocessJob, job_pb2.DispersionAutofocusJob, job_pb2.KCalibrationJob, tomography_pb2.TomographyJob,
             ingest_pb2.ImportJob, projection_pb2.ProjectionJob]
WORKS = {"reprocess": job_pb2.ReprocessJob, "dispersion_autofocus": job_pb2.DispersionAutofocusJob, "k_calibration": job_pb2.KCalibrationJob,
         "tomography": tomography_pb2.TomographyJob, "volume_import": ingest_pb2.ImportJob, "projection": projection_pb2.ProjectionJob}
FLYBACKS = Names({"fixed": scan_pb2.FLYBACK_POLICY_FIXED, "fixed_linear": scan_pb2.FLYBACK_POLICY_FIXED_LINEAR, "minimum_time": scan_pb2.FLYBACK_POLICY_MINIMUM_TIME}, of=scan_pb2.FlybackPolicy)
DTYPES = Types({"u8": types_pb2.DTYPE_U8, "i8": types_pb2.DTYPE_I8, "u16": types_pb2.DTYPE_U16, "f16": types_pb2.DTYPE_F16, "f32": types_pb2.DTYPE_F32, "c64": types_pb2.DTYPE_C64})
VOLUME_DTYPES = Types({**DTYPES, "i16": types_pb2.DTYPE_I16, "f64": types_pb2.DTYPE_F64})
NUMBER_DTYPES = Types({**VOLUME_DTYPES, "u32": types_pb2.DTYPE_U32, "i32": types_pb2.DTYPE_I32, "u64": types_pb2.DTYPE_U64, "i64": types_pb2.DTYPE_I64,
                       "c128": types_pb2.DTYPE_C128})
ARRAY_DTYPES = Types({**VOLUME_DTYPES, "u32": types_pb2.DTYPE_U32, "i32": types_pb2.DTYPE_I32, "u64": types_pb2.DTYPE_U64, "i64": types_pb2.DTYPE_I64})
INPUT_FORMATS = Names({"npy": ingest_pb2.INPUT_FORMAT_NPY, "raw": ingest_pb2.INPUT_FORMAT_RAW, "tiff": ingest_pb2.INPUT_FORMAT_TIFF,
                       "tiff-stack": ingest_pb2.INPUT_FORMAT_TIFF_STACK, "nifti": ingest_pb2.INPUT_FORMAT_NIFTI, "nrrd": ingest_pb2.INPUT_FORMAT_NRRD,
                       "hdf5": ingest_pb2.INPUT_FORMAT_HDF5, "mat": ingest_pb2.INPUT_FORMAT_MATLAB, "linumpy": ingest_pb2.INPUT_FORMAT_LINUMPY,
                       "zarr": ingest_pb2.INPUT_FORMAT_ZARR},
                      aliases={"numpy": "npy", "bin": "raw", "tif": "tiff", "ome-tiff": "tiff", "imagej": "tiff", "nii": "nifti", "h5": "hdf5", "matlab": "mat",
                               "ome-zarr": "zarr"}, of=ingest_pb2.InputFormat)
RAW_TYPES = Types({"u8": scan_pb2.RAW_TYPE_U8, "u16": scan_pb2.RAW_TYPE_U16, "i16": scan_pb2.RAW_TYPE_I16, "f32": scan_pb2.RAW_TYPE_F32, "u12p": scan_pb2.RAW_TYPE_U12P,
                   "u12_packed": scan_pb2.RAW_TYPE_U12_PACKED},
                  aliases={"mono8": "u8", "mono16": "u16", "mono12p": "u12p", "mono12packed": "u12_packed"}, of=scan_pb2.RawType)  # GenICam's
VALUES = Names({"db": scan_pb2.VALUE_DB, "magnitude": scan_pb2.VALUE_MAGNITUDE, "power": scan_pb2.VALUE_POWER, "real": scan_pb2.VALUE_REAL, "complex": scan_pb2.VALUE_COMPLEX},
               aliases={"decibel": "db", "amplitude": "magnitude", "abs": "magnitude", "intensity": "power"}, of=scan_pb2.Value)
FIXED_PATTERN_NOISE = Names({"keep": scan_pb2.Processing.FIXED_PATTERN_NOISE_KEEP, "mean": scan_pb2.Processing.FIXED_PATTERN_NOISE_MEAN, "quiet_segment": scan_pb2.Processing.FIXED_PATTERN_NOISE_QUIET_SEGMENT},
                            aliases={"none": "keep"}, of=scan_pb2.Processing.FixedPatternNoise)
WINDOWS = Names({"rect": scan_pb2.WINDOW_KIND_RECT, "hann": scan_pb2.WINDOW_KIND_HANN, "hamming": scan_pb2.WINDOW_KIND_HAMMING, "gauss": scan_pb2.WINDOW_KIND_GAUSS, "blackman": scan_pb2.WINDOW_KIND_BLACKMAN,
                 "flat_top": scan_pb2.WINDOW_KIND_FLAT_TOP},
                aliases={"hanning": "hann", "boxcar": "rect", "rectangular": "rect", "ones": "rect", "none": "rect", "gaussian": "gauss",
                         "flattop": "flat_top"},  # SciPy's and NumPy's
                also="or the values themselves, an array [N]", of=scan_pb2.WindowKind)
INTERPOLATIONS = Names({"linear": scan_pb2.INTERPOLATION_LINEAR, "cubic": scan_pb2.INTERPOLATION_CUBIC, "lanczos": scan_pb2.INTERPOLATION_LANCZOS}, of=scan_pb2.Interpolation)
INSERTS = Names({"append": scan_pb2.Queue.INSERT_APPEND, "interrupt_at_volume": scan_pb2.Queue.INSERT_INTERRUPT_AT_VOLUME,
                 "interrupt_now": scan_pb2.Queue.INSERT_INTERRUPT_NOW}, of=scan_pb2.Queue.Insert)
MARKER_PLACES = Names({"volume": scan_pb2.Marker.AT_VOLUME_START, "bscan": scan_pb2.Marker.AT_BSCAN_START, "record": scan_pb2.Marker.AT_RECORD}, of=scan_pb2.Marker.At)
BACKGROUNDS = Names({"none": scan_pb2.Processing.Background.MODE_NONE, "rolling": scan_pb2.Processing.Background.MODE_ROLLING,
                     "bscan": scan_pb2.Processing.Background.MODE_BSCAN},
                    refused={"static": "give the spectrum itself"}, also="or a spectrum, an array [S]")
K_POSITIONS = Names({"none": 0, "source": 1}, aliases={"from_source": "source"},
                    refused={"wavelength": "give wavelength_nm=, an array [S]", "wavelength_nm": "give wavelength_nm=, an array [S]",
                             "polynomial": "give polynomial=, the coefficients"},
                    also="or positions, an array [N]")


@builder(scan_pb2.Simulated, called={"as_fast_as_possible": "fast"})
def simulated(seed: int = 0, *, fast: bool = False, layers: Sequence[dict] = (), **fields: Any) -> scan_pb2.Simulated:
    """A simulated spectrometer. fast: as fast as possible. layers: dicts of SimulatedLayer fields (depth_um, ...)."""
    return message(scan_pb2.Simulated, dict(seed=seed, as_fast_as_possible=fast, layers=layers, **fields), called={"as_fast_as_possible": "fast"})


@builder()
def replay(path: str, *, loops: int = 1, rate_hz: float = 0.0, header_bytes: int = 0, allow_partial: bool = False) -> scan_pb2.ReplayFile:
    """Raw records from a file under one of the server's replay roots. header_bytes: bytes before
    the first record of a raw file; allow_partial: leave out the incomplete last record of a file
    that was cut off, with a warning, instead of refusing the file."""
    return message(scan_pb2.ReplayFile, dict(path=path, loops=loops, rate_hz=rate_hz, header_bytes=header_bytes, allow_partial=allow_partial))


@builder()
def push(*, credit_blocks: int = 0, idle_timeout: Optional[Seconds] = None) -> scan_pb2.Push:
    """Records that Client.push sends. The scan needs `samples`, and `raw_type` unless that is u16."""
    return message(scan_pb2.Push, dict(credit_blocks=credit_blocks, idle_timeout=idle_timeout))


@builder()
def ring(*, slots: int = 0, idle_timeout: Optional[Seconds] = None, restart_grace: Optional[Seconds] = None, producer_waits: bool = False) -> scan_pb2.Ring:
    """Records that a process on the server's host writes into shared memory (Client.open_ring,
    client/cpp/include/octavo/octavo_ring.h). The scan needs `samples`, and `raw_type` unless that
    is u16. producer_waits: the producer waits while the ring is full, instead of losing records."""
    return message(scan_pb2.Ring, dict(slots=slots, idle_timeout=idle_timeout, restart_grace=restart_grace, producer_waits=producer_waits))


@builder(scan_pb2.Camera)
def camera(id: str = "", *, width: int = 0, height: int = 0, pixel_format: str = "", **fields: Any) -> scan_pb2.Camera:
    """A GenICam camera: each line of an image is a record. Settings that are not given keep the
    camera's own values."""
    return message(scan_pb2.Camera, dict(id=id, width=width, height=height, pixel_format=pixel_format, **fields))


@builder()
def marker(name: str, at: Union[str, int], *, every: int = 0, offset: int = 0) -> scan_pb2.Marker:
    """An event at each `every`-th "volume", "bscan" or "record" from `offset` on (ScanSpec.markers)."""
    return message(scan_pb2.Marker, dict(name=name, at=at, every=every, offset=offset))


_RASTER = {"ascans_per_bscan": "ascans", "bscans_per_volume": "bscans"}


@builder(scan_pb2.Raster, called=_RASTER)
def raster(ascans: int, bscans: int, volumes: int = 1, **fields: Any) -> scan_pb2.Raster:
    """ascans along x, bscans along y; volumes=0: until the scan is stopped."""
    return message(scan_pb2.Raster, dict(ascans_per_bscan=ascans, bscans_per_volume=bscans, volumes=volumes, **fields), called=_RASTER)


def _repeat(repeats: int, period: int, order: bool, average: bool) -> scan_pb2.Repeat:
    if order and average:
        raise ValueError("order and average are both True; give one of them")
    strategy = scan_pb2.Repeat.STRATEGY_AVERAGE if average else scan_pb2.Repeat.STRATEGY_ORDER if order else scan_pb2.Repeat.STRATEGY_PACK
    return message(scan_pb2.Repeat, dict(count=repeats, period=period, strategy=strategy), called={"count": "repeats"})


@builder(raster, called=_RASTER)
def repeated_raster(ascans: int, bscans: int, volumes: int = 1, *, repeats: int = 3, period: int = 2, order: bool = False, average: bool = False,
                    **fields: Any) -> scan_pb2.RepeatedRaster:
    """A raster that scans groups of `period` B-scans `repeats` times. Stored [B-scan, repeat] (order: as scanned;
    average: the mean power of the repeats)."""
    return scan_pb2.RepeatedRaster(raster=raster(ascans, bscans, volumes, **fields), repeat=_repeat(repeats, period, order, average))


@builder(scan_pb2.Radial, called=_RASTER, covered=("radius_begin_mm", "radius_end_mm", "angle_begin_deg", "angle_end_deg"))
def radial(ascans: int, bscans: int, volumes: int = 1, *, radius: Sequence[float] = (0.0, 0.0), angle: Sequence[float] = (0.0, 0.0),
           **fields: Any) -> scan_pb2.Radial:
    """Straight segments in all directions. radius: (begin, end) in mm, negative on the other side; angle: (begin, end) in degrees."""
    radius, angle = several("radius", radius, "begin, end"), several("angle", angle, "begin, end")
    return message(scan_pb2.Radial, dict(ascans_per_bscan=ascans, bscans_per_volume=bscans, volumes=volumes, radius_begin_mm=radius[0],
                                         radius_end_mm=radius[1], angle_begin_deg=angle[0], angle_end_deg=angle[1], **fields), called=_RASTER)


@builder(radial, called=_RASTER)
def repeated_radial(ascans: int, bscans: int, volumes: int = 1, *, repeats: int = 3, period: int = 2, order: bool = False, average: bool = False,
                    **fields: Any) -> scan_pb2.RepeatedRadial:
    """A radial pattern that scans groups of `period` segments `repeats` times."""
    return scan_pb2.RepeatedRadial(radial=radial(ascans, bscans, volumes, **fields), repeat=_repeat(repeats, period, order, average))


@builder(scan_pb2.Spiral, covered=("inner_radius_mm", "outer_radius_mm", "sampling"))
def spiral(ascans_per_ring: int, rings: int, volumes: int = 1, *, radius: Sequence[float] = (0.0, 0.0), linear: bool = False,
           **fields: Any) -> scan_pb2.Spiral:
    """A spiral from radius[0] to radius[1] mm; linear: equal steps along the path instead of equal angles."""
    radius = several("radius", radius, "inner, outer")
    return message(scan_pb2.Spiral, dict(ascans_per_ring=ascans_per_ring, rings=rings, volumes=volumes, inner_radius_mm=radius[0],
                                         outer_radius_mm=radius[1], sampling=scan_pb2.Spiral.SAMPLING_LINEAR if linear else scan_pb2.Spiral.SAMPLING_ANGULAR, **fields))


@builder(scan_pb2.Lissajous, covered=("extent_x_mm", "extent_y_mm", "cycles_x", "cycles_y", "phase_x_deg", "phase_y_deg"))
def lissajous(ascans_per_row: int, rows: int, volumes: int = 1, *, extent: Sequence[float] = (0.0, 0.0), cycles: Sequence[int] = (0, 0),
              phase: Sequence[float] = (0.0, 0.0), **fields: Any) -> scan_pb2.Lissajous:
    """x and y as sines of cycles[0] and cycles[1] periods over ascans_per_row * rows records; extent in mm, phase in degrees."""
    extent, cycles, phase = several("extent", extent, "x, y"), several("cycles", cycles, "x, y"), several("phase", phase, "x, y")
    return message(scan_pb2.Lissajous, dict(ascans_per_row=ascans_per_row, rows=rows, volumes=volumes, extent_x_mm=extent[0], extent_y_mm=extent[1],
                                            cycles_x=cycles[0], cycles_y=cycles[1], phase_x_deg=phase[0], phase_y_deg=phase[1], **fields),
                   called={"cycles_x": "cycles[0]", "cycles_y": "cycles[1]"})


@builder(scan_pb2.Freeform, covered=("x_mm", "y_mm", "ascans_per_bscan"))
def freeform(points: np.ndarray, volumes: int = 1, **fields: Any) -> scan_pb2.Freeform:
    """Any points in mm: [segment, A-scan, 2], or [A-scan, 2] for one segment; the last axis is x, y."""
    points = array("points", points, np.float64, "[A-scan, 2] or [segment, A-scan, 2]")
    if points.shape[-1] != 2:
        raise ValueError(f"points has the shape {points.shape}; expected [segment, A-scan, 2]: x and y of each")
    return message(scan_pb2.Freeform, dict(x_mm=points[..., 0].ravel(), y_mm=points[..., 1].ravel(), ascans_per_bscan=points.shape[-2],
                                           volumes=volumes, **fields))


@builder()
def angular_warp(factor: float = 0.0) -> scan_pb2.AngularWarp:
    """Position = factor (mm per degree) x scanner angle."""
    return message(scan_pb2.AngularWarp, dict(factor=factor))


@builder()
def telecentric_warp(galvo_lens_spacing_mm: float = 0.0, scale_rad_per_deg: float = 0.0) -> scan_pb2.TelecentricWarp:
    """Position = galvo_lens_spacing tan(scale x scanner angle)."""
    return message(scan_pb2.TelecentricWarp, dict(galvo_lens_spacing_mm=galvo_lens_spacing_mm, scale_rad_per_deg=scale_rad_per_deg))


@builder()
def scanner(velocity: float, acceleration: float, positions: Sequence[float] = (0.0, 0.0), y: Optional[dict] = None) -> scan_pb2.Scanner:
    """Limits of the scanner, in its units and seconds, for both axes; y: fields of Scanner.Axis where the y axis differs."""
    positions = several("positions", positions, "least, most")
    axis = message(scan_pb2.Scanner.Axis, dict(velocity=velocity, acceleration=acceleration, position_min=positions[0], position_max=positions[1]))
    limits = scan_pb2.Scanner(x=axis, y=axis)
    limits.y.MergeFrom(message(scan_pb2.Scanner.Axis, _dict("y", y), "y."))
    return limits


def _dict(field: str, value: Optional[Mapping]) -> Mapping:
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{field} is {short(value)}; expected a dict of its fields")
    return value or {}


@builder()
def pattern(shape: Shape, *, offset: Sequence[float] = (0.0, 0.0), rotation: float = 0.0,
            warp: Union[scan_pb2.AngularWarp, scan_pb2.TelecentricWarp, None] = None, flyback: Union[str, int, None] = None,
            scanner: Optional[scan_pb2.Scanner] = None) -> scan_pb2.Pattern:
    """A pattern with the parameters common to all kinds: offset in mm, rotation in degrees, warp,
    limits of the scanner, and

    flyback  "fixed", "fixed_linear" (as many records as flyback_records of the shape), "minimum_time"
    """
    offset = several("offset", offset, "x, y")
    made = message(scan_pb2.Pattern, dict(offset_x_mm=offset[0], offset_y_mm=offset[1], rotation_deg=rotation, flyback=flyback, scanner=scanner),
                   called={"rotation_deg": "rotation"})
    getattr(made, _kind("pattern", shape, SHAPES)).CopyFrom(shape)
    if warp is not None:
        getattr(made, _kind("warp", warp, {"angular_warp": scan_pb2.AngularWarp, "telecentric_warp": scan_pb2.TelecentricWarp})).CopyFrom(warp)
    return made


def _kind(field: str, value, kinds: Mapping[str, type]) -> str:
    """The kind of a message, named like the octavo function that returns it."""
    for name, kind in kinds.items():
        if isinstance(value, kind):
            return name
    raise ValueError(f"{field} is {short(value)}; expected the result of one of {', '.join(f'octavo.{name}()' for name in kinds)}")


@builder(scan_pb2.Processing, covered=("k_linearisation", "window_values", "dispersion"))
def processing(*, background: Union[str, np.ndarray, None] = None, k: Union[str, np.ndarray, None] = None,
               wavelength_nm: Optional[np.ndarray] = None, polynomial: Optional[Sequence[float]] = None,
               interpolation: Union[str, int, None] = None, window: Union[str, np.ndarray, None] = None, a2: float = 0.0, a3: float = 0.0,
               phase: Optional[np.ndarray] = None, value: Union[str, int, None] = None, levels: Optional[Sequence[float]] = None,
               dtype: Any = None, fixed_pattern_noise: Union[str, int, None] = None, group_records: int = 0, window_records: int = 0,
               **fields: Any) -> scan_pb2.Processing:
    """The spectral chain.

    background     "none", "rolling", "bscan" or a spectrum [S]; for a rolling one, group_records
                   (0: a B-scan with its flyback) share the mean of the last window_records (0: the
                   group)
    k              "none", "source" or positions r[N]; or wavelength_nm [S]; or polynomial coefficients
    interpolation  "linear", "cubic", "lanczos"
    window         "rect", "hann", "hamming", "gauss", "blackman", "flat_top" or values [N];  a2, a3, phase  dispersion
    value          "db", "magnitude", "power", "real", "complex";  levels  (lo, hi) in value units
    dtype          "u8", "i8", "u16", "f16", "f32"; "c64" for complex values; also NumPy's names and
                   types. Default: "u16" over the whole range of the chain for dB of integer
                   samples, else "f32"
    fixed_pattern_noise  "keep"; or subtract the "mean" or "quiet_segment" of each
               B-scan
    """
    axes = [name for name, given in (("k", k), ("wavelength_nm", wavelength_nm), ("polynomial", polynomial)) if given is not None]
    if len(axes) > 1:
        raise ValueError(f"{' and '.join(axes)} are given; give one of k, wavelength_nm, polynomial")
    made = message(scan_pb2.Processing, dict(value=value or None, dtype=dtype, fixed_pattern_noise=fixed_pattern_noise or None, **fields),
                   names={"dtype": DTYPES})
    ground = made.background
    if isinstance(background, str):
        ground.mode = BACKGROUNDS.pick("background", background)
    elif background is not None:
        ground.mode = scan_pb2.Processing.Background.MODE_STATIC
        ground.spectrum.extend(array("background", background, np.float32, "[S]").tolist())
    for name, records in (("group_records", group_records), ("window_records", window_records)):
        if records:
            setattr(ground, name, arguments.whole(name, records, 0, 2 ** 32 - 1))
    lin = made.k_linearisation
    if wavelength_nm is not None:
        lin.wavelength_nm.values.extend(array("wavelength_nm", wavelength_nm, np.float64, "[S]").tolist())
    elif polynomial is not None:
        lin.polynomial.values.extend(array("polynomial", polynomial, np.float64, "[coefficient]").tolist())
    elif isinstance(k, str):
        setattr(lin, {"none": "none", "source": "from_source"}[K_POSITIONS.name("k", k)], True)
    elif k is not None:
        lin.index_f64.values.extend(array("k", k, np.float64, "[N]").tolist())
    if interpolation:
        lin.interpolation = INTERPOLATIONS.pick("interpolation", interpolation)
    if isinstance(window, (str, int)):
        made.window = WINDOWS.pick("window", window)
    elif window is not None:
        made.window_values.extend(array("window", window, np.float32, "[N]").tolist())
    if a2 or a3:
        made.dispersion.a2, made.dispersion.a3 = arguments.real("a2", a2), arguments.real("a3", a3)
    if phase is not None:
        made.dispersion.phase.extend(array("phase", phase, np.float32, "[N]").tolist())
    if levels is not None:
        made.levels.lo, made.levels.hi = several("levels", levels, "lo, hi")
    return made


def _with_device(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields, with the name of a device in place of its number, or of "host" in any case."""
    device = fields.get("device")
    if isinstance(device, str) and device.lower() == "host":
        return {**fields, "device": HOST_DEVICE}
    if isinstance(device, (bool, np.bool_)) or not isinstance(device, numbers.Integral):
        return fields
    return {**fields, "device": f"devices/{arguments.whole('device', device, 0, 2 ** 31 - 1)}"}


_as_pattern = pattern


@builder(scan_pb2.ScanSpec, covered=(*SOURCES,))
def scan_spec(source: Source, pattern: Union[Shape, scan_pb2.Pattern], *, processing: Optional[scan_pb2.Processing] = None, samples: int = 0,
              raw_type: Any = None, adc_bits: int = 0, rate_hz: float = 0.0, channels: int = 0, channel: int = 0, record_average: int = 0,
              acquisition: Optional[dict] = None, retention: Optional[dict] = None, products: Optional[dict] = None, queue: str = "",
              insert: Union[str, int, None] = None, chains: Optional[dict] = None, **fields: Any) -> scan_pb2.ScanSpec:
    """Puts a ScanSpec together. raw_type: "u8", "u16", "i16", "f32", "u12p", "u12_packed", or
    NumPy's names and types; adc_bits: significant bits of a sample, if not all; record_average:
    records of the source averaged into one of the pattern. acquisition, retention, products: fields
    of those messages, enums as text (retention=dict(on_full="spill_disk")); the rest: fields of
    ScanSpec.

    chains  {name: [operation, ...]}: applied to every volume [y, x, z] as it completes, see
            Client.chain and buffers.array_operation
    queue   scans of one queue acquire one after another;  insert  "append" (the default), "interrupt_at_volume", "interrupt_now"
    on_restart  "resume": the next start of the server begins the scan again, if it is continuous, commits by itself and its destination has {scan}
    """
    spec = message(scan_pb2.ScanSpec, dict(processing=processing, retention=retention, products=products, **_with_device(fields)))
    getattr(spec, _kind("source", source, SOURCES)).CopyFrom(source)
    if queue:
        spec.queue.name = queue
    if insert is not None:
        if not queue:
            raise ValueError(f"insert is {short(insert)} without a queue; name it: queue=\"...\"")
        spec.queue.insert = INSERTS.pick("insert", insert)
    spec.pattern.CopyFrom(pattern if isinstance(pattern, scan_pb2.Pattern) else _as_pattern(pattern))
    spec.acquisition.CopyFrom(message(scan_pb2.Acquisition, dict(samples_per_record=samples, record_rate_hz=rate_hz, channels=channels, channel=channel,
                                                                 record_average=record_average, adc_bits=adc_bits, raw_type=raw_type),
                                      called={"samples_per_record": "samples", "record_rate_hz": "rate_hz"}))
    spec.acquisition.MergeFrom(message(scan_pb2.Acquisition, _dict("acquisition", acquisition), "acquisition."))
    for name, operations in _dict("chains", chains).items():
        if isinstance(operations, (str, Mapping)) or not hasattr(operations, "__iter__"):
            raise ValueError(f"chains[{name!r}] is {short(operations)}; expected a list of operations")
        spec.chains.add(name=name, operations=buffers.array_operations(operations, ("y", "x", "z")))
    return spec


@builder()
def reprocess(volume: str, processing: Optional[scan_pb2.Processing] = None, *, operations: Sequence[Any] = ()) -> job_pb2.ReprocessJob:
    """Runs the spectral chain again over held raw spectra (retention=dict(hold_raw=True)), for
    Client.submit_job.

    operations  what to do with the volume [y, x, z] that the chain makes, as in Volume.derive:
                [{"angiography": {}}, {"mip": {"axis": "z"}}]; only the last result is held
    """
    if isinstance(operations, (str, Mapping)) or not hasattr(operations, "__iter__"):
        raise ValueError(f"operations is {short(operations)}; expected a list of operations")
    made = buffers.volume_operations(operations, ("y", "x", "z"))
    return message(job_pb2.ReprocessJob, dict(volume=volume, processing=processing, operations=made))


@builder(job_pb2.DispersionAutofocusJob, covered=("a2_begin", "a2_end", "a3_begin", "a3_end"))
def dispersion_autofocus(volume: str, processing: Optional[scan_pb2.Processing] = None, *, a2: Sequence[float] = (0.0, 0.0),
                         a3: Sequence[float] = (0.0, 0.0), **fields: Any) -> job_pb2.DispersionAutofocusJob:
    """Searches the a2 and a3 (ranges in rad per sample^2 and ^3; (0, 0) = chosen) that make held
    raw spectra sharpest: Job.dispersion.

    fields  only_a2, ascans, first_bin, bins, reprocess (also make the volume)
    """
    a2, a3 = several("a2", a2, "begin, end"), several("a3", a3, "begin, end")
    return message(job_pb2.DispersionAutofocusJob, dict(volume=volume, processing=processing, a2_begin=a2[0], a2_end=a2[1], a3_begin=a3[0],
                                                        a3_end=a3[1], **fields))


@builder(job_pb2.KCalibrationJob)
def k_calibration(volume: str, processing: Optional[scan_pb2.Processing] = None, **fields: Any) -> job_pb2.KCalibrationJob:
    """Finds the k-linearisation from raw spectra of a mirror: Job.k_linearisation. Only the
    background of `processing` is used.

    fields  first_record, records, least_bin, polynomial_degree, edge
    """
    return message(job_pb2.KCalibrationJob, dict(volume=volume, processing=processing, **fields))


@builder()
def volume_import(path: str, *, format: Union[str, int, None] = None, raw: Optional[Mapping] = None, dataset: str = "", image: Optional[int] = None,
                  level: Optional[int] = None, axes: Union[str, Sequence[str]] = (), select: Optional[Mapping[str, int]] = None, spacing_um: Optional[Mapping[str, float]] = None,
                  allow_unknown_spacing: bool = False, order: str = "", dtype: Any = None, scaled: bool = False, start: Sequence[int] = (),
                  count: Sequence[int] = (), value: Union[str, int, None] = None, quantity: Union[str, int, None] = None,
                  buffer: bool = False, private: bool = False) -> ingest_pb2.ImportJob:
    """A volume from a file or folder below one of the server's replay roots, for Client.submit_job and
    Client.plan_job; Client.import_volume takes the same arguments. Nothing is guessed: what the file
    does not say has to be given, and the error names the argument.

    format   "npy", "raw", "tiff", "tiff-stack", "nifti", "nrrd", "hdf5", "mat", "linumpy", "zarr"; default: by its content
    raw      of numbers without a header: dict(shape=(100, 200, 300), dtype="u16", big_endian=False, offset_bytes=0,
             fortran=False, allow_trailing=False); shape slowest first, with fortran fastest first
    dataset  HDF5: path of the dataset, "/a/b"; MATLAB: name of the variable; Zarr: path of an array or group below the folder, "a/b"
    image    OME-TIFF and OME-Zarr with several images: which, from 0
    level    OME-Zarr: level of the pyramid; default: the full resolution
    axes     names of the file's axes, slowest first: ("z", "y", "x"), or "zyx" where each is one letter. Of MATLAB's volume(a, b, c) these
             are "cba", because its first index is the fastest; of .npy and raw numbers they are in the order of the shape, in Fortran order, too
    select   index along each axis that is not x, y or z: {"c": 1}
    spacing_um  um from sample to sample, instead of the file's: {"x": 10, "y": 10, "z": 3.5};
             allow_unknown_spacing: go on where neither says one
    order    axes of the volume, slowest first: "yxz"; default: those of the file
    dtype    "u8", "i8", "u16", "i16", "f16", "f32", "f64", "c64", or NumPy's names and types; default: the file's
    scaled   NIfTI: values scaled by scl_slope and scl_inter
    start, count  a box of the volume along its own axes
    value, quantity  what the numbers of a file that no commit wrote are: value="db", quantity="attenuation"
    buffer   make a buffer instead of a volume: the numbers alone, of any type but "c128" (dtype also "u32", "i32", "u64", "i64"), so the
             spacing need not be known; private: only clients with its key see it
    """
    if private and not buffer:
        raise ValueError("private is True and buffer is False; expected it with buffer=True only: volumes are not private")
    if spacing_um is not None and not isinstance(spacing_um, Mapping):
        raise ValueError(f"spacing_um is {short(spacing_um)}; expected a dict with the keys x, y, z, of those that the file does not say: {{'x': 10, 'y': 10, 'z': 3.5}}")
    numbers_of_file = None if raw is None else message(ingest_pb2.RawNumbers, _dict("raw", raw), "raw.", names={"dtype": NUMBER_DTYPES})
    return message(ingest_pb2.ImportJob, dict(path=path, format=format, raw=numbers_of_file, dataset=dataset, image=image, level=level, axes=list(axes) if isinstance(axes, str) else axes, select=select,
                                              spacing_um=spacing_um, allow_unknown_spacing=allow_unknown_spacing, order=order, dtype=dtype, scaled=scaled,
                                              start=start, count=count, value=value, quantity=quantity,
                                              buffer=ingest_pb2.ImportedBuffer(is_private=private) if buffer else None),
                   names={"dtype": ARRAY_DTYPES if buffer else VOLUME_DTYPES})


_OF_JOB = ("title", "labels", "priority", "device", "orphan", "ttl", "group")


@builder(volume_import, ingest_pb2.ImportVolumeRequest, covered=("volume_import", "request_id", "session_secret", "wait"))
def import_request(path: str, **fields: Any) -> ingest_pb2.ImportVolumeRequest:
    """The request of Client.import_volume: arguments of volume_import, and title, labels, priority, device, orphan, ttl, group of its job."""
    of_job = {name: fields.pop(name) for name in _OF_JOB if name in fields}
    return message(ingest_pb2.ImportVolumeRequest, dict(volume_import=volume_import(path, **fields), **_with_device(of_job)))


@builder(job_pb2.JobSpec, covered=(*WORKS,))
def job_spec(work: Work, **fields: Any) -> job_pb2.JobSpec:
    """Puts a JobSpec together. fields: title, labels, priority, device, group, orphan, ttl, results, commit: the destination, or
    octavo.commit_options(...)."""
    if isinstance(fields.get("commit"), (str, os.PathLike)):
        fields["commit"] = dict(destination=os.fspath(fields["commit"]))
    spec = message(job_pb2.JobSpec, _with_device(fields))
    if isinstance(work, job_pb2.JobSpec):
        made = job_pb2.JobSpec()
        made.CopyFrom(work)
        made.MergeFrom(spec)
        spec = made
    else:
        getattr(spec, _kind("work", work, WORKS)).CopyFrom(work)
    of_raw = [name for name in WORKS if spec.HasField(name) and "volume" in WORKS[name].DESCRIPTOR.fields_by_name]
    for name in of_raw:
        errors.check_kind(f"{name}.volume", getattr(spec, name).volume, "volumes")
    return spec
