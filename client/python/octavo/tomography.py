"""Tomography: jobs from files, arrays and pushed projections, and recon(), which takes the
arguments of tomopy.recon."""

from __future__ import annotations

import os
from typing import Any, Callable, Literal, Optional, Sequence, Union

import numpy as np

from octavo import errors
from octavo.arguments import array, builder, explained, message, several, short, whole
from octavo.array_jobs import ArrayJobs
from octavo.client import Client
from octavo.devices import TOMOPY_NUMBERS, device_name
from octavo.names import Names, Types
from octavo.v1 import ingest_pb2, tomography_pb2 as t, types_pb2

_OPTIONS = t.TomographyAlgorithmOptions
_RINGS = t.TomographyPreparation.Rings
# Names of TomoPy, tomopy-cli and ASTRA for methods that exist here, and what to do instead of those
# that do not.
_REFUSED = {"art": "goes ray by ray; sirt and cgls solve the same equations", "bart": "is sirt with blocks (num_block, subsets)",
            "osem": "is mlem with blocks (num_block, subsets)", "lprec": "is a direct method; fourier gives the same", "astrasart": "goes ray by ray; take sirt",
            **{name: "has no counterpart: nothing is regularised"
               for name in ("ospml_hybrid", "ospml_quad", "pml_hybrid", "pml_quad", "grad", "tikh", "vector")}}
ALGORITHMS = Names({"fbp": _OPTIONS.ALGORITHM_FBP, "fourier": _OPTIONS.ALGORITHM_FOURIER, "auto": _OPTIONS.ALGORITHM_AUTO, "sirt": _OPTIONS.ALGORITHM_SIRT, "mlem": _OPTIONS.ALGORITHM_MLEM, "cgls": _OPTIONS.ALGORITHM_CGLS,
                    "tv": _OPTIONS.ALGORITHM_TV},
                   aliases={"gridrec": "auto", "fourierrec": "fourier", "astrasirt": "sirt", "astracgls": "cgls"}, refused=_REFUSED, of=_OPTIONS.Algorithm)
FORMS = Names({"corrected": _OPTIONS.FORM_CORRECTED, "tomopy": _OPTIONS.FORM_TOMOPY}, of=_OPTIONS.Form)
INTERPOLATIONS = Names({"nearest": _OPTIONS.INTERPOLATION_NEAREST, "linear": _OPTIONS.INTERPOLATION_LINEAR, "cubic": _OPTIONS.INTERPOLATION_CUBIC}, aliases={"nn": "nearest"},
                       of=_OPTIONS.Interpolation)
FILTERS = Names({"ramp": _OPTIONS.FILTER_RAMP, "shepp-logan": _OPTIONS.FILTER_SHEPP_LOGAN, "cosine": _OPTIONS.FILTER_COSINE, "hann": _OPTIONS.FILTER_HANN,
                 "hamming": _OPTIONS.FILTER_HAMMING, "parzen": _OPTIONS.FILTER_PARZEN, "butterworth": _OPTIONS.FILTER_BUTTERWORTH},
                aliases={"shepp": "shepp-logan", "ramlak": "ramp", "ram-lak": "ramp", "hanning": "hann"},
                refused={"none": "an unfiltered back projection has no counterpart"}, of=_OPTIONS.Filter)
CENTERS = Names({"auto": t.RotationCenter.METHOD_AUTO, "pairs": t.RotationCenter.METHOD_PAIRS, "vo": t.RotationCenter.METHOD_VO, "entropy": t.RotationCenter.METHOD_ENTROPY,
                 "phase_correlation": t.RotationCenter.METHOD_PHASE_CORRELATION, "file_or_auto": t.RotationCenter.METHOD_FILE_OR_AUTO},
                aliases={"find_center_vo": "vo", "find_center": "entropy", "find_center_pc": "phase_correlation"},
                also="or the column itself, one for all slices or one for each", of=t.RotationCenter.Method)
ALONG_ROWS = Names({"one": t.RotationCenter.ALONG_ROWS_ONE, "line": t.RotationCenter.ALONG_ROWS_LINE, "turn": t.RotationCenter.ALONG_ROWS_TURN}, of=t.RotationCenter.AlongRows)
HALF_TURNS = Names({"all": t.HALF_TURN_ALL, "first": t.HALF_TURN_FIRST, "second": t.HALF_TURN_SECOND, "best": t.HALF_TURN_BEST}, of=t.HalfTurn)
DOUBTS = Names({"warn": t.RotationCenter.ON_DOUBT_WARN, "fail": t.RotationCenter.ON_DOUBT_FAIL}, of=t.RotationCenter.OnDoubt)
RINGS = Names({"sorting": _RINGS.METHOD_SORTING, "large_stripe": _RINGS.METHOD_LARGE_STRIPE, "dead_stripe": _RINGS.METHOD_DEAD_STRIPE, "all_stripe": _RINGS.METHOD_ALL_STRIPE,
               "fourier_wavelet": _RINGS.METHOD_FOURIER_WAVELET},
              aliases={"fw": "fourier_wavelet", "vo-all": "all_stripe", "remove_stripe_fw": "fourier_wavelet", "remove_all_stripe": "all_stripe",
                       "remove_dead_stripe": "dead_stripe", "remove_large_stripe": "large_stripe", "remove_stripe_based_sorting": "sorting"},
              refused={**dict.fromkeys(("ti", "titarenko", "remove_stripe_ti"), "Titarenko's method has no counterpart; sorting and fourier_wavelet are "
                                                                                "for the same rings"),
                       **dict.fromkeys(("sf", "remove_stripe_sf"), "the smoothing filter has no counterpart; sorting is for the same rings"),
                       "none": "leave rings out"}, of=_RINGS.Method)
