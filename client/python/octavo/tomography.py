"""Tomography: jobs from files, arrays and pushed projections, and recon(), which takes what tomopy.recon takes."""

from __future__ import annotations

from typing import Callable, Optional, Sequence, Union

import numpy as np

from octavo.client import Client
from octavo.v1 import job_pb2, source_pb2, tomography_pb2 as t

_OPTIONS = t.TomographyAlgorithmOptions
ALGORITHMS = {"fbp": _OPTIONS.FBP, "sirt": _OPTIONS.SIRT, "mlem": _OPTIONS.MLEM, "cgls": _OPTIONS.CGLS}
FORMS = {"corrected": _OPTIONS.CORRECTED, "tomopy": _OPTIONS.TOMOPY}
INTERPOLATIONS = {"nearest": _OPTIONS.NEAREST, "linear": _OPTIONS.LINEAR_RAYS, "cubic": _OPTIONS.CUBIC_RAYS}
FILTERS = {"ramp": _OPTIONS.RAMP, "shepp-logan": _OPTIONS.SHEPP_LOGAN, "cosine": _OPTIONS.COSINE, "hann": _OPTIONS.HANN_FILTER,
           "hamming": _OPTIONS.HAMMING_FILTER, "parzen": _OPTIONS.PARZEN, "butterworth": _OPTIONS.BUTTERWORTH}
CENTERS = {"auto": t.RotationCenter.AUTO, "pairs": t.RotationCenter.PAIRS, "vo": t.RotationCenter.VO, "entropy": t.RotationCenter.ENTROPY,
           "phase_correlation": t.RotationCenter.PHASE_CORRELATION}
DOUBTS = {"warn": t.RotationCenter.WARN, "fail": t.RotationCenter.FAIL}
RINGS = {"sorting": t.TomographyPreparation.Rings.SORTING, "large_stripe": t.TomographyPreparation.Rings.LARGE_STRIPE,
         "dead_stripe": t.TomographyPreparation.Rings.DEAD_STRIPE, "all_stripe": t.TomographyPreparation.Rings.ALL_STRIPE,
         "fourier_wavelet": t.TomographyPreparation.Rings.FOURIER_WAVELET}
PLACES = {"": t.RESULT_PLACE_UNSPECIFIED, "device": t.RESULT_ON_DEVICE, "disk": t.RESULT_ON_DISK}
Input = Union[str, dict, t.ProjectionFile, t.ProjectionArrays, source_pb2.PushedProjections]


def _range(value) -> Optional[t.IndexRange]:
    """slice, (begin, end[, step]) or one index."""
    if value is None:
        return None
    if isinstance(value, slice):
        return t.IndexRange(begin=value.start or 0, end=value.stop or 0, step=value.step or 0)
    if isinstance(value, int):
        return t.IndexRange(begin=value, end=value + 1)
    return t.IndexRange(**dict(zip(("begin", "end", "step"), (int(v) for v in value))))


def preparation(*, rings: Union[str, Sequence] = (), outliers: Optional[dict] = None, phase: Optional[dict] = None,
                stitching: Optional[dict] = None, **fields) -> t.TomographyPreparation:
    """From counts to sinograms: fields of octavo.v1.TomographyPreparation.

    rings      names of RINGS, or dict(method="sorting", sorting_window=21, ...)
    outliers   dict(window=3, difference=100);  phase  dict(pixel_size_um=, distance_mm=, energy_kev=, delta_beta=)
    stitching  dict(axis_right=, overlap=): a scan over 360 degrees with the axis at one side
    """
    message = t.TomographyPreparation(**fields)
    for ring in [rings] if isinstance(rings, (str, dict)) else rings:
        one = dict(method=ring) if isinstance(ring, str) else dict(ring)
        if isinstance(one.get("method"), str):
            one["method"] = RINGS[one["method"]]
        message.rings.add(**one)
    if outliers is not None:
        message.outliers.CopyFrom(t.TomographyPreparation.Outliers(**outliers))
    if phase is not None:
        message.phase.CopyFrom(t.TomographyPreparation.Phase(**phase))
    if stitching is not None:
        message.stitching.CopyFrom(t.TomographyPreparation.Stitching(**stitching))
    return message


