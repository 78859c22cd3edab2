"""Chains of preparation steps on projections of this process: few jobs, whose results in between stay on the server."""

from __future__ import annotations

import contextlib
import enum
import math
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from octavo import errors
from octavo.arguments import array, explained, explained_methods, real, whole
from octavo.array_jobs import ArrayJobs
from octavo.client import Client
from octavo.devices import TOMOPY_NUMBERS, device_name
from octavo.names import closest, short
from octavo.objects import Job
from octavo.tomography import AXIS_ARGUMENTS, angles_of, doubt_attenuation, preparation, recon, recon_work, sinograms, takes_no_axis, tomography
from octavo.v1 import tomography_pb2 as t

# Functions of TomoPy without a counterpart, and what to do instead.
REFUSED = {"remove_stripe_ti": "Titarenko's method has no counterpart; remove_stripe_based_sorting and remove_stripe_fw are for the same rings",
           "remove_stripe_sf": "the smoothing filter has no counterpart; remove_stripe_based_sorting is for the same rings",
           **dict.fromkeys(("remove_stripe_based_filtering", "remove_stripe_based_fitting"), "Vo's algorithms 1 and 2 have no counterpart; "
                           "remove_stripe_based_sorting (algorithm 3) and remove_all_stripe are for the same rings"),
           "remove_stripe_based_interpolation": "it has no counterpart; remove_large_stripe and remove_dead_stripe are for the same rings",
           **dict.fromkeys(("stripes_detect3d", "stripes_mask3d"), "stripes are removed without a mask: remove_all_stripe"),
           "normalize_roi": "it has no counterpart: arr / arr[:, y0:y1, x0:x1].mean(axis=(1, 2), keepdims=True); normalize_bg takes air columns",
           "remove_outlier1d": "it has no counterpart; remove_outlier takes the median within frames",
           "remove_outlier3d": "it has no counterpart; remove_outlier takes the median within frames",
           "remove_outlier_cuda": "remove_outlier runs on the server's GPU", "remove_ring": "rings of slices have no counterpart; remove_all_stripe removes them "
           "from the projections", "write_center": "octavo.tomography(..., try_centers=(begin, end, step)) makes a volume of trial slices"}

_WAVELETS = {"haar": 1, **{f"db{order}": order for order in range(1, 9)}}
_MOST_RINGS = 8  # in a job
_NATIVE = ("u1", "u2", "i2", "f4")  # types that jobs take

# The caller's arguments for fields of the request.
_ARGUMENTS = {**AXIS_ARGUMENTS, "tomography.arrays.flats": "flat", "tomography.arrays.darks": "dark", "tomography.preparation.stitching": "theta",
              "tomography.preparation.phase": "retrieve_phase"}


class Stage(enum.IntEnum):
    """The order of the steps within a job."""
    OUTLIERS = 0
    FIELDS = 1
    BINS = 2
    PHASE = 3
    AIR = 4
    LOGARITHM = 5
    RINGS = 6
    STITCHING = 7


class Step:
    """A call of a chain. fields: of TomographyPreparation; frames: flat and dark fields [frame, row, column]."""

    def __init__(self, stage: Stage, frames: Sequence[np.ndarray] = (), **fields: Any):
        self.stage, self.frames, self.fields = stage, list(frames), fields