PHASES = Names({"paganin": t.TomographyPreparation.Phase.METHOD_PAGANIN, "generalized_paganin": t.TomographyPreparation.Phase.METHOD_GENERALIZED_PAGANIN,
                "farago": t.TomographyPreparation.Phase.METHOD_FARAGO},
               aliases={"Gpaganin": "generalized_paganin", "gpaganin": "generalized_paganin"}, of=t.TomographyPreparation.Phase.Method)
PLACES = Names({"device": t.RESULT_PLACE_DEVICE, "disk": t.RESULT_PLACE_DISK}, of=t.ResultPlace)
SAMPLES = Types({"u8": types_pb2.DTYPE_U8, "u16": types_pb2.DTYPE_U16, "f16": types_pb2.DTYPE_F16, "f32": types_pb2.DTYPE_F32})
FRAME_DTYPES = Types({"u8": types_pb2.DTYPE_U8, "u16": types_pb2.DTYPE_U16, "i16": types_pb2.DTYPE_I16, "f32": types_pb2.DTYPE_F32})
FILE_FORMATS = Names({"data_exchange": t.PROJECTION_FORMAT_DATA_EXCHANGE, "nxtomo": t.PROJECTION_FORMAT_NXTOMO, "npy": t.PROJECTION_FORMAT_NPY, "zarr": t.PROJECTION_FORMAT_ZARR,
                      "tiff": t.PROJECTION_FORMAT_TIFF},
                     aliases={"dx": "data_exchange", "tif": "tiff"}, of=t.ProjectionFormat)
ANGLE_UNITS = Names({"degrees": t.ANGLE_UNIT_DEGREES, "radians": t.ANGLE_UNIT_RADIANS}, aliases={"deg": "degrees", "degree": "degrees", "rad": "radians", "radian": "radians"},
                    of=t.AngleUnit)
Indices = Union[None, int, range, slice, Sequence[int], t.IndexRange]  # some of the projections, rows or columns
Series = Union[None, int, Sequence[int], t.VolumeSeries]  # projections of a volume, and from one to the next
Input = Union[str, dict, t.ProjectionFile, t.ProjectionArrays, ingest_pb2.PushedProjections, t.ProjectionMosaic]


@builder(t.ProjectionFile)
def ProjectionFile(**fields: Any) -> t.ProjectionFile:
    """The message of this name: projections in a file, or a folder of Zarr or TIFF, below a replay root."""
    return message(t.ProjectionFile, fields)


@builder(t.ProjectionArrays)
def ProjectionArrays(**fields: Any) -> t.ProjectionArrays:
    """The message of this name: projections that the server already holds, volumes/... or
    buffers/..."""
    return message(t.ProjectionArrays, fields)


@builder()
def ProjectionMosaic(tiles: Sequence[Any], *, search: int = 0) -> t.ProjectionMosaic:
    """Scans of one object side by side or one above the other, which become one scan of a wider or
    higher detector.

    tiles   for each (file, first_column) or (file, first_column, first_row), where its first pixel lies on the joined detector, in pixels; only
            differences count. file: a path, or a dict of ProjectionFile's fields; or dict(file=, first_column=, first_row=)
    search  0: positions are as given; else they may be wrong by so many pixels between neighbours, at most 512, and are found by what
            overlaps show, best of 40 pixels or more. Job.tomography.mosaic_tiles has them
    """
    if isinstance(tiles, (str, bytes, dict)) or not hasattr(tiles, "__iter__"):
        raise ValueError(f"tiles is {short(tiles)}; expected a list of (file, first_column[, first_row])")
    return t.ProjectionMosaic(tiles=[_tile(f"tiles[{i}]", tile) for i, tile in enumerate(tiles)], search=whole("search", search, 0, 512))


def _tile(where: str, tile) -> t.ProjectionMosaic.Tile:
    if isinstance(tile, t.ProjectionMosaic.Tile):
        return tile
    if isinstance(tile, (tuple, list)) and len(tile) in (2, 3):
        tile = dict(zip(("file", "first_column", "first_row"), tile))
    if not isinstance(tile, dict) or "file" not in tile:
        raise ValueError(f"{where} is {short(tile)}; expected (file, first_column), (file, first_column, first_row) or dict(file=, first_column=, first_row=)")
    file = tile["file"]
    if isinstance(file, (str, os.PathLike)):
        file = dict(path=os.fspath(file))
    return message(t.ProjectionMosaic.Tile, dict(tile, file=file), f"{where}.")


@builder(ingest_pb2.PushedProjections)
def PushedProjections(**fields: Any) -> ingest_pb2.PushedProjections:
    """The message of this name: projections that Client.push_projections sends. rows, columns  of a frame;  frames  how many will come: projections,
    flat and dark fields together;  dtype  "u8", "u16" (the default), "i16", "f32";  raw_type  "u12p" or "u12_packed" for counts of 12 bits, two in
    three bytes: a quarter less to send, to keep and to upload; the result is that of the same counts as "u16"."""
    return message(ingest_pb2.PushedProjections, fields, names={"dtype": FRAME_DTYPES})


