"""Phantoms and simulated errors of projections, in NumPy: names, argument order and defaults of tomopy.misc.phantom and tomopy.sim.project.

The add_ functions return a new array and leave their input as it is. seed: a whole number or a numpy.random.Generator; the same
number gives the same errors; None: others each time. Arrays of floating-point numbers keep their type.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

import numpy as np

from octavo.arguments import array, explained, real, whole
from octavo.names import short

__all__ = ["add_drift", "add_gaussian", "add_poisson", "add_rings", "add_salt_pepper", "add_zingers", "shepp2d", "shepp3d"]

Seed = Union[None, int, np.random.Generator]

# Shepp and Logan 1974 with the contrasts of Toft 1996. Value, half axes, middle, and Euler angles in degrees (z, x, z) of the
# ellipsoids: those of tomopy.misc.phantom.
_ELLIPSOIDS = (
    (1.0, (.6900, .920, .810), (0, 0, 0), (90, 90, 90)),
    (-.8, (.6624, .874, .780), (0, -.0184, 0), (90, 90, 90)),
    (-.2, (.1100, .310, .220), (.22, 0, 0), (-108, 90, 100)),
    (-.2, (.1600, .410, .280), (-.22, 0, 0), (108, 90, 100)),
    (.1, (.2100, .250, .410), (0, .35, -.15), (90, 90, 90)),
    (.1, (.0460, .046, .050), (0, .1, .25), (90, 90, 90)),
    (.1, (.0460, .046, .050), (0, -.1, .25), (90, 90, 90)),
    (.1, (.0460, .023, .050), (-.08, -.605, 0), (90, 90, 90)),
    (.1, (.0230, .023, .020), (0, -.606, 0), (90, 90, 90)),
    (.1, (.0230, .046, .020), (.06, -.605, 0), (90, 90, 90)))
# The same of the ellipses in the plane, with one angle.
_ELLIPSES = (
    (1.0, (.69, .92), (0, 0), 0), (-.8, (.6624, .874), (0, -.0184), 0), (-.2, (.11, .31), (.22, 0), -18), (-.2, (.16, .41), (-.22, 0), 18),
    (.1, (.21, .25), (0, .35), 0), (.1, (.046, .046), (0, .1), 0), (.1, (.046, .046), (0, -.1), 0), (.1, (.046, .023), (-.08, -.605), 0),
    (.1, (.023, .023), (0, -.606), 0), (.1, (.023, .046), (.06, -.605), 0))


@explained()
def shepp2d(size: Union[int, Tuple[int, int]] = 512, dtype: Any = "float32") -> np.ndarray:
    """The modified Shepp-Logan phantom [1, y, x], values 0 to 1, y downwards; the ellipse of the skull is 0.92 of the height. Drawn from its ellipses at
    any size, where tomopy.shepp2d scales a picture of other values. size  rows and columns, or (rows, columns)."""
    rows, columns = _extents(size, 2)
    y, x = -_middles(rows)[:, None], _middles(columns)[None, :]
    image = np.zeros((rows, columns))
    for value, (a, b), (x0, y0), degrees in _ELLIPSES:
        c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
        u, v = (x - x0) * c + (y - y0) * s, (y - y0) * c - (x - x0) * s
        image += value * ((u / a) ** 2 + (v / b) ** 2 <= 1)
    return _image(image, dtype)[None]


@explained()
def shepp3d(size: Union[int, Tuple[int, int, int]] = 128, dtype: Any = "float32") -> np.ndarray:
    """The modified Shepp-Logan phantom in three dimensions, values 0 to 1: the array of tomopy.shepp3d. size  of each axis, or of the three."""
    shape = _extents(size, 3)
    x, y, z = (np.linspace(-1, 1, n) for n in shape)
    volume = np.zeros(shape)
    for value, axes, middle, degrees in _ELLIPSOIDS:
        turn = _euler(*np.radians(degrees))
        for i, at in enumerate(x):  # a plane at a time
            squares = np.zeros(shape[1:])
            for row, axis, origin in zip(turn, axes, middle):
                squares += ((row[0] * at + row[1] * y[:, None] + row[2] * z[None, :] - origin) / axis) ** 2
            volume[i] += value * (squares <= 1)
    return _image(volume, dtype)


@explained()
def add_drift(tomo: Any, amp: float = 0.2, period: float = 50, mean: float = 1) -> np.ndarray:
    """The projections [angle, row, column] times the illumination amp sin(2 pi i / period) + mean + i / (angles - 1) of projection i, as
    tomopy.sim.project.add_drift: the last term lets it rise by 1 over the scan."""
    tomo = _projections(tomo)
    period = real("period", period)
    if not (np.isfinite(period) and period != 0):
        raise ValueError(f"period is {short(period)}; expected projections of a period, not 0")
    i = np.arange(len(tomo))
    drift = _finite("amp", amp) * np.sin(2 * np.pi / period * i) + _finite("mean", mean) + np.linspace(0, 1, len(tomo))
    return (tomo * drift[:, None, None]).astype(_float(tomo))


@explained()
def add_gaussian(tomo: Any, mean: float = 0, std: Optional[float] = None, *, seed: Seed = None) -> np.ndarray:
    """Adds Gaussian noise. std  its standard deviation; None: 0.05 of the largest value."""
    tomo = _projections(tomo)
    std = 0.05 * float(tomo.max()) if std is None else std
    return (tomo + _generator(seed).normal(_finite("mean", mean), _not_negative("std", std), tomo.shape)).astype(_float(tomo))


@explained()
def add_poisson(tomo: Any, *, seed: Seed = None) -> np.ndarray:
    """Poisson noise: whole numbers (int64) whose means are the values, which are counts, 0 or more."""
    tomo = _projections(tomo)
    if not (tomo.min() >= 0 and tomo.max() < 9e18):  # also NaN
        raise ValueError(f"tomo has values from {tomo.min()} to {tomo.max()}; expected counts from 0 to 9e18")
    return _generator(seed).poisson(tomo)


@explained()
def add_rings(tomo: Any, std: float = 0.05, *, seed: Seed = None) -> np.ndarray:
    """The projections times a sensitivity of each pixel of the detector, normally distributed about 1 with the standard deviation std."""
    tomo = _projections(tomo)
    return (tomo * _generator(seed).normal(1, _not_negative("std", std), (1, *tomo.shape[1:]))).astype(_float(tomo))


@explained()
def add_salt_pepper(tomo: Any, prob: float = 0.01, val: Optional[float] = None, *, seed: Seed = None) -> np.ndarray:
    """A part `prob` of the values, chosen at random, becomes val; None: the largest value."""
    tomo = _projections(tomo)
    return _spoiled(tomo, _part("prob", prob), "val", tomo.max() if val is None else val, seed)


@explained()
def add_zingers(tomo: Any, f: float = 0.01, sat: float = 2 ** 16, *, seed: Seed = None) -> np.ndarray:
    """A part `f` of the values, chosen at random, is saturated: becomes sat."""
    tomo = _projections(tomo)
    return _spoiled(tomo, _part("f", f), "sat", sat, seed)


def _spoiled(tomo: np.ndarray, part: float, name: str, value: Any, seed: Seed) -> np.ndarray:
    value = real(name, value)
    if tomo.dtype.kind in "ui" and not (value.is_integer() and np.iinfo(tomo.dtype).min <= value <= np.iinfo(tomo.dtype).max):
        raise ValueError(f"{name} is {value:g}, which {tomo.dtype} does not hold; expected a whole number from {np.iinfo(tomo.dtype).min} to "
                         f"{np.iinfo(tomo.dtype).max}")
    made = tomo.copy()
    made[_generator(seed).random(tomo.shape) < part] = int(value) if tomo.dtype.kind in "ui" else value
    return made


def _projections(tomo: Any) -> np.ndarray:
    made = array("tomo", tomo, None, "[angle, row, column]")
    if made.dtype.kind not in "uif":
        raise ValueError(f"tomo is {short(made)}; expected real numbers")
    if made.size == 0:
        raise ValueError(f"tomo has the shape {made.shape}; expected one value or more")
    return made


def _float(tomo: np.ndarray) -> np.dtype:
    """The type of a result: of whole numbers float32."""
    return tomo.dtype.newbyteorder("=") if tomo.dtype.kind == "f" else np.dtype(np.float32)


def _generator(seed: Seed) -> np.random.Generator:
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(None if seed is None else whole("seed", seed, 0, 2 ** 63 - 1))


def _finite(name: str, value: Any) -> float:
    number = real(name, value)
    if not np.isfinite(number):
        raise ValueError(f"{name} is {short(value)}; expected a finite number")
    return number


def _not_negative(name: str, value: Any) -> float:
    number = real(name, value)
    if not (np.isfinite(number) and number >= 0):
        raise ValueError(f"{name} is {short(value)}; expected 0 or more")
    return number


def _part(name: str, value: Any) -> float:
    number = real(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name} is {short(value)}; expected a part from 0 to 1")
    return number


def _extents(size: Any, count: int) -> tuple:
    sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,) * count
    if len(sizes) != count:
        raise ValueError(f"size is {short(size)}; expected a whole number, or {count} of them")
    return tuple(whole("size", one, 1, 2 ** 16) for one in sizes)


def _middles(n: int) -> np.ndarray:
    """The middles of n pixels that cover -1 to 1."""
    return (np.arange(n) - (n - 1) / 2) / (n / 2)


def _image(values: np.ndarray, dtype: Any) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind != "f":
        raise ValueError(f"dtype is {short(dtype)}; expected a type of real numbers: float16, float32, float64")
    return np.maximum(values, 0).astype(kind)  # 1 - 0.8 - 0.2 is not 0 exactly


def _euler(phi: float, theta: float, psi: float) -> np.ndarray:
    """The rotation by Euler angles about z, x, z."""
    def about(cosine, sine, i, j):
        turn = np.eye(3)
        turn[i, i] = turn[j, j] = cosine
        turn[i, j], turn[j, i] = sine, -sine
        return turn

    return (about(np.cos(psi), np.sin(psi), 0, 1) @ about(np.cos(theta), np.sin(theta), 1, 2) @ about(np.cos(phi), np.sin(phi), 0, 1))
