"""The rotation axis of projections of this process: the find_center functions of octavo.prep."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import numpy as np

from octavo import errors
from octavo.arguments import explained, whole
from octavo.array_jobs import ArrayJobs
from octavo.client import Client
from octavo.names import short
from octavo.prep_chain import finite, positive, projections_of, real, within
from octavo.tomography import AXIS_ARGUMENTS, ProjectionArrays, angles_of, preparation, sinograms

_MOST_ROWS = 16  # that phase correlation looks at
_LEAST_COLUMNS = 8
_RANGE = 50  # columns on either side that find_center searches
# find_center_pc warns below this correlation, by three standard deviations. Of 242 pairs of simulated projections half a turn apart (32 to 512 columns, 1 to
# 16 rows, 1 to 60 ellipses, noise of 0.001 to 5 standard deviations of a projection) whose axis was found within a column, none lay there. Of pairs 20 to
# 170 degrees apart with a wrong axis and little noise 54 % did: what looks alike from all sides cannot be told.
_LEAST_CORRELATION = 0.8
_FINE, _COARSE = 2.0, 0.05  # columns; part of the columns


@explained()
def find_center(tomo: Any, theta: Any, ind: Optional[int] = None, init: Optional[float] = None, tol: float = 0.5, mask: bool = True, ratio: float = 1.,
                sinogram_order: bool = False, *, client: Optional[Client] = None) -> float:
    """The rotation axis by the sharpest histogram of trial slices, as tomopy.find_center (Donath et al. 2006): line integrals [angle, row, column], or
    with sinogram_order [row, angle, column]; theta in radians. ind  the row (None: the middle one);  tol  columns, 0.01 to 1.

    A pixel index, as there; (columns - 1) / 2 is the middle. An OctavoWarning tells of doubts, which a second method finds.
    Where TomoPy follows the slope from init, this searches within 50 columns of init (None: of the middle), or a quarter of all if that is
    less, and farther if the result is at an end or in doubt. Trial slices are always limited to the disc that all directions see:
    mask=False and other ratios are refused.
    """
    if mask is not True or ratio != 1:
        raise ValueError(f"mask is {short(mask)} and ratio {short(ratio)}; expected True and 1: the search chooses its disc")
    name = "[row, angle, column]" if sinogram_order else "[angle, row, column]"
    if np.ndim(tomo) != 3:
        raise ValueError(f"tomo has the shape {np.shape(tomo)}; expected the axes {name}")
    tomo = np.swapaxes(tomo, 0, 1) if sinogram_order else np.asarray(tomo)
    ind = tomo.shape[1] // 2 if ind is None else whole("ind", ind, 0, tomo.shape[1] - 1)
    rows = _rows("tomo", tomo[:, ind:ind + 1])
    theta = finite("theta", angles_of(theta, len(rows), "tomo"))
    columns = rows.shape[2]
    start = (columns - 1) / 2 if init is None else within("init", init, 0, columns)
    reach = min(_RANGE, columns / 4)
    return _found(rows, theta, "entropy", (start - reach, start + reach), client, tolerance=within("tol", tol, 0.01, 1, "columns"))


@explained()
def find_center_vo(tomo: Any, ind: Optional[int] = None, smin: float = -50, smax: float = 50, srad: float = 6, step: float = 0.25, ratio: float = 0.5,
                   drop: int = 20, ncore: Optional[int] = None, *, theta: Any = None, client: Optional[Client] = None) -> float:
    """The rotation axis by the double wedge, as tomopy.find_center_vo (Vo et al. 2014): transmissions or line integrals [angle, row, column], or a
    sinogram [angle, column], over half a turn. theta  the angles in radians; None, as in TomoPy: evenly spaced over half a turn.

    ind         the row; None: the middle one, or with more than 10 rows the mean of 10 there
    smin, smax  the columns of the search, counted from the middle, as far as there are any; of fewer than 100, a quarter on either side if they are not given;  step  of the fine search, 0.05 to 6
    ratio, drop  see octavo.v1.RotationCenter.object_ratio, drop;  srad  6, the only radius of the fine search

    A pixel index, as there. An OctavoWarning tells of doubts, which a second method finds; then, and at an end of the search, it goes beyond smin and smax.
    """
    if srad != 6:
        raise ValueError(f"srad is {short(srad)}; expected 6: the radius of the fine search cannot be chosen")
    shape = np.shape(tomo)
    if len(shape) not in (2, 3):
        raise ValueError(f"tomo has the shape {shape}; expected the axes [angle, row, column] or [angle, column]")
    tomo = np.asarray(tomo)
    if tomo.ndim == 2:
        tomo, ind = tomo[:, None], 0
    height = tomo.shape[1]
    if ind is None and height > 10:
        rows = _rows("tomo", tomo[:, height // 2 - 5:height // 2 + 5]).mean(axis=1, keepdims=True)
    else:
        row = height // 2 if ind is None else whole("ind", ind, 0, height - 1)
        rows = _rows("tomo", tomo[:, row:row + 1])
    angles = np.arange(len(rows)) * np.pi / len(rows) if theta is None else finite("theta", angles_of(theta, len(rows), "tomo"))
    columns = rows.shape[2]
    if not real("smin", smin) < real("smax", smax) or smax <= -columns / 2 or smin >= columns / 2:
        raise ValueError(f"smin is {short(smin)} and smax {short(smax)}; expected smin below smax, and a part of the {columns} columns, {-columns / 2:g} to {columns / 2:g}")
    middle = (columns - 1) / 2
    if (smin, smax) == (-_RANGE, _RANGE) and columns < 2 * _RANGE:  # near the ends of the detector anything fits
        smin, smax = -columns / 4, columns / 4
    smin, smax = max(smin, -middle), min(smax, middle)
    return _found(rows, angles, "vo", (middle + smin, middle + smax), client, tolerance=within("step", step, 0.05, 6, "columns"),
                  object_ratio=min(positive("ratio", ratio), 4.0), drop=whole("drop", drop, 0, 1024))


@explained()
def find_center_pc(proj1: Any, proj2: Any, tol: float = 0.5, rotc_guess: Optional[float] = None, *, client: Optional[Client] = None) -> float:
    """The rotation axis by the phase correlation of a projection [row, column] and the mirrored one half a turn later, as tomopy.find_center_pc
    (Guizar-Sicairos et al. 2008). tol  columns, 0.01 to 1.

    A pixel index, as there, and so is rotc_guess. Up to 16 rows are compared: of more, the means of 16 groups. The correlation weighs coarse structures more, so results differ by parts of a column.
    The search is the whole detector, with rotc_guess a quarter of it on either side. Two projections are few: an OctavoWarning tells of
    doubts, which a second method finds, and of projections of which one is not the mirror image of the other about the result: those that are not
    half a turn apart.
    """
    shapes = [np.shape(one) for one in (proj1, proj2)]
    for name, shape in zip(("proj1", "proj2"), shapes):
        if len(shape) != 2 or shape != shapes[0]:
            raise ValueError(f"{name} has the shape {shape}; expected [row, column]{'' if name == 'proj1' else f', the shape of proj1, {shapes[0]}'}")
    both = np.concatenate([_rows(name, np.asarray(one)[None]) for name, one in (("proj1", proj1), ("proj2", proj2))])
    if both.shape[1] > _MOST_ROWS:
        both = np.stack([group.mean(axis=1) for group in np.array_split(both, _MOST_ROWS, axis=1)], axis=1)
    columns = both.shape[2]
    around = (0, columns - 1)
    if rotc_guess is not None:
        guess = within("rotc_guess", rotc_guess, 0, columns)
        around = (guess - columns / 4, guess + columns / 4)
    axis = _found(both, np.array([0, np.pi]), "phase_correlation", around, client, tolerance=within("tol", tol, 0.01, 1, "columns"))
    # Fine structures agree within parts of a column alone, and the axis need not be that exact.
    near = [mirror_correlation(both[0], both[1], axis + off) for off in np.arange(-1, 1.01, 0.25)]
    correlation, deviation = max(near, key=lambda one: one[0] if np.isfinite(one[0]) else -np.inf)
    if correlation + 3 * deviation < _LEAST_CORRELATION:
        errors.warn(f"find_center_pc: within a column of {axis:.2f} the correlation of proj1 with the mirror image of proj2 is {correlation:.2f} +- {deviation:.2f}, where "
                    f"projections half a turn apart have about 1 (expected {_LEAST_CORRELATION:g} or more): they are not half a turn apart, the object moved between "
                    "them, or the axis is another one.")
    return axis


def mirror_correlation(first: np.ndarray, second: np.ndarray, axis: float) -> Tuple[float, float]:
    """The correlation coefficient of rows [row, column] with others that are mirrored about the axis, over the columns that both see, and the
    standard deviation that their noise gives it. NaN: they share no structure that could be compared.

    Coarse shapes are alike from all sides, and fine ones are noise: structures of about 2 columns to a twentieth of the row are compared, which projections of
    other angles rarely share. White noise, whose power second differences tell, is taken off the variances: it lowers the coefficient of the two as they are
    to any value, although it does not mislead the search, which looks at coarse structures.
    """
    columns = first.shape[1]
    here = np.arange(np.ceil(max(0, 2 * axis - (columns - 1))), np.floor(min(columns - 1, 2 * axis)) + 1)
    if len(here) < _LEAST_COLUMNS:
        return np.nan, np.nan
    coarse, parts, powers, noises = max(_COARSE * columns, 2 * _FINE), [], [], []
    for rows, at in ((first.astype(np.float64), here), (second.astype(np.float64), 2 * axis - here)):
        band = _smoothed(rows, _FINE) - _smoothed(rows, coarse)
        part = np.stack([np.interp(at, np.arange(columns), row) for row in band])
        parts.append(part - part.mean(axis=1, keepdims=True))
        bend = rows[:, :-2] - 2 * rows[:, 1:-1] + rows[:, 2:]
        noise = np.median(bend * bend) / 0.4549 / 6  # the median of the square of a normal number; 1 + 4 + 1
        noises.append(noise / (2 * np.sqrt(np.pi) * _FINE))  # what is left of it
        powers.append(np.mean(parts[-1] ** 2))
    signals = [max(power - noise, 1e-3 * power) for power, noise in zip(powers, noises)]
    if min(signals) <= 0:
        return np.nan, np.nan
    shares = [noise / signal for noise, signal in zip(noises, signals)]
    samples = first.shape[0] * len(here) / (2 * np.sqrt(np.pi) * _FINE)  # that are independent
    return (float(np.mean(parts[0] * parts[1]) / np.sqrt(signals[0] * signals[1])),
            float(np.sqrt((shares[0] + shares[1] + 2 * shares[0] * shares[1]) / samples)))


def _smoothed(rows: np.ndarray, sigma: float) -> np.ndarray:
    """With a Gaussian along the rows; they go on with their end values."""
    reach = int(4 * sigma) + 1
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    padded = np.pad(rows, ((0, 0), (reach, reach)), "edge")
    return np.stack([np.convolve(row, kernel / kernel.sum(), "valid") for row in padded])


def _rows(name: str, rows: np.ndarray) -> np.ndarray:
    """The rows to look at, float32 [angle, row, column]."""
    rows = projections_of(name, rows).astype(np.float32)
    if rows.shape[2] < _LEAST_COLUMNS:
        raise ValueError(f"{name} has {rows.shape[2]} columns; expected {_LEAST_COLUMNS} or more for a search of the axis")
    return rows


def _found(rows: np.ndarray, theta: np.ndarray, method: str, search: Tuple[float, float], client: Optional[Client], **fields: float) -> float:
    """The axis that a job finds. search: pixel indices."""
    columns = rows.shape[2]
    begin, end = (float(np.clip(one, 0, columns - 1)) for one in search)

    def make(names):
        job = sinograms(ProjectionArrays(projections=names[0]), prepare=preparation(already_sinograms=True), angles=theta, center=method, center_row=0,
                        search=(begin, end))
        for name, value in fields.items():
            setattr(job.center, name, value)
        return job

    with ArrayJobs("octavo.prep", client) as jobs, errors.renaming(AXIS_ARGUMENTS):
        return jobs.run(make, [rows]).tomography.centers[0]