def _range(name: str, value) -> Optional[t.IndexRange]:
    """slice, (begin, end[, step]) or one index. Not a list, which would mean single indices; the
    contract has no such selection."""
    if value is None or isinstance(value, t.IndexRange):
        return value
    if isinstance(value, (slice, range)):
        parts = (value.start, value.stop, value.step)
    elif isinstance(value, (int, np.integer)):
        parts = (value, value + 1, None)
    elif isinstance(value, tuple) and len(value) in (2, 3):
        parts = (*value, None)[:3]
    elif isinstance(value, (list, np.ndarray)):
        raise ValueError(f"{name} is {short(value)}: the server does not choose single indices; expected a slice, range(begin, end, step), (begin, end), "
                         f"(begin, end, step) or one index: {name}=slice(1, 3) and {name}=(1, 3) are 1 and 2")
    else:
        raise ValueError(f"{name} is {short(value)}; expected a slice, (begin, end), (begin, end, step) or one index")
    begin, end, step = (None if part is None else whole(f"{name}.{what}", part, 0, 2 ** 32 - 1) for what, part in zip(("begin", "end", "step"), parts))
    if end is not None and end <= (begin or 0):
        raise ValueError(f"{name} is from {begin or 0} to {end}, which holds nothing; expected an end above the begin, or None for the last one")
    return t.IndexRange(begin=begin or 0, end=end or 0, step=step or 0)


@builder(t.TomographyPreparation)
def preparation(*, rings: Union[str, Sequence] = (), outliers: Optional[dict] = None, phase: Optional[dict] = None,
                stitching: Optional[dict] = None, dynamic_flats: Union[None, bool, int, dict] = None, row_drift: Union[None, bool, float, dict] = None,
                **fields: Any) -> t.TomographyPreparation:
    """From counts to sinograms: fields of octavo.v1.TomographyPreparation.

    rings      "sorting", "large_stripe", "dead_stripe", "all_stripe", "fourier_wavelet" (also
               TomoPy's names and tomopy-cli's "vo-all", "fw"), one or several, or
               dict(removal_method="sorting", sorting_window=21, ...)
    outliers   dict(window=3, difference=100);  phase  dict(pixel_size_um=, distance_mm=, energy_kev=, delta_beta=, retrieval_method="paganin",
               "generalized_paganin" (feature_size_um=), "farago")
    beam_hardening  (1, b, ...): a line integral p becomes p + b p^2 + ...
    stitching  dict(axis_right=, overlap=): a scan over 360 degrees with the axis at one side
    roll_degrees  how far the axis leans in the plane of the detector; projections are turned by it
    dynamic_flats  True: a beam that changes during the scan; each projection is divided by an open beam of its own, the mean of the flat
               fields plus those of their principal components that exceed noise (Van Nieuwenhove et al. 2015). A number: so many
               components, 1 to 8, less than the flat fields. Job.tomography has flat_components and largest_flat_weight
    row_drift  True: shifts of the projections along the rotation axis are found, up to 5 rows, and undone; a number: up to so many, at most 64.
               row_shifts=(...) gives them, one per projection of the input. Job.tomography has row_shifts and row_shift_uncertainty
    """
    if isinstance(dynamic_flats, bool):
        dynamic_flats = dict(components=0) if dynamic_flats else None
    elif isinstance(dynamic_flats, (int, np.integer)):
        dynamic_flats = dict(components=whole("dynamic_flats", dynamic_flats, 1, 8))
    if isinstance(row_drift, bool):
        row_drift = dict(most_rows=0) if row_drift else None
    elif isinstance(row_drift, (int, float, np.number)):
        if not 0 < row_drift <= 64:
            raise ValueError(f"row_drift is {short(row_drift)}; expected True, or the largest shift in rows, above 0, at most 64")
        row_drift = dict(most_rows=float(row_drift))
    rings = [rings] if isinstance(rings, (str, dict)) else rings
    if isinstance(phase, dict) and isinstance(phase.get("retrieval_method"), str):
        phase = dict(phase, retrieval_method=PHASES.pick("phase.retrieval_method", phase["retrieval_method"]))
    return message(t.TomographyPreparation, dict(rings=[dict(removal_method=RINGS.pick("rings", one)) if isinstance(one, str) else one for one in rings],
                                                 outliers=outliers, phase=phase, stitching=stitching, dynamic_flats=dynamic_flats, row_drift=row_drift, **fields))


# The algorithms that use each option; the others refuse it, like the command line.
_ITERATIVE = ("sirt", "mlem", "cgls", "tv")
_DIRECT = ("fbp", "fourier", "auto")
_USED_BY = {**dict.fromkeys(("filter", "filter_cutoff", "filter_order", "extend_edges"), _DIRECT), "fourier_accuracy": ("fourier",), "tv_weight": ("tv",),
            **dict.fromkeys(("iterations", "padding", "stop_change", "stop_residual"), _ITERATIVE), "initial": _ITERATIVE, "relaxation": ("sirt",),
            **dict.fromkeys(("subsets", "form"), ("sirt", "mlem")), **dict.fromkeys(("ratio_floor", "negative_data_to_zero"), ("mlem",))}
_ONE_BY_DEFAULT = ("iterations", "relaxation", "subsets", "filter_cutoff")  # 1 changes nothing
_USUAL_ITERATIONS = {"sirt": 100, "mlem": 100, "cgls": 20, "tv": 200}