def tomography(input: Input, *, algorithm: str = "fbp", iterations: int = 1, center: Union[None, str, float, Sequence[float]] = None,
               center_row: Optional[int] = None, search: Optional[Sequence[float]] = None, center_doubt: str = "warn", try_centers: Optional[Sequence[float]] = None,
               angles=None, projections=None, rows=None, columns=None, prepare: Optional[t.TomographyPreparation] = None, form: str = "corrected",
               interpolation: str = "", filter: str = "", min: Optional[float] = None, max: Optional[float] = None, mask: Optional[float] = None,
               padding: Optional[int] = None, initial: str = "", batch: int = 0, place: str = "", pixel_size_um: float = 0.0,
               **fields) -> t.TomographyJob:
    """A reconstruction, for Client.submit_job: parallel-beam projections in, a held volume [slice, y, x] out.

    input        path of a file below a replay root; dict(path=..., flats=..., ...) of ProjectionFile; ProjectionArrays(projections="buffers/..." or
                 "volumes/..."); PushedProjections(rows=, columns=, frames=): Client.push_projections
    algorithm    "fbp", "sirt", "mlem", "cgls";  form  "corrected", "tomopy";  interpolation  "nearest", "linear", "cubic"
    center       column of the axis as a pixel index (an axis in the middle of N columns: (N - 1) / 2), one per slice; None = where the file says
                 (NXtomo), else the middle; or how to find it:
                 "auto", "pairs", "vo", "entropy", "phase_correlation", looking at detector row center_row within the columns `search`.
                 A second method looks at what was found (Job.tomography: center_check, center_uncertainty)
    center_doubt  "warn": an axis that is in doubt is a warning of the job; "fail": the job fails
    try_centers  (begin, end, step): one row with many axes instead of a volume
    angles       in radians, in place of the input's;  projections, rows, columns  slice or (begin, end, step)
    min, max, mask, padding  bounds of pixels, circle (part of the half width, 0 = none), pixels around
    place        "device", "disk": where the result is held;  initial  a held volume or a buffer to start from
    fields       of TomographyAlgorithmOptions: relaxation, subsets, stop_change, stop_residual, image_size, filter_cutoff, ...
    """
    job = t.TomographyJob(projections=_range(projections), rows=_range(rows), columns=_range(columns), preparation=prepare,
                          initial_volume=initial, slices_per_batch=batch, place=PLACES[place], pixel_size_um=pixel_size_um)
    if isinstance(input, str):
        job.file.path = input
    elif isinstance(input, dict):
        job.file.CopyFrom(t.ProjectionFile(**input))
    else:
        getattr(job, {t.ProjectionFile: "file", t.ProjectionArrays: "arrays", source_pb2.PushedProjections: "push"}[type(input)]).CopyFrom(input)
    if angles is not None:
        job.angles_rad.extend(np.asarray(angles, np.float64).ravel().tolist())
    if isinstance(center, str):
        job.center.method = CENTERS[center]
    elif center is not None:
        job.center.pixels.extend(np.atleast_1d(np.asarray(center, np.float64)).tolist())
    if center_row is not None:
        job.center.row, job.center.row_set = center_row, True
    if search is not None:
        job.center.search_begin, job.center.search_end = search
    if DOUBTS[center_doubt] != t.RotationCenter.WARN:
        job.center.on_doubt = DOUBTS[center_doubt]
    if try_centers is not None:
        job.try_centers.begin, job.try_centers.end, job.try_centers.step = try_centers
        if center_row is not None:
            job.try_centers.row, job.try_centers.row_set = center_row, True
            job.center.ClearField("row")
            job.center.ClearField("row_set")
    options = job.reconstruction
    options.CopyFrom(_OPTIONS(algorithm=ALGORITHMS[algorithm], form=FORMS[form], iterations=iterations, **fields))
    if interpolation:
        options.interpolation = INTERPOLATIONS[interpolation]
    if filter:
        options.filter = FILTERS[filter]
    for name, value in (("min_value", min), ("max_value", max), ("mask_ratio", mask), ("padding", padding)):
        if value is not None:
            setattr(options, name, value)
            setattr(options, name + "_set", True)
    return job


