"""Short ways to say what a scan is. Each returns a message of octavo.v1; every field of the protos can be given by name."""

from __future__ import annotations

from typing import Optional, Sequence, Union

import numpy as np

from octavo.v1 import scan_pb2, types_pb2

Source = Union[scan_pb2.Simulated, scan_pb2.ReplayFile]
DTYPES = {"u8": types_pb2.U8, "i8": types_pb2.I8, "u16": types_pb2.U16, "f16": types_pb2.F16, "f32": types_pb2.F32, "c64": types_pb2.C64}
RAW_TYPES = {"u8": scan_pb2.RAW_U8, "u16": scan_pb2.RAW_U16, "i16": scan_pb2.RAW_I16, "f32": scan_pb2.RAW_F32, "u12p": scan_pb2.RAW_U12P,
             "u12_packed": scan_pb2.RAW_U12_PACKED}
VALUES = {"db": scan_pb2.DB, "magnitude": scan_pb2.MAGNITUDE, "power": scan_pb2.POWER, "real": scan_pb2.REAL, "complex": scan_pb2.COMPLEX}
FIXED_PATTERN_NOISE = {"keep": scan_pb2.Processing.KEEP, "mean": scan_pb2.Processing.MEAN, "quiet_segment": scan_pb2.Processing.QUIET_SEGMENT}
WINDOWS = {"rect": scan_pb2.RECT, "hann": scan_pb2.HANN, "hamming": scan_pb2.HAMMING, "gauss": scan_pb2.GAUSS,
           "blackman": scan_pb2.BLACKMAN, "flat_top": scan_pb2.FLAT_TOP}
INTERPOLATIONS = {"linear": scan_pb2.LINEAR, "cubic": scan_pb2.CUBIC, "lanczos": scan_pb2.LANCZOS}


def simulated(seed: int = 0, *, fast: bool = False, layers: Sequence[dict] = (), **fields) -> scan_pb2.Simulated:
    """A simulated spectrometer. fast: as fast as possible. layers: dicts of SimulatedLayer fields (depth_um, ...)."""
    return scan_pb2.Simulated(seed=seed, as_fast_as_possible=fast, layers=[scan_pb2.SimulatedLayer(**layer) for layer in layers], **fields)


def replay(path: str, *, loops: int = 1, rate_hz: float = 0.0) -> scan_pb2.ReplayFile:
    """Raw records from a file under one of the server's replay roots."""
    return scan_pb2.ReplayFile(path=path, loops=loops, rate_hz=rate_hz)


def raster(ascans: int, bscans: int, volumes: int = 0, **fields) -> scan_pb2.Raster:
    """ascans along x, bscans along y; volumes = 0 runs until stopped."""
    return scan_pb2.Raster(ascans_per_bscan=ascans, bscans_per_volume=bscans, volumes=volumes, **fields)


def processing(*, background: Union[str, np.ndarray, None] = None, k: Union[str, np.ndarray, None] = None,
               wavelength_nm: Optional[np.ndarray] = None, polynomial: Optional[Sequence[float]] = None,
               interpolation: Optional[str] = None, window: Union[str, np.ndarray, None] = None, a2: float = 0.0, a3: float = 0.0,
               phase: Optional[np.ndarray] = None, value: Optional[str] = None, levels: Optional[Sequence[float]] = None,
               dtype: Optional[str] = None, fixed_pattern_noise: Optional[str] = None, **fields) -> scan_pb2.Processing:
    """The spectral chain.

    background     "none", "rolling", "bscan" or a spectrum [S]
    k              "none", "source" or positions r[N]; or wavelength_nm [S]; or polynomial coefficients
    interpolation  "linear", "cubic", "lanczos";  window  a name or values [N];  a2, a3, phase  dispersion
    value          "db", "magnitude", "power", "real", "complex";  levels  (lo, hi) in value units
    dtype          "u8", "i8", "u16", "f16", "f32"; "c64" for complex values
    fixed_pattern_noise  "keep", "mean" or "quiet_segment" of each B-scan subtracted
    """
    message = scan_pb2.Processing(**fields)
    mode = scan_pb2.Processing.Background
    if isinstance(background, str):
        message.background.mode = {"none": mode.NONE, "rolling": mode.ROLLING, "bscan": mode.BSCAN}[background]
    elif background is not None:
        message.background.mode = mode.STATIC
        message.background.spectrum.extend(np.asarray(background, np.float32).tolist())
    lin = message.k_linearisation
    if wavelength_nm is not None:
        lin.wavelength_nm.values.extend(np.asarray(wavelength_nm, np.float64).tolist())
    elif polynomial is not None:
        lin.polynomial.values.extend([float(c) for c in polynomial])
    elif isinstance(k, str):
        setattr(lin, {"none": "none", "source": "from_source"}[k], True)
    elif k is not None:
        lin.index.values.extend(np.asarray(k, np.float32).tolist())
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


def scan_spec(source: Source, pattern: scan_pb2.Raster, *, processing: Optional[scan_pb2.Processing] = None, samples: int = 0,
              raw_type: Optional[str] = None, rate_hz: float = 0.0, channels: int = 0, channel: int = 0, record_average: int = 0, acquisition: Optional[dict] = None, retention: Optional[dict] = None,
              products: Optional[dict] = None, **fields) -> scan_pb2.ScanSpec:
    """Puts a ScanSpec together. raw_type: "u8", "u16", "i16", "f32", "u12p", "u12_packed"; record_average: records of the source in
    one of the pattern. acquisition, retention, products: fields of those messages; the rest: fields of ScanSpec."""
    spec = scan_pb2.ScanSpec(**fields)
    if isinstance(source, scan_pb2.Simulated):
        spec.simulated.CopyFrom(source)
    else:
        spec.replay.CopyFrom(source)
    spec.pattern.raster.CopyFrom(pattern)
    spec.acquisition.CopyFrom(scan_pb2.Acquisition(samples_per_record=samples, record_rate_hz=rate_hz, channels=channels, channel=channel,
                                                        record_average=record_average, **(acquisition or {})))
    if raw_type:
        spec.acquisition.raw_type = RAW_TYPES[raw_type]
    if processing is not None:
        spec.processing.CopyFrom(processing)
    if retention:
        spec.retention.CopyFrom(scan_pb2.Retention(**retention))
    if products:
        spec.products.CopyFrom(scan_pb2.Products(**products))
    return spec