def _check_use(algorithm: str, options: dict) -> None:
    """options: the given options. ValueError for those that the algorithm does
    not use."""
    name = ALGORITHMS.name("algorithm", algorithm)
    for option, value in options.items():
        users = _USED_BY.get(option, (name,))
        if name not in users:
            others = [o for o, by in _USED_BY.items() if name in by and o != "form"]
            raise ValueError(f"{option} is {short(value)} with {algorithm}, which does not use it; give it only with {', '.join(users)}. Of its own "
                             f"{algorithm} has {', '.join(others)}")


def _tell_one_iteration(algorithm: str) -> None:
    usual = _USUAL_ITERATIONS[algorithm]
    errors.warn(f"num_iter is not given: 1 iteration, TomoPy's default, is a blur with {algorithm}; num_iter={usual} is usual")


@builder(_OPTIONS, called={"min_value": "min", "max_value": "max", "mask_ratio": "mask"})
def tomography(input: Input, *, algorithm: Union[str, int] = "auto", iterations: Optional[int] = None, center: Union[None, str, float, Sequence[float]] = None,
               center_row: Optional[int] = None, search: Optional[Sequence[float]] = None, center_doubt: Union[str, int] = "warn",
               along_rows: Union[str, int] = "one", try_centers: Optional[Sequence[float]] = None,
               angles: Optional[Sequence[float]] = None, projections: Indices = None, rows: Indices = None, columns: Indices = None,
               prepare: Optional[t.TomographyPreparation] = None, form: Union[str, int] = "corrected",
               interpolation: Union[str, int] = "", filter: Union[str, int] = "", min: Optional[float] = None, max: Optional[float] = None, mask: Optional[float] = None,
               padding: Optional[int] = None, initial: str = "", batch: int = 0, place: Union[str, int] = "", pixel_size_um: float = 0.0,
               samples: Union[None, str, int, type, np.dtype] = None, window: Optional[Sequence[float]] = None, series: Series = None,
               half_turn: Literal["all", "first", "second", "best"] = "all", **fields: Any) -> t.TomographyJob:
    """A reconstruction, for Client.submit_job: from parallel-beam projections to a held volume
    [slice, y, x].

    input        path of a file below a replay root; dict(path=..., flats=..., ...) of ProjectionFile; ProjectionArrays(projections="buffers/..." or
                 "volumes/..."); PushedProjections(rows=, columns=, frames=): Client.push_projections; ProjectionMosaic([(file, first_column), ...]): scans side
                 by side, joined
    algorithm    "auto" (the default: fourier where it is faster and as good, else fbp), "fbp", "fourier" (the same by gridding), "sirt",
                 "mlem", "cgls", "tv" (total variation, with tv_weight: about the contrast of noise), or "gridrec": auto with its filter; form "corrected", "tomopy" (sirt,
                 mlem). Options that an algorithm does not use are refused
    iterations   of sirt, mlem, cgls, tv; None = the usual number: 100, for cgls 20, for tv 200
    interpolation  "nearest", "linear", "cubic";  filter  "ramp", "shepp-logan", "cosine", "hann", "hamming", "parzen", "butterworth"
    center       column of the axis as a pixel index (an axis in the middle of N columns: (N - 1) /
                 2), one per slice; None = from the file (NXtomo), else the middle; or a method to
                 find it: "auto", "pairs", "vo", "entropy", "phase_correlation", looking at detector
                 row center_row within the columns `search`; "file_or_auto": the file's, else by
                 "auto". A second method checks the result
                 (Job.tomography: center_check, center_uncertainty)
    along_rows   how a search honours an axis that leans in the plane of the detector: "one" (the default: one axis for all slices), "line" (each
                 slice has its own, on a line through several groups of rows), "turn" (projections are turned by its tilt, up to 2 degrees;
                 preparation(roll_degrees=) turns them by a given one). Job.tomography.axis_line has the evidence
    center_doubt  "warn": an axis that is in doubt is a warning of the job; "fail": the job fails
    try_centers  (begin, end, step): one row with many axes instead of a volume
    angles       in radians, replacing the input's; projections, rows, columns slice, range, (begin,
               end), (begin, end, step) or one index
    min, max, mask, padding  bounds of pixels, circle (fraction of the half width, 0 = none), pixels
               around
    place        "device", "disk": the place of the result; initial a held volume or a buffer to
               start from
    samples      type of the voxels: "u8", "u16", "f16", "f32" (the default). u8, u16: (x - low) / (high - low) of the largest number,
                 window=(low, high); without a window it is found in a few slices. Volume.levels and the files have it; Job.tomography
                 counts the clipped voxels. Client.submit_job(commit=...) has the result written to storage
    series       (projections, step): a volume of so many projections every `step` of them (4-D), or projections alone, which follow each other.
                 Each is held as soon as it is complete, while pushed frames still come: Client.series_volumes(job) gives them one by
                 one. commit= needs {index} in its destination
    half_turn    of a scan over 360 degrees or more: "all" (the default: the whole scan), "first", "second", or "best", the one whose projections
                 fit together best. Job.tomography.half_turns says which one was used, and how well each fits. Of pushed projections it is known when
                 all have come. Refused with stitching and with series
    fields       of TomographyAlgorithmOptions: relaxation, subsets, stop_change, stop_residual, image_size, filter_cutoff, fourier_accuracy, ...
    """
    job = _job(input, prepare, angles, projections, rows, columns, batch, place, pixel_size_um, samples, window, series, half_turn)
    job.initial_volume = initial
    if isinstance(center, str):
        job.center.search_method = CENTERS.pick("center", center)
    elif center is not None:
        job.center.pixels.extend(np.atleast_1d(array("center", center, np.float64)).tolist())
    row = {} if center_row is None else dict(row=whole("center_row", center_row, 0, 2 ** 32 - 1))
    if row and try_centers is None:
        job.center.MergeFrom(t.RotationCenter(**row))
    if search is not None:
        job.center.search_begin, job.center.search_end = several("search", search, "begin, end")
    doubt = DOUBTS.pick("center_doubt", center_doubt)
    if doubt not in (0, t.RotationCenter.ON_DOUBT_WARN):
        job.center.on_doubt = doubt
    _set_along_rows(job, along_rows)
    if try_centers is not None and series is not None:
        raise ValueError(f"try_centers is {short(try_centers)} with series {short(series)}; expected one of the two")
    if try_centers is not None:
        begin, end, step = several("try_centers", try_centers, "begin, end, step")
        job.try_centers.CopyFrom(t.TryCenters(begin=begin, end=end, step=step, **row))
    word = next((name for name, number in ALGORITHMS.items() if number == (algorithm or _OPTIONS.ALGORITHM_AUTO)), algorithm)
    if isinstance(word, str):  # pass unknown numbers to the server
        given = dict(iterations=iterations, padding=padding, initial=initial or None, filter=filter or None, form=None if FORMS.pick("form", form) in (0, _OPTIONS.FORM_CORRECTED) else form,
                     **{name: value or None for name, value in fields.items() if name in _USED_BY})
        _check_use(word, {name: value for name, value in given.items() if value is not None and not (name in _ONE_BY_DEFAULT and value == 1)})
    if word == "tv" and not fields.get("tv_weight"):
        raise ValueError(f"tv_weight is {short(fields.get('tv_weight'))} with algorithm tv; expected a number above 0, in the unit of the result: about the noise of an fbp slice")
    if isinstance(algorithm, str) and algorithm.lower() == "gridrec":
        filter = filter or "shepp-logan"  # TomoPy's
    bounds = dict(min_value=min, max_value=max, mask_ratio=mask, padding=padding)
    job.reconstruction.CopyFrom(message(
        _OPTIONS, dict(algorithm=algorithm, form=form, iterations=iterations, interpolation=interpolation or None, filter=filter or None,
                       **bounds, **fields),
        called={"min_value": "min", "max_value": "max", "mask_ratio": "mask"}))
    return job