# -- tomopy.recon

_TOMOPY_INTERPOLATIONS = {"nn": "nearest", "linear": "linear", "cubic": "cubic", "0": "nearest", "1": "linear", "2": "cubic"}
_TOMOPY_FILTERS = {"shepp": "shepp-logan", "cosine": "cosine", "hann": "hann", "hamming": "hamming", "ramlak": "ramp", "parzen": "parzen",
                   "butterworth": "butterworth"}
_REFUSED = {"art": "ray by ray; sirt and cgls solve the same equations", "bart": "is sirt with blocks: algorithm='sirt', num_block=...",
            "osem": "is mlem with blocks: algorithm='mlem', num_block=...", "ospml_hybrid": "has no counterpart", "ospml_quad": "has no counterpart",
            "pml_hybrid": "has no counterpart", "pml_quad": "has no counterpart", "tv": "has no counterpart", "grad": "has no counterpart",
            "tikh": "has no counterpart", "vector": "has no counterpart"}


def recon(tomo, theta, center=None, sinogram_order: bool = False, algorithm: Optional[str] = None, init_recon=None, ncore: Optional[int] = None,
          nchunk: Optional[int] = None, *, num_iter: int = 1, num_gridx: Optional[int] = None, num_gridy: Optional[int] = None,
          num_block: int = 1, ind_block=None, reg_par=None, filter_name: Optional[str] = None, filter_par=None, accelerated: Optional[bool] = None,
          pool_size: int = 0, interpolation: Union[None, str, int] = None, device: Union[None, str, int] = None, grid_size=None, block_size=None,
          form: str = "corrected", client: Optional[Client] = None, progress: Optional[Callable] = None, **fields) -> np.ndarray:
    """Reconstructs as tomopy.recon does, on the server: the same argument names, the same axes, [slice, y, x] float32.

    tomo   [angle, slice, column], or with sinogram_order [slice, angle, column]: already minus-logarithm;  theta  radians, [angle]
    center as TomoPy counts (column + 0.5): a number, one per slice, or "auto", "pairs", "vo", "entropy", "phase_correlation"; None = the middle
    form   "corrected" (true scale, centre honoured) or "tomopy" (as its accelerated CPU code: sirt and mlem)
    client the connection to use (default: a new one);  progress  called with each octavo.v1.Job
    fields of octavo.tomography: min, max, mask, padding, relaxation, stop_change, ...
    What the other arguments mean here is a table in TOMOGRAPHY.md beside this package. Raises ValueError for what has no counterpart.
    """
    name = "gridrec" if algorithm is None else algorithm
    if not isinstance(name, str):
        raise ValueError("algorithm is a function; allowed are the names fbp, gridrec, sirt, mlem, cgls")
    if name in _REFUSED:
        raise ValueError(f"algorithm '{name}' {_REFUSED[name]}")
    if name == "gridrec":
        name = "fbp"  # the direct method of this server; same filters
    if name not in ALGORITHMS:
        raise ValueError(f"algorithm is '{algorithm}'; allowed are fbp, gridrec, sirt, mlem, cgls")
    iterative = name != "fbp"
    tomo = np.asarray(tomo, np.float32)
    if tomo.ndim != 3:
        raise ValueError(f"tomo has {tomo.ndim} axes; allowed are 3")
    theta = np.asarray(theta, np.float64).ravel()
    slices, columns = tomo.shape[0 if sinogram_order else 1], tomo.shape[2]
    if len(theta) != tomo.shape[1 if sinogram_order else 0]:
        raise ValueError(f"theta has {len(theta)} angles, tomo {tomo.shape[1 if sinogram_order else 0]}")
    if num_gridx != num_gridy and None not in (num_gridx, num_gridy):
        raise ValueError(f"num_gridx is {num_gridx} and num_gridy {num_gridy}; slices are square here")
    size = num_gridx or num_gridy or columns
    for argument, value in (("ind_block", ind_block), ("reg_par", reg_par)):
        if value is not None:
            raise ValueError(f"{argument} has no counterpart: blocks are chosen for even angles (num_block), and there is no regularisation")
    if accelerated and name not in ("sirt", "mlem"):
        raise ValueError(f"accelerated is for sirt and mlem, not {algorithm}")  # as TomoPy
    if int(num_iter) != num_iter or num_iter < 1:
        raise ValueError(f"num_iter is {num_iter}; allowed are whole numbers from 1 on")
    options = dict(fields)
    if iterative:
        options.update(iterations=int(num_iter), subsets=num_block)
        if interpolation is not None:
            if str(interpolation).lower() not in _TOMOPY_INTERPOLATIONS:
                raise ValueError(f"interpolation is {interpolation!r}; allowed are NN, LINEAR, CUBIC")
            options["interpolation"] = _TOMOPY_INTERPOLATIONS[str(interpolation).lower()]
    else:
        if filter_name not in (None, "none") and filter_name not in _TOMOPY_FILTERS:
            raise ValueError(f"filter_name is '{filter_name}'; allowed are {', '.join(_TOMOPY_FILTERS)}")
        if filter_name == "none":
            raise ValueError("filter_name is 'none': an unfiltered back projection has no counterpart")
        options["filter"] = _TOMOPY_FILTERS[filter_name or ("shepp" if algorithm in (None, "gridrec") else "ramlak")]
        if filter_par is not None:
            options["filter_cutoff"], options["filter_order"] = np.atleast_1d(filter_par)[:2].tolist() if np.size(filter_par) > 1 else (float(np.atleast_1d(filter_par)[0]), 0)
    if center is not None and not isinstance(center, str):
        center = np.atleast_1d(np.asarray(center, np.float64)) - 0.5
        if len(center) not in (1, slices):
            raise ValueError(f"center has {len(center)} values; allowed are 1 or {slices}, one per slice")
        if form == "tomopy":
            center = None  # ignored there too
    own = client is None
    client = client or Client()
    made = []
    try:
        data = client.buffers.put(np.ascontiguousarray(tomo))
        made.append(data.name)
        initial = ""
        if init_recon is not None:
            start = np.asarray(init_recon, np.float32)
            if start.shape != (slices, size, size):
                raise ValueError(f"init_recon has the shape {start.shape}; allowed is {(slices, size, size)}")
            initial = client.buffers.put(np.ascontiguousarray(_to_server(start, form))).name
            made.append(initial)
        work = tomography(t.ProjectionArrays(projections=data.name, sinogram_order=sinogram_order), algorithm=name, form=form, center=center,
                          angles=theta, prepare=preparation(already_sinograms=True), initial=initial, batch=nchunk or 0, image_size=size, **options)
        job = client.submit_job(work, device=_device(client, device))
        try:
            for job in client.watch_job(job.name):
                if progress:
                    progress(job)
        except BaseException:
            client.cancel_job(job.name)
            raise
        if job.state != job_pb2.JOB_DONE:
            client.wait_job(job.name)  # raises what it failed of
        try:
            result = client.read(job.volumes[0])
        finally:
            client.discard(job.volumes[0])
        return _to_tomopy(result, form)
    finally:
        for buffer in made:
            client.buffers.destroy(buffer)
        if own:
            client.close()


def _to_tomopy(volume: np.ndarray, form: str) -> np.ndarray:
    return volume


def _to_server(volume: np.ndarray, form: str) -> np.ndarray:
    return volume


def _device(client: Client, device) -> str:
    """"gpu" and "cpu" (or their numbers, 1 and 0, as TomoPy counts) must be there: nothing falls back silently."""
    if device is None or str(device) in ("", "auto") or str(device).startswith("devices/"):
        return str(device or "")
    backend = {"gpu": "cuda", "1": "cuda", "cpu": "host", "0": "host"}.get(str(device).lower())
    if backend is None:
        raise ValueError(f"device is {device!r}; allowed are gpu, cpu, auto, devices/<n>")
    found = [one.name for one in client.devices() if one.backend == backend]
    if not found:
        raise ValueError(f"device is {device!r}, but the server has none of it: {', '.join(one.backend for one in client.devices())}")
    return "" if len(found) == len(client.devices()) else found[0]