class Work:
    """Steps that one job does, in their order, on `theta` (None: not known) of projections that are integrals or not."""

    def __init__(self, theta: Optional[np.ndarray], angles: int, integrals: bool):
        self.steps: List[Step] = []
        self._theta, self._angles, self._integrals = theta, angles, integrals

    def takes(self, step: Step) -> bool:
        """Whether a job that does the step after the others gives what one job after another would."""
        stages = [one.stage for one in self.steps]
        if not stages or stages[-1] < step.stage:
            return not any(self._differ(one, step) for one in self.steps)
        if stages[-1] != step.stage:
            return False
        if step.stage == Stage.BINS:  # of another axis
            return not any(one.fields.keys() & step.fields.keys() for one in self.steps)
        return step.stage == Stage.RINGS and stages.count(Stage.RINGS) < _MOST_RINGS

    def _differ(self, first: Step, then: Step) -> bool:
        """Whether a job does more than the two steps: it cleans the fields, too; it bins counts and fields before it divides them; it counts phase
        retrieval's pixels before the bins."""
        pair = (first.stage, then.stage)
        return (pair in ((Stage.OUTLIERS, Stage.FIELDS), (Stage.FIELDS, Stage.BINS))
                or (pair == (Stage.BINS, Stage.PHASE) and "bin_angles" not in first.fields)
                or (pair == (Stage.BINS, Stage.STITCHING) and "bin_angles" in first.fields and self._theta is None))

    def fields(self, stage: Stage) -> Dict[str, Any]:
        return {name: value for step in self.steps if step.stage == stage for name, value in step.fields.items()}

    def has(self, stage: Stage) -> bool:
        return any(step.stage == stage for step in self.steps)

    @property
    def frames(self) -> List[np.ndarray]:
        return [frames for step in self.steps for frames in step.frames]

    @property
    def preparation(self) -> t.TomographyPreparation:
        fields = {name: value for step in self.steps if step.stage != Stage.RINGS for name, value in step.fields.items()}
        rings = [step.fields for step in self.steps if step.stage == Stage.RINGS]
        as_it_is = self._integrals and not self.has(Stage.LOGARITHM) and not self.has(Stage.FIELDS)
        return preparation(rings=rings, already_sinograms=as_it_is, logarithm=None if as_it_is else self.has(Stage.LOGARITHM),
                           ignore_fields=None if self.has(Stage.FIELDS) else True, **fields)

    @property
    def angles(self) -> np.ndarray:
        """Those of the input. Where they are not known, they do not matter, but for the half turn of stitching."""
        if self._theta is not None:
            return self._theta
        half = max(1, self._angles // 2)
        return np.arange(self._angles) * (np.pi / half if self.has(Stage.STITCHING) else 1e-6)


@explained_methods
class Chain:
    """Steps of preparation on projections, which the server does in the order of the calls. Made by octavo.prep.chain().

    Each step returns the chain. get() and recon() compute: as few jobs as possible, each of as many steps as follow the order outliers,
    normalize, downsample, phase, air, minus log, rings, 360 to 180 degrees; what lies between two jobs stays on the server and is
    discarded. They end the chain, unless it is used in a `with` block: there the result of get() stays on the server until the block
    ends, and further steps go on from it. An error frees everything and ends the chain, too.

    shape  [angle, row, column] after the steps so far;  theta  the angles, radians, None if not known
    """

    def __init__(self, arr: Any, theta: Any = None, client: Optional[Client] = None, *, named: str = "arr"):
        self._named = named
        self._array: Optional[np.ndarray] = projections_of(named, arr)  # until the first job has it
        self._dtype = getattr(arr, "dtype", self._array.dtype)
        self.shape = self._array.shape
        self.theta: Optional[np.ndarray] = None
        if theta is not None:
            self.theta = finite("theta", angles_of(theta, self.shape[0], named))
        # What the values are: "counts" of a detector, "transmissions", "integrals", or not known.
        self._values = "counts" if self._dtype.kind in "ui" else ""
        self._client = client
        self._jobs: Optional[ArrayJobs] = None
        self._held = ""  # the volume of what is computed so far
        self._pending: List[Work] = []
        self._entered = self._ended = False

    # -- steps

    def normalize(self, flat: Any, dark: Any, cutoff: Optional[float] = None, averaging: str = "mean", *, dark_averaging: Optional[str] = None) -> "Chain":
        """See octavo.prep.normalize. dark_averaging  of the dark fields; None: as the flat ones."""
        self._refuse_integrals("normalize")
        medians = [_is_median("averaging", averaging), _is_median("dark_averaging", averaging if dark_averaging is None else dark_averaging)]
        frames = [self._fields("flat", flat), self._fields("dark", dark)]
        self._add(Step(Stage.FIELDS, frames, flat_median=medians[0], dark_median=medians[1], cutoff=None if cutoff is None else positive("cutoff", cutoff)))
        self._values = "transmissions"
        return self

    def minus_log(self) -> "Chain":
        """See octavo.prep.minus_log."""
        self._refuse_counts("minus_log")
        self._refuse_integrals("minus_log")
        self._add(Step(Stage.LOGARITHM))
        self._values = "integrals"
        return self

    def normalize_bg(self, air: int = 1) -> "Chain":
        """See octavo.prep.normalize_bg."""
        air = whole("air", air, 1, self.shape[2])
        self._add(Step(Stage.AIR, air_left=air, air_right=air))
        self._values = "transmissions"
        return self

    def remove_outlier(self, dif: float, size: int = 3) -> "Chain":
        """See octavo.prep.remove_outlier."""
        return self._add(Step(Stage.OUTLIERS, outliers=dict(window=odd("size", size, 15), difference=positive("dif", dif))))

    def retrieve_phase(self, pixel_size: float = 1e-4, dist: float = 50, energy: float = 20, alpha: float = 1e-3, pad: bool = True, *,
                       delta_beta: Optional[float] = None) -> "Chain":
        """See octavo.prep.retrieve_phase."""
        self._refuse_counts("retrieve_phase")
        self._refuse_integrals("retrieve_phase")
        if pad is not True:
            raise ValueError(f"pad is {short(pad)}; expected True: edges are always continued with their values")
        if delta_beta is not None and alpha != 1e-3:
            raise ValueError(f"alpha is {short(alpha)} and delta_beta {short(delta_beta)}; expected one of the two")
        ratio = (1 / (4 * math.pi ** 2 * within("alpha", alpha, 2.6e-8, 2.5)) if delta_beta is None else within("delta_beta", delta_beta, 0.01, 1e6))
        return self._add(Step(Stage.PHASE, phase=dict(
            pixel_size_um=1e4 * within("pixel_size", pixel_size, 1e-7, 0.1, "cm"), distance_mm=10 * within("dist", dist, 1e-4, 1e5, "cm"),
            energy_kev=within("energy", energy, 1, 1000, "keV"), delta_beta=ratio)))

    def downsample(self, level: int = 1, axis: int = 2) -> "Chain":
        """See octavo.prep.downsample."""
        axis = whole("axis", axis, 0, 2)
        least = 2 if axis == 2 else 1
        level = whole("level", level, 0, 31)
        if self.shape[axis] >> level < least:
            raise ValueError(f"level is {level}; expected one that leaves {least} or more of the {self.shape[axis]} along axis {axis}")
        name = ("bin_angles", "bin_rows", "bin_columns")[axis]
        while level > 0:
            step = min(level, 2)  # a job bins up to four
            self._add(Step(Stage.BINS, **{name: 1 << step}))
            self.shape = tuple(size >> step if i == axis else size for i, size in enumerate(self.shape))
            if axis == 0 and self.theta is not None:
                self.theta = _binned(self.theta, 1 << step)
            level -= step
        return self

    def remove_stripe_fw(self, level: Optional[int] = None, wname: str = "db5", sigma: float = 2, pad: bool = True) -> "Chain":
        """See octavo.prep.remove_stripe_fw."""
        if str(wname).lower() not in _WAVELETS:
            raise ValueError(f"wname is {short(wname)}; expected one of {', '.join(_WAVELETS)}{closest(str(wname), _WAVELETS)}")
        levels = min(16, (max(self.shape) - 1).bit_length()) if level is None else whole("level", level, 1, 16)
        return self._ring("fourier_wavelet", wavelet_levels=max(levels, 1), wavelet_order=_WAVELETS[wname.lower()], wavelet_sigma=positive("sigma", sigma),
                          wavelet_padding=truth("pad", pad))

    def remove_stripe_based_sorting(self, size: Optional[int] = None, dim: int = 1) -> "Chain":
        """See octavo.prep.remove_stripe_based_sorting."""
        _one_dimension(dim)
        return self._ring("sorting", **({} if size is None else dict(sorting_window=odd("size", size, 511))))

    def remove_large_stripe(self, snr: float = 3, size: int = 51, drop_ratio: float = 0.1, norm: bool = True) -> "Chain":
        """See octavo.prep.remove_large_stripe."""
        ratio = max(within("drop_ratio", drop_ratio, 0, 0.8), 1e-9)  # 0 would be the usual one
        return self._ring("large_stripe", snr=positive("snr", snr), stripe_window=odd("size", size, 511), drop_ratio=ratio, rescale_columns=truth("norm", norm))

    def remove_dead_stripe(self, snr: float = 3, size: int = 51, norm: bool = True) -> "Chain":
        """See octavo.prep.remove_dead_stripe."""
        if norm is not True:
            raise ValueError(f"norm is {short(norm)}; expected True: residual stripes are always removed")
        return self._ring("dead_stripe", snr=positive("snr", snr), stripe_window=odd("size", size, 511))

    def remove_all_stripe(self, snr: float = 3, la_size: int = 61, sm_size: int = 21, dim: int = 1) -> "Chain":
        """See octavo.prep.remove_all_stripe."""
        _one_dimension(dim)
        return self._ring("all_stripe", snr=positive("snr", snr), stripe_window=odd("la_size", la_size, 511), sorting_window=odd("sm_size", sm_size, 511))

    def sino_360_to_180(self, overlap: float = 0, rotation: str = "left") -> "Chain":
        """See octavo.prep.sino_360_to_180."""
        angles, rows, columns = self.shape
        if rotation not in ("left", "right"):
            raise ValueError(f"rotation is {short(rotation)}; expected 'left' or 'right', the side of the axis")
        if angles < 2:
            raise ValueError(f"{self._named} has {angles} projection; expected 2 or more, over 360 degrees")
        columns_both = within("overlap", overlap, 2, columns, f"columns that both halves see, for {columns} columns: they must overlap, where TomoPy's 0 puts one "
                              f"half beside the other. octavo.preparation(stitching=dict(axis_right={rotation == 'right'})) of octavo.tomography finds it")
        self._add(Step(Stage.STITCHING, stitching=dict(axis_right=rotation == "right", overlap=columns_both)))
        self.shape = (angles // 2, rows, columns + math.floor(columns - columns_both))
        if self.theta is not None:
            self.theta = self.theta[:angles // 2]
        return self

    # -- results

    def get(self, out: Optional[np.ndarray] = None, progress: Optional[Callable] = None) -> np.ndarray:
        """The projections after all steps, float32 [angle, row, column]; out is filled and returned if given. progress is called with each
        octavo.v1.Job."""
        self._check_not_ended()
        if out is not None:
            check_out(out, self.shape)
        if not self._pending and self._array is not None:  # nothing to do
            return _filled(out, self._array.astype(np.float32))
        with _Computing(self) as jobs:
            self._run(jobs, self._pending, progress)
            return _filled(out, np.swapaxes(jobs.client.read(self._held), 0, 1))

    @explained(recon, covered=("tomo", "theta", "sinogram_order", "client"))
    def recon(self, center: Any = None, algorithm: Optional[str] = None, init_recon: Any = None, *, device: Any = None, progress: Optional[Callable] = None,
              **options: Any) -> np.ndarray:
        """Reconstructs the projections after all steps, without reading them back: the slices [slice, y, x], float32. The arguments are those of
        octavo.recon; center counts the columns after all steps. chain() needs theta."""
        self._check_not_ended()
        if self.theta is None:
            raise ValueError("theta is None; expected the angles in octavo.prep.chain(arr, theta), which a reconstruction needs")
        angles, rows, columns = self.shape
        last = self._pending[-1] if self._pending else Work(self.theta, angles, self._values == "integrals")
        if last.has(Stage.STITCHING) and center is not None:  # a job that stitches takes the axis from the overlap
            last = Work(self.theta, angles, self._values == "integrals")
        work, init_recon = recon_work((rows, angles, columns), last.angles, last.preparation, center, algorithm=algorithm, init_recon=init_recon, **options)
        self._doubt()
        bins = last.fields(Stage.BINS).get("bin_columns", 1)
        note = contextlib.nullcontext()
        if bins > 1 and not last.has(Stage.STITCHING) and not takes_no_axis(work["form"]):
            work["center"] = _unbinned(work["center"], bins, columns)
            note = errors.noting(f"Columns are those before downsample: column c of them is (c - {(bins - 1) / 2:g}) / {bins} of the chain.")
        initial = [] if init_recon is None else [init_recon]

        def make(arrays: t.ProjectionArrays, more: List[str]) -> t.TomographyJob:
            return tomography(arrays, initial="".join(more), **work)

        with _Computing(self) as jobs:
            device = device_name(jobs.client, device, TOMOPY_NUMBERS)
            self._run(jobs, [one for one in self._pending if one is not last], progress, device)
            with note:
                job = self._job(jobs, last, make, initial, progress, device)
            return jobs.read(job.volume_names[0])

    def close(self) -> None:
        """Frees what the chain holds on the server, and ends it. The end of a `with` block does that."""
        jobs, self._jobs, self._held, self._ended, self._array = self._jobs, None, "", True, None
        self._pending.clear()
        if jobs is not None:
            jobs.close()

    def __enter__(self) -> "Chain":
        self._check_not_ended()
        self._entered = True
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<octavo.prep.Chain {self.shape}{' that has ended' if self._ended else ''}>"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(why_not("a chain", name, [one for one in dir(type(self)) if not one.startswith("_")]))

    # -- the work

    def _add(self, step: Step) -> "Chain":
        self._check_not_ended()
        if not self._pending or not self._pending[-1].takes(step):
            self._pending.append(Work(self.theta, self.shape[0], self._values == "integrals"))
        self._pending[-1].steps.append(step)
        return self

    def _ring(self, method: str, **fields: Any) -> "Chain":
        return self._add(Step(Stage.RINGS, removal_method=method, **fields))

    def _run(self, jobs: ArrayJobs, works: Sequence[Work], progress: Optional[Callable], device: str = "") -> None:
        """Does these pending works, which are the first ones."""
        for work in list(works):
            def make(arrays: t.ProjectionArrays, more: List[str], work: Work = work) -> t.TomographyJob:
                return sinograms(arrays, prepare=work.preparation, angles=work.angles)

            job = self._job(jobs, work, make, [], progress, device)
            before, self._held = self._held, job.volume_names[0]
            self._array = None
            self._pending.remove(work)
            jobs.discard(before)

    def _job(self, jobs: ArrayJobs, work: Work, make: Callable[[t.ProjectionArrays, List[str]], t.TomographyJob], more: List[np.ndarray],
             progress: Optional[Callable], device: str = "") -> Job:
        """The finished job of `make`, on the current projections. more: further arrays, whose buffers are given to `make`."""
        frames = list(work.frames)
        given = [] if self._array is None else [self._array]
        kinds = {one.dtype for one in given + frames} | ({np.dtype(np.float32)} if self._array is None else set())
        if len(kinds) > 1:  # projections and fields have one type
            given, frames = ([one.astype(np.float32) for one in some] for some in (given, frames))
        held = self._held

        def of(names: List[str]) -> t.TomographyJob:
            names = list(names)
            arrays = t.ProjectionArrays(projections=held or names.pop(0), sinogram_order=bool(held))
            if frames:
                arrays.flats, arrays.darks = names.pop(0), names.pop(0)
            return make(arrays, names)

        with errors.renaming(_ARGUMENTS):
            return jobs.run(of, [*given, *frames, *more], device=device, progress=progress)

    def _doubt(self) -> None:
        if self._values == "transmissions":
            errors.warn("the chain gives transmissions, and they are reconstructed as they are; minus_log() makes line integrals of them")
        elif self._values != "integrals" and self._array is not None:
            doubt_attenuation(self._array, self._dtype, 0)

    def _refuse_integrals(self, step: str) -> None:
        if self._values == "integrals" and not self._ended:
            raise ValueError(f"{step} comes after minus_log, which makes line integrals; it takes what was measured. Expected {step} before minus_log, and one minus_log")

    def _refuse_counts(self, step: str) -> None:
        if self._values == "counts":
            raise ValueError(f"{self._named} is {self._dtype}: whole numbers, which are counts of a detector; {step} takes transmissions, 0 to 1. "
                             f"normalize(flat, dark) makes them; {self._named}.astype(np.float32) for numbers that are some")

    def _fields(self, name: str, value: Any) -> np.ndarray:
        """Flat or dark fields [frame, row, column]."""
        frames = native(name, array(name, value, None, "[frame, row, column] or [row, column]"))
        frames = frames if frames.ndim == 3 else frames[None]
        if frames.shape[1:] != self.shape[1:] or not 1 <= len(frames) <= 4096:
            raise ValueError(f"{name} has the shape {np.shape(value)}; expected [frame, row, column], 1 to 4096 frames, or [row, column], with the "
                             f"{self.shape[1]} rows and {self.shape[2]} columns of {self._named}")
        return finite(name, frames)

    def _check_not_ended(self) -> None:
        if self._ended:
            raise ValueError("this chain has ended, with get(), recon(), close() or an error; octavo.prep.chain(arr) begins another, and in a `with` block "
                             "one goes on after get()")


class _Computing:
    """Gives a chain's ArrayJobs. Ends the chain at an error, and unless it is in a `with` block."""

    def __init__(self, chain: Chain):
        self._chain = chain

    def __enter__(self) -> ArrayJobs:
        chain = self._chain
        if chain._jobs is None:
            chain._jobs = ArrayJobs("octavo.prep", chain._client)
        return chain._jobs

    def __exit__(self, kind, *_) -> None:
        if kind is not None or not self._chain._entered:
            self._chain.close()


# -- values

def why_not(what: str, name: str, allowed: Sequence[str]) -> str:
    """The sentence for a name that does not exist."""
    if name in REFUSED:
        return f"{what} has no {name}: {REFUSED[name]}"
    return f"{what} has no {name}{closest(name, allowed)}"


def projections_of(name: str, value: Any) -> np.ndarray:
    """Projections [angle, row, column] of a type that jobs take."""
    made = native(name, array(name, value, None, "[angle, row, column]"))
    angles, rows, columns = made.shape
    if not (1 <= angles <= 65535 and 1 <= rows <= 65535 and 2 <= columns <= 32768):
        raise ValueError(f"{name} has the shape {made.shape}; expected [angle, row, column]: 1 to 65535 angles and rows, 2 to 32768 columns")
    return finite(name, made)


def native(name: str, made: np.ndarray) -> np.ndarray:
    """The array, as float32 unless jobs take its type."""
    if made.dtype.kind not in "uif":
        raise ValueError(f"{name} is {short(made)}; expected real numbers")
    if made.dtype.str[1:] in _NATIVE:
        return made
    with np.errstate(over="ignore"):
        narrow = made.astype(np.float32)
    if made.dtype.kind == "f" and not np.array_equal(np.isfinite(narrow), np.isfinite(made)):
        raise ValueError(f"{name} is {short(made)} with values beyond float32, which the server computes in; expected values up to 3.4e38")
    return narrow


def finite(name: str, made: np.ndarray) -> np.ndarray:
    """The array. ValueError for NaN and infinite values."""
    if made.dtype.kind == "f":
        for i, part in enumerate(made):
            good = np.isfinite(part)
            if not np.all(good):
                at = (i, *(int(k) for k in np.argwhere(~good)[0])) if np.ndim(part) else (i,)
                raise ValueError(f"{name} is {made[at]} at {list(at)}; expected finite numbers: np.nan_to_num({name}) replaces others")
    return made


def within(name: str, value: Any, lo: float, hi: float, unit: str = "") -> float:
    number = real(name, value)
    if not lo <= number <= hi:
        raise ValueError(f"{name} is {short(value)}; expected {lo:g} to {hi:g}{unit and ' ' + unit}")
    return number


def positive(name: str, value: Any) -> float:
    number = real(name, value)
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(f"{name} is {short(value)}; expected a number above 0")
    return number


def odd(name: str, value: Any, most: int) -> int:
    number = whole(name, value, 3, most)
    if number % 2 == 0:
        raise ValueError(f"{name} is {number}; expected an odd number from 3 to {most}")
    return number


def truth(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} is {short(value)}; expected True or False")
    return bool(value)


def _is_median(name: str, average: str) -> bool:
    if average not in ("mean", "median"):
        raise ValueError(f"{name} is {short(average)}; expected 'mean' or 'median'")
    return average == "median"


def _one_dimension(dim: Any) -> None:
    if whole("dim", dim, 1, 2) == 2:
        raise ValueError("dim is 2; expected 1: the window of the median lies along the columns")


def check_out(out: Any, shape: tuple) -> None:
    if not isinstance(out, np.ndarray) or out.dtype != np.float32 or out.shape != shape or not out.flags.writeable:
        raise ValueError(f"out is {short(out)}; expected an array of float32 {shape} that can be written")


def _filled(out: Optional[np.ndarray], result: np.ndarray) -> np.ndarray:
    if out is None:
        return np.ascontiguousarray(result)
    out[...] = result
    return out


def _binned(theta: np.ndarray, count: int) -> np.ndarray:
    """The means of `count` successive angles, each reached from the first by the shorter way, as the server counts them."""
    groups = theta[:len(theta) // count * count].reshape(-1, count)
    apart = groups - groups[:, :1]
    return groups[:, 0] + (apart - 2 * np.pi * np.round(apart / (2 * np.pi))).mean(axis=1)


def _unbinned(center: Any, bins: int, columns: int) -> Any:
    """A center of binned columns, in those of the detector; None: the middle of the binned ones."""
    if isinstance(center, str):
        return center
    center = np.atleast_1d((columns - 1) / 2 if center is None else center)
    for one in center:
        within("center", one, -0.5, columns - 0.5, f"for the {columns} columns after downsample")
    return center * bins + (bins - 1) / 2