@builder()
def sinograms(input: Input, *, prepare: Optional[t.TomographyPreparation] = None, angles: Optional[Sequence[float]] = None, projections: Indices = None,
              rows: Indices = None, columns: Indices = None, center: Union[None, str, float] = None, center_row: Optional[int] = None, search: Optional[Sequence[float]] = None,
              along_rows: Union[str, int] = "one", batch: int = 0, place: Union[str, int] = "", pixel_size_um: float = 0.0,
              samples: Union[None, str, int, type, np.dtype] = None, window: Optional[Sequence[float]] = None, series: Series = None,
              half_turn: Literal["all", "first", "second", "best"] = "all") -> t.TomographyJob:
    """What the preparation makes of projections, for Client.submit_job: a held volume of sinograms
    [row, angle, column], without a reconstruction. They are line integrals, or transmissions with
    preparation(logarithm=False). The arguments are those of octavo.tomography; center is a method
    to find the axis, "auto", "pairs", "vo", "entropy", "phase_correlation": Job.tomography.centers.

    ProjectionArrays(projections=<the volume>, sinogram_order=True) gives the volume to a further job,
    as it is with preparation(already_sinograms=True) for line integrals.
    """
    job = _job(input, prepare, angles, projections, rows, columns, batch, place, pixel_size_um, samples, window, series, half_turn)
    job.output = t.TOMOGRAPHY_OUTPUT_SINOGRAMS
    if center is None and center_row is not None:
        raise ValueError(f"center_row is {short(center_row)} without a search of the axis; give it with center, one of {', '.join(CENTERS)}")
    if center is not None and not isinstance(center, str):
        raise ValueError(f"center is {short(center)}; sinograms need no axis: give it to the job that reconstructs them. Expected a method to find it, one of {', '.join(CENTERS)}")
    if center is not None:
        job.center.search_method = CENTERS.pick("center", center)
    if center_row is not None:
        job.center.row = whole("center_row", center_row, 0, 2 ** 32 - 1)
    if search is not None:
        job.center.search_begin, job.center.search_end = several("search", search, "begin, end")
    _set_along_rows(job, along_rows)
    return job


def _set_along_rows(job: t.TomographyJob, along_rows: Union[str, int]) -> None:
    number = ALONG_ROWS.pick("along_rows", along_rows)
    if number not in (0, t.RotationCenter.ALONG_ROWS_ONE):
        job.center.along_rows = number


def _series(value) -> Optional[t.VolumeSeries]:
    """(projections, step), or projections alone."""
    if value is None or isinstance(value, t.VolumeSeries):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        value = (value, value)
    projections, step = several("series", value, "projections, step")
    return t.VolumeSeries(projections=whole("series projections", projections, 1, 65535), step=whole("series step", step, 1, 2 ** 32 - 1))


