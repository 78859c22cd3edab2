"""Preparation of projections as array calls: names, argument order and defaults of TomoPy, for scripts that keep their form.

    from octavo import prep
    tomo = prep.normalize(proj, flat, dark)
    tomo = prep.minus_log(tomo)
    image = octavo.recon(tomo, theta, center=prep.find_center_vo(tomo))

Arrays are [angle, row, column]: u8, u16, i16 and float32 are sent as they are, other real numbers as float32; results are new
arrays of float32. Each call is a job of the server, whose buffers and result end with the call, also if it fails. chain() does
several steps with few jobs and without reading in between.

Arguments of all calls: out  an array of float32 of the result's shape, filled and returned (it may be the input);  client  the
connection to use (default: a new one);  ncore, nchunk  without effect, as in octavo.recon. NaN and infinite values are refused
(ValueError); what the server doubts is an OctavoWarning. A table in TOMOGRAPHY.md beside this package lists what differs from TomoPy.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import numpy as np

from octavo.arguments import explained, whole
from octavo.client import Client
from octavo.names import short
from octavo.prep_centers import find_center, find_center_pc, find_center_vo
from octavo.prep_chain import Chain, check_out, finite, native, projections_of, why_not

__all__ = ["Chain", "chain", "downsample", "find_center", "find_center_pc", "find_center_vo", "minus_log", "normalize", "normalize_bg", "normalize_nf",
           "remove_all_stripe", "remove_dead_stripe", "remove_large_stripe", "remove_outlier", "remove_stripe_based_sorting", "remove_stripe_fw",
           "retrieve_phase", "sino_360_to_180"]


def __getattr__(name: str) -> Any:
    raise AttributeError(why_not("octavo.prep", name, __all__))


@explained()
def chain(arr: Any, theta: Any = None, client: Optional[Client] = None) -> Chain:
    """Begins a chain of steps on projections [angle, row, column]; theta  their angles in radians, needed for its recon().

        image = (octavo.prep.chain(proj, theta).normalize(flat, dark).minus_log().remove_stripe_fw()
                 .recon(center=295.0, algorithm="sirt", num_iter=100))

    The steps are the functions of this module, without the array; .get() gives the projections, .recon(...) the slices.
    """
    return Chain(arr, theta, client)


@explained()
def normalize(arr: Any, flat: Any, dark: Any, cutoff: Optional[float] = None, ncore: Optional[int] = None, out: Optional[np.ndarray] = None,
              averaging: str = "mean", *, client: Optional[Client] = None) -> np.ndarray:
    """Transmissions (arr - dark) / max(flat - dark, 1e-6), as tomopy.normalize. flat, dark  [frame, row, column] or [row, column];  averaging  "mean",
    "median" over their frames;  cutoff  the largest transmission, above 0.

    Flat fields that are darker than the dark ones are refused (OctavoError); TomoPy would divide by 1e-6.
    """
    return _one("arr", arr, out, client, lambda on: on.normalize(flat, dark, cutoff, averaging))


@explained()
def normalize_nf(tomo: Any, flats: Any, dark: Any, flat_loc: Sequence[int], cutoff: Optional[float] = None, ncore: Optional[int] = None,
                 out: Optional[np.ndarray] = None, averaging: str = "mean", *, client: Optional[Client] = None) -> np.ndarray:
    """Transmissions with the nearest of several sets of flat fields, as tomopy.normalize_nf: flats [frame, row, column] holds as many frames for each of
    the sets, which were taken at the projections flat_loc. Each set counts by its median, dark by `averaging`.

    A job for each set. Nothing is interpolated, as in TomoPy; octavo.preparation(flats_in_time=True) interpolates, for files.
    """
    tomo = projections_of("tomo", tomo)
    if out is not None:
        check_out(out, tomo.shape)
    frames = native("flats", np.asarray(flats))
    count = len(flat_loc) if hasattr(flat_loc, "__len__") else 0
    if frames.ndim != 3 or frames.shape[1:] != tomo.shape[1:] or not 1 <= count <= len(frames):
        raise ValueError(f"flats has the shape {frames.shape} and flat_loc is {short(flat_loc)}; expected [frame, row, column] with the {tomo.shape[1]} rows "
                         f"and {tomo.shape[2]} columns of tomo, and one or more places, for each of them as many frames")
    finite("flats", frames)
    places = [whole(f"flat_loc[{i}]", one, 0, len(tomo)) for i, one in enumerate(flat_loc)]
    if any(a >= b for a, b in zip(places, places[1:])):
        raise ValueError(f"flat_loc is {short(places)}; expected growing numbers of projections")
    each = len(frames) // count
    ends = [int(np.round((b - a) / 2)) + a for a, b in zip(places, places[1:])] + [len(tomo)]
    result = np.empty(tomo.shape, np.float32)
    own = Client() if client is None else None
    try:
        begin = 0
        for i, end in enumerate(ends):
            if end > begin:
                part = Chain(tomo[begin:end], client=client or own, named="tomo")
                part.normalize(frames[i * each:(i + 1) * each], dark, cutoff, "median", dark_averaging=averaging).get(result[begin:end])
            begin = max(begin, end)
    finally:
        if own is not None:
            own.close()
    if out is None:
        return result
    out[...] = result
    return out


@explained()
def minus_log(arr: Any, ncore: Optional[int] = None, out: Optional[np.ndarray] = None, *, client: Optional[Client] = None) -> np.ndarray:
    """Line integrals -log(arr) of transmissions, as tomopy.minus_log. Whole numbers are refused: they are counts.

    Transmissions below 1e-6, also 0 and negative ones, count as 1e-6 (13.8), where TomoPy gives infinity or NaN.
    """
    return _one("arr", arr, out, client, lambda on: on.minus_log())


@explained()
def normalize_bg(tomo: Any, air: int = 1, ncore: Optional[int] = None, nchunk: Optional[int] = None, *, out: Optional[np.ndarray] = None,
                 client: Optional[Client] = None) -> np.ndarray:
    """Each row of each projection divided by the line between the means of its `air` outermost columns at both ends, as tomopy.normalize_bg.

    An OctavoWarning tells of columns in which the object is seen. A mean of 0 or less, which TomoPy takes as 1, is taken as it is, and what is infinite then becomes 0 with an OctavoWarning.
    """
    return _one("tomo", tomo, out, client, lambda on: on.normalize_bg(air))


@explained()
def remove_outlier(arr: Any, dif: float, size: int = 3, axis: int = 0, ncore: Optional[int] = None, out: Optional[np.ndarray] = None, *,
                   client: Optional[Client] = None) -> np.ndarray:
    """Values that are `dif` or more above the median of their surroundings become that median, as tomopy.misc.corr.remove_outlier. size  of the square,
    odd, 3 to 15;  axis  across the frames in which the square lies: 0 projections, 1 sinograms, 2 planes of one column; edges are mirrored.
    """
    axis = whole("axis", axis, 0, 2)
    if axis == 0:
        return _one("arr", arr, out, client, lambda on: on.remove_outlier(dif, size))
    arr = projections_of("arr", arr)
    if out is not None:
        check_out(out, arr.shape)
    turned = np.swapaxes(arr, 0, axis)
    if turned.shape[2] < 2:
        raise ValueError(f"arr has the shape {arr.shape}; expected 2 angles or more with axis=2")
    made = np.swapaxes(_one("arr", turned, None, client, lambda on: on.remove_outlier(dif, size)), 0, axis)
    if out is None:
        return np.ascontiguousarray(made)
    out[...] = made
    return out


@explained()
def retrieve_phase(tomo: Any, pixel_size: float = 1e-4, dist: float = 50, energy: float = 20, alpha: float = 1e-3, pad: bool = True,
                   ncore: Optional[int] = None, nchunk: Optional[int] = None, *, delta_beta: Optional[float] = None, out: Optional[np.ndarray] = None,
                   client: Optional[Client] = None) -> np.ndarray:
    """Single-distance phase retrieval of transmissions, as tomopy.retrieve_phase (Paganin 2002). pixel_size, dist  in cm;  energy  in keV;  alpha
    TomoPy's regularisation, 2.6e-8 to 2.5;  delta_beta  instead of alpha: delta / beta of the object, 0.01 to 1e6.

    The filter is 1 / (1 + wavelength * dist * f^2 / (4 pi alpha)), f in cycles per length, so alpha = 1 / (4 pi^2 delta_beta): 1e-3 is a
    delta_beta of 25.3. TomoPy takes it half a step of f beside the frequencies of its transform, this at them: results differ by some
    thousandths of small projections, and less of larger ones. pad=False, which TomoPy does not do either, is refused. Line integrals, of which the
    logarithm was taken already, are an OctavoWarning, where air beside the object shows them.
    """
    return _one("tomo", tomo, out, client, lambda on: on.retrieve_phase(pixel_size, dist, energy, alpha, pad, delta_beta=delta_beta))


@explained()
def downsample(arr: Any, level: int = 1, axis: int = 2, *, out: Optional[np.ndarray] = None, client: Optional[Client] = None) -> np.ndarray:
    """The means of 2^level neighbours along an axis, 0 angles, 1 rows, 2 columns, as tomopy.downsample. A remainder is dropped; TomoPy's code mixes up
    rows or columns where there is one."""
    return _one("arr", arr, out, client, lambda on: on.downsample(level, axis))


@explained()
def remove_stripe_fw(tomo: Any, level: Optional[int] = None, wname: str = "db5", sigma: float = 2, pad: bool = True, ncore: Optional[int] = None,
                     nchunk: Optional[int] = None, *, out: Optional[np.ndarray] = None, client: Optional[Client] = None) -> np.ndarray:
    """Ring removal by wavelets and Fourier transforms, as tomopy.remove_stripe_fw (Muench et al. 2009). level  1 to 16 (None: log2 of the largest
    extent, rounded up);  wname  "haar", "db1" to "db8": others are refused."""
    return _one("tomo", tomo, out, client, lambda on: on.remove_stripe_fw(level, wname, sigma, pad))


@explained()
def remove_stripe_based_sorting(tomo: Any, size: Optional[int] = None, dim: int = 1, ncore: Optional[int] = None, nchunk: Optional[int] = None, *,
                                out: Optional[np.ndarray] = None, client: Optional[Client] = None) -> np.ndarray:
    """Ring removal by sorting, as tomopy.remove_stripe_based_sorting (Vo et al. 2018, algorithm 3). size  columns of the median, odd, 3 to 511; None: a
    hundredth of them, from 5 to 21, one more if that is even. dim=2 is refused."""
    return _one("tomo", tomo, out, client, lambda on: on.remove_stripe_based_sorting(size, dim))


@explained()
def remove_large_stripe(tomo: Any, snr: float = 3, size: int = 51, drop_ratio: float = 0.1, norm: bool = True, ncore: Optional[int] = None,
                        nchunk: Optional[int] = None, *, out: Optional[np.ndarray] = None, client: Optional[Client] = None) -> np.ndarray:
    """Removal of large stripes, as tomopy.remove_large_stripe (Vo et al. 2018, algorithm 5). size  odd, 3 to 511;  drop_ratio  0 to 0.8. norm does not
    divide by factors of 0 or less, which columns of line integrals about 0 have."""
    return _one("tomo", tomo, out, client, lambda on: on.remove_large_stripe(snr, size, drop_ratio, norm))


@explained()
def remove_dead_stripe(tomo: Any, snr: float = 3, size: int = 51, norm: bool = True, ncore: Optional[int] = None, nchunk: Optional[int] = None, *,
                       out: Optional[np.ndarray] = None, client: Optional[Client] = None) -> np.ndarray:
    """Removal of unresponsive and fluctuating columns, as tomopy.remove_dead_stripe (Vo et al. 2018, algorithm 6, then 5). size  odd, 3 to 511.
    norm=False, algorithm 6 alone, is refused."""
    return _one("tomo", tomo, out, client, lambda on: on.remove_dead_stripe(snr, size, norm))


@explained()
def remove_all_stripe(tomo: Any, snr: float = 3, la_size: int = 61, sm_size: int = 21, dim: int = 1, ncore: Optional[int] = None,
                      nchunk: Optional[int] = None, *, out: Optional[np.ndarray] = None, client: Optional[Client] = None) -> np.ndarray:
    """Removal of all types of stripes, as tomopy.remove_all_stripe (Vo et al. 2018, algorithms 6, 5 and 3). la_size, sm_size  odd, 3 to 511. dim=2 is
    refused."""
    return _one("tomo", tomo, out, client, lambda on: on.remove_all_stripe(snr, la_size, sm_size, dim))


@explained()
def sino_360_to_180(data: Any, overlap: float = 0, rotation: str = "left", *, out: Optional[np.ndarray] = None, client: Optional[Client] = None) -> np.ndarray:
    """A scan over 360 degrees, with the axis near the "left" or "right" end of the rows, as one over 180 degrees of nearly twice the columns, as
    tomopy.sino_360_to_180. overlap  columns that both halves see, 2 or more; an odd last projection is dropped.

    Parts of columns count, by linear interpolation, where TomoPy rounds. An overlap of 0 or 1, also TomoPy's default, is refused: 0 puts one half beside the
    other, which fits only if the axis is at the very end of the rows. octavo.tomography finds the overlap (preparation(stitching=dict(axis_right=...))).
    """
    return _one("data", data, out, client, lambda on: on.sino_360_to_180(overlap, rotation))


def _one(name: str, value: Any, out: Optional[np.ndarray], client: Optional[Client], step: Callable[[Chain], Chain]) -> np.ndarray:
    """The result of one step. name: of the argument with the projections."""
    return step(Chain(value, client=client, named=name)).get(out)