def _job(input, prepare, angles, projections, rows, columns, batch, place, pixel_size_um, samples, window, series, half_turn) -> t.TomographyJob:
    """What all outputs have: the input, the part of it that counts, the preparation, and how the result is stored."""
    job = message(t.TomographyJob, dict(
        projections=_range("projections", projections), rows=_range("rows", rows), columns=_range("columns", columns), preparation=prepare,
        slices_per_batch=batch, place=place or None, pixel_size_um=pixel_size_um, series=_series(series)),
        called={"preparation": "prepare", "slices_per_batch": "batch"})
    _set_input(job, input)
    half = HALF_TURNS[HALF_TURNS.name("half_turn", half_turn)]  # words alone: 2 could be the second, but is the number of "first"
    if half not in (0, t.HALF_TURN_ALL):
        job.half_turn = half
    if angles is not None:
        job.angles_rad.extend(array("angles", angles, np.float64).ravel().tolist())
    if samples is not None:
        job.samples.type = SAMPLES.pick("samples", samples)
    if window is not None:
        job.samples.low, job.samples.high = several("window", window, "low, high")
        if job.samples.low == job.samples.high == 0:
            raise ValueError("window is (0, 0); low must be less than high. Without a window it is found")
        if job.samples.type not in (types_pb2.DTYPE_U8, types_pb2.DTYPE_U16):
            kind = next((name for name, number in SAMPLES.items() if number == job.samples.type), "f32")
            raise ValueError(f"window is {short(window)} with samples {kind}, which hold the values themselves; give it only with u8, u16")
    return job


def _set_input(job: t.TomographyJob, input) -> None:
    for name, kind in (("file", t.ProjectionFile), ("arrays", t.ProjectionArrays), ("push", ingest_pb2.PushedProjections), ("mosaic", t.ProjectionMosaic)):
        if isinstance(input, kind):
            getattr(job, name).CopyFrom(input)
            return
    if isinstance(input, dict):
        job.file.CopyFrom(message(t.ProjectionFile, input, "input."))
    elif isinstance(input, (str, os.PathLike)):
        job.file.path = os.fspath(input)
    else:
        raise ValueError(f"input is {short(input)}; expected a path, a dict of ProjectionFile's fields, octavo.ProjectionFile(), "
                         "octavo.ProjectionArrays(), octavo.PushedProjections(), octavo.ProjectionMosaic(); arrays of this process: octavo.recon()")


# -- tomopy.recon

_TOMOPY_INTERPOLATIONS = Names({"NN": 0, "LINEAR": 1, "CUBIC": 2}, aliases={"nearest": "NN"})
_TOMOPY_FILTERS = Names({"shepp": 0, "cosine": 1, "hann": 2, "hamming": 3, "ramlak": 4, "parzen": 5, "butterworth": 6},
                        aliases={"shepp-logan": "shepp", "hanning": "hann", "ramp": "ramlak", "ram-lak": "ramlak"}, refused=FILTERS.refused)


def _algorithm(algorithm) -> str:
    """TomoPy's name, "gridrec" by default."""
    name = "gridrec" if algorithm is None else algorithm
    if callable(name):
        raise ValueError("algorithm is a function; expected one of the names fbp, fourier, auto, gridrec, sirt, mlem, cgls, tv")
    return "gridrec" if isinstance(name, str) and name.lower() == "gridrec" else ALGORITHMS.name("algorithm", name)


def _iterative_options(num_iter, num_block, interpolation, filter_name, filter_par) -> dict:
    for argument, value in (("filter_name", filter_name), ("filter_par", filter_par)):
        if value is not None:
            raise ValueError(f"{argument} is {short(value)} with an iterative algorithm, which takes num_iter, num_block, interpolation; filters are for "
                             "fbp, fourier, auto and gridrec")
    options = dict(iterations=whole("num_iter", 1 if num_iter is None else num_iter, 1, 2 ** 32 - 1),
                   subsets=whole("num_block", 1 if num_block is None else num_block, 1, 2 ** 32 - 1))
    if interpolation is not None:
        number = _TOMOPY_INTERPOLATIONS.pick("interpolation", interpolation)
        options["interpolation"] = ("nearest", "linear", "cubic")[whole("interpolation", number, 0, 2)]
    return options


def _direct_options(algorithm: str, num_iter, num_block, interpolation, filter_name, filter_par) -> dict:
    for argument, value in (("num_iter", num_iter), ("num_block", num_block), ("interpolation", interpolation)):
        if value is not None:
            raise ValueError(f"{argument} is {short(value)} with {algorithm}, which does not iterate; it takes filter_name, filter_par, or "
                             "algorithm='sirt', 'mlem', 'cgls', 'tv'")
    name = _TOMOPY_FILTERS.name("filter_name", filter_name or ("shepp" if algorithm == "gridrec" else "ramlak"))
    options = dict(filter=FILTERS.name("filter_name", name))
    if filter_par is not None:
        cutoff, order = [*np.atleast_1d(array("filter_par", filter_par, np.float64)).tolist(), 0.0][:2]
        options.update(filter_cutoff=cutoff, filter_order=order)
    return options


@explained(tomography, covered=("input", "angles", "prepare", "initial", "batch", "image_size", "iterations", "subsets", "filter", "filter_cutoff",
                                "filter_order", "center_row", "search", "try_centers", "projections", "rows", "columns", "pixel_size_um", "samples", "window"))
def recon(tomo: Any, theta: Any, center: Any = None, sinogram_order: bool = False, algorithm: Union[None, str, Callable] = None, init_recon: Any = None, ncore: Optional[int] = None,
          nchunk: Optional[int] = None, *, num_iter: Optional[int] = None, num_gridx: Optional[int] = None, num_gridy: Optional[int] = None,
          num_block: Optional[int] = None, ind_block: Any = None, reg_par: Any = None, filter_name: Optional[str] = None, filter_par: Any = None,
          accelerated: Optional[bool] = None, pool_size: int = 0, interpolation: Union[None, str, int] = None, device: Union[None, str, int] = None,
          grid_size: Any = None, block_size: Any = None, form: Union[str, int] = "corrected", client: Optional[Client] = None, progress: Optional[Callable] = None,
          **fields: Any) -> np.ndarray:
    """Reconstructs on the server like tomopy.recon: the same argument names, the same axes, [slice,
    y, x] float32.

    tomo   [angle, slice, column], or with sinogram_order [slice, angle, column]: line integrals,
           that is, after the minus logarithm (an OctavoWarning for whole numbers, which are usually
           counts, and for values that look like transmissions or cannot be line integrals;
           octavo.tomography takes counts with flat fields); theta radians, [angle]
    center pixel index, as TomoPy's find_center functions and its gridrec count: a number, one per slice, or "auto", "pairs", "vo", "entropy", "phase_correlation"; None = the middle
    form   "corrected" (true scale, centre honoured) or "tomopy" (as its accelerated CPU code: sirt and mlem)
    client the connection to use (default: a new one); progress called with each octavo.v1.Job
    fields of octavo.tomography: min, max, mask, padding, relaxation, stop_change, ...; series: the result is [volume, slice, y, x] then. A table in
    TOMOGRAPHY.md beside this package explains the other arguments. Raises ValueError for arguments
    without a counterpart.
    """
    dtype = getattr(tomo, "dtype", None)
    tomo = array("tomo", tomo, np.float32, "[slice, angle, column]" if sinogram_order else "[angle, slice, column]")
    doubt_attenuation(tomo, dtype, 1 if sinogram_order else 0)
    slices, angles = tomo.shape[:2] if sinogram_order else tomo.shape[1::-1]
    theta = angles_of(theta, angles, "tomo")
    work, init_recon = recon_work(
        (slices, angles, tomo.shape[2]), theta, preparation(already_sinograms=True), center, algorithm=algorithm, init_recon=init_recon, nchunk=nchunk,
        num_iter=num_iter, num_gridx=num_gridx, num_gridy=num_gridy, num_block=num_block, ind_block=ind_block, reg_par=reg_par, filter_name=filter_name,
        filter_par=filter_par, accelerated=accelerated, interpolation=interpolation, form=form, **fields)
    given = [tomo] if init_recon is None else [tomo, init_recon]
    with ArrayJobs("octavo.recon", client) as jobs, errors.renaming(AXIS_ARGUMENTS):
        job = jobs.run(lambda names: tomography(t.ProjectionArrays(projections=names[0], sinogram_order=sinogram_order), initial="".join(names[1:]), **work),
                       given, device=device_name(jobs.client, device, TOMOPY_NUMBERS), progress=progress)
        return jobs.read(job.volume_names[0]) if fields.get("series") is None else np.stack([jobs.read(name) for name in job.volume_names])


def angles_of(theta, count: int, name: str) -> np.ndarray:
    """An angle for each of the `count` projections of the argument `name`."""
    theta = array("theta", theta, np.float64).ravel()
    if len(theta) != count:
        raise ValueError(f"theta has {len(theta)} angles and {name} has {count} projections; expected an angle for each projection")
    return theta


# Arguments of array calls, by the field that the server names.
AXIS_ARGUMENTS = {"tomography.center.pixels": "center", "tomography.angles_rad": "theta"}


def takes_no_axis(form: Union[str, int]) -> bool:
    """Whether the axis is in the middle whatever is given, as in TomoPy's accelerated code."""
    return FORMS.pick("form", form) == _OPTIONS.FORM_TOMOPY


def axis_of(center: Any) -> np.ndarray:
    """The argument `center`: pixel indices."""
    return np.atleast_1d(array("center", center, np.float64)).ravel()


def doubt_axis(center: np.ndarray, columns: int) -> None:
    """An OctavoWarning for half the number of columns, which is the middle only for those who count the edges of columns."""
    if (center == columns / 2).any():
        errors.warn(f"center is {columns / 2:g}, half of {columns} columns, and is taken as a pixel index: the middle is {(columns - 1) / 2:g}. TomoPy's gridrec takes it so, "
                    "too; its iterative algorithms and its project count pixel index + 0.5")


def recon_work(shape: tuple, theta: np.ndarray, prepare: t.TomographyPreparation, center: Any = None, *, algorithm: Optional[str] = None, init_recon: Any = None,
               nchunk: Optional[int] = None, num_iter: Optional[int] = None, num_gridx: Optional[int] = None, num_gridy: Optional[int] = None,
               num_block: Optional[int] = None, ind_block: Any = None, reg_par: Any = None, filter_name: Optional[str] = None, filter_par: Any = None,
               accelerated: Optional[bool] = None, interpolation: Union[None, str, int] = None, form: Union[str, int] = "corrected", ncore: Optional[int] = None,
               pool_size: int = 0, grid_size: Any = None, block_size: Any = None, **fields: Any) -> tuple:
    """The arguments of octavo.tomography for those of recon(), but for the input, and the initial image or None. shape: (slices, angles, columns) of
    what is reconstructed."""
    slices, _, columns = shape
    called = _algorithm(algorithm)
    name = "auto" if called == "gridrec" else called  # the direct methods of this server; same filters
    if num_gridx != num_gridy and None not in (num_gridx, num_gridy):
        raise ValueError(f"num_gridx is {num_gridx} and num_gridy {num_gridy}; slices are square, so both must be the same")
    size = num_gridx or num_gridy or columns
    if ind_block is not None:
        raise ValueError("ind_block has no counterpart: blocks are chosen for even angles (num_block)")
    if reg_par is not None:
        raise ValueError("reg_par has no counterpart; algorithm='tv' has tv_weight, which does not depend on the number of angles")
    if accelerated and name not in ("sirt", "mlem"):
        raise ValueError(f"accelerated is {accelerated} with {called}; give it only with sirt or mlem")  # as TomoPy
    if name in _DIRECT:
        options = _direct_options(called, num_iter, num_block, interpolation, filter_name, filter_par)
    else:
        if name in ("cgls", "tv") and num_block not in (None, 1):
            raise ValueError(f"num_block is {short(num_block)} with {name}, which takes all angles at once; give it only with sirt or mlem")
        options = _iterative_options(num_iter, num_block, interpolation, filter_name, filter_par)
        if num_iter is None:
            _tell_one_iteration(name)
    if center is not None and not isinstance(center, str):
        ignored = takes_no_axis(form)
        center = axis_of(center)
        if len(center) not in (1, slices):
            raise ValueError(f"center has {len(center)} values; expected 1, or {slices}: one for each slice")
        if ignored:
            center = None  # there too
    if init_recon is not None:
        if name in _DIRECT:
            raise ValueError(f"init_recon is given with {called}, which begins with no image; give it only with {', '.join(_ITERATIVE)}")
        init_recon = array("init_recon", init_recon, np.float32)
        if init_recon.shape != (slices, size, size):
            raise ValueError(f"init_recon has the shape {init_recon.shape}; expected {(slices, size, size)}")
    work = dict(algorithm=name, form=form, center=center, angles=theta, prepare=prepare, batch=nchunk or 0, image_size=size, **options, **fields)
    tomography("", **work)  # report errors in them before sending anything
    if isinstance(center, np.ndarray):
        doubt_axis(center, columns)
    return work, init_recon


def doubt_attenuation(tomo: np.ndarray, dtype, angles_axis: int) -> None:
    """An OctavoWarning for data that are hardly attenuation: counts and transmissions. dtype: that
    of tomo."""
    instead = "Attenuation is -log((tomo - dark) / (flat - dark)); octavo.tomography makes it of counts and flat fields"
    said = ""
    look = _some(np.moveaxis(tomo, angles_axis, 0))
    if isinstance(dtype, np.dtype) and dtype.kind in "ui":
        said = f"tomo is {dtype}: whole numbers, which are mostly counts of a detector, are reconstructed as they are. {instead}"
    elif look.size and np.max(look) > 100 and np.array_equal(look, np.floor(look)):
        said = (f"tomo holds only whole numbers, up to {np.max(look):g}: they look like counts of a detector, and are reconstructed as they are. {instead}")
    elif look.size and look.shape[2] >= 8 and np.isfinite(look).all():
        # Line integrals may lie in 0 ... 1, too, but air is 0 there, and the middle is larger than
        # the margins.
        margin = max(1, look.shape[2] // 50)
        outer = np.concatenate([look[..., :margin], look[..., -margin:]], axis=2)
        if why := _impossible(look, outer):
            return errors.warn(f"{why}. {instead}")
        lo, hi = np.percentile(look, (1, 99))
        air, spread = np.median(outer), np.percentile(np.abs(outer - 1), 90)
        if -0.05 <= lo and hi <= 1.2 and abs(air - 1) <= 0.1 and spread <= 0.2 and look[..., margin:-margin].mean() < outer.mean() - 0.005:
            said = (f"tomo looks like transmissions: it is about 1 ({air:.3g}) in the outermost columns and less in between, where attenuation is 0 and "
                    "more. They are reconstructed as they are. Attenuation is -log(tomo)")
    elif why := _impossible(look, None):
        said = f"{why}. {instead}"
    if said:
        errors.warn(said)


def _some(tomo: np.ndarray) -> np.ndarray:
    """About a quarter of a million values of [angle, slice, column], which are looked at in milliseconds: some of the angles, and of the slices if 16 angles
    are still too many."""
    most = 1 << 18
    look = tomo[::max(1, min(tomo.size // most, len(tomo) // 16))]
    return look[:, ::max(1, look.size // most)]


# A ray of this line integral lets through two parts in a thousand million: no detector counts them.
_MOST_EVERYWHERE = 20.0


def _impossible(look: np.ndarray, outer: Optional[np.ndarray]) -> str:
    """Why the values cannot be line integrals of attenuation, which are 0 in air and above 0 in the object; "" if they can. outer: those of the
    outermost columns, None if they do not tell."""
    finite = look[np.isfinite(look)]
    if not finite.size:
        return ""
    lo, hi = np.percentile(finite, (1, 99))
    air = 0.0 if outer is None else float(np.median(outer))
    if lo > _MOST_EVERYWHERE or (lo >= 0 and air > _MOST_EVERYWHERE and finite.mean() < 0.995 * outer.mean()):
        return (f"tomo cannot be attenuation: its values are {lo:.4g} to {hi:.4g}, also where the rays pass the object, and there attenuation is about 0. "
                "They look like counts of a detector, and are reconstructed as they are")
    if hi < -0.1 * lo and finite.mean() < 0:
        return (f"tomo cannot be attenuation: its values are {lo:.4g} to {hi:.4g}, below 0 where the object is. They are reconstructed as they are: is the "
                "minus in front of the logarithm missing?")
    return ""
