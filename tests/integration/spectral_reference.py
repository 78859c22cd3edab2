"""The spectral chain in double precision, written from its equations with NumPy: what every backend is compared with.

Shapes: records [R, S] (raw numbers), result [R, D] in value units, or as stored when there are levels.
"""

import numpy as np

WINDOWS = {
    "rect": lambda n: np.ones(n),
    "hann": lambda n: 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / (n - 1)),
    "hamming": lambda n: 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(n) / (n - 1)),
    "gauss": lambda n: np.exp(-0.5 * ((np.arange(n) - (n - 1) / 2) / (0.4 * (n - 1) / 2)) ** 2),
    "blackman": lambda n: np.blackman(n),
    "flat_top": lambda n: sum(a * np.cos(2 * np.pi * i * np.arange(n) / (n - 1))
                              for i, a in enumerate((0.21557895, -0.41663158, 0.277263158, -0.083578947, 0.006947368))),
}


def rolling_background(records, window, block):
    """For each record the mean of the last `window` records, all of its own block included. [R, S]"""
    out = np.empty(records.shape)
    for begin in range(0, len(records), block):
        end = min(begin + block, len(records))
        out[begin:end] = records[max(0, end - window):end].mean(axis=0)
    return out


def positions_of_wavelength(wavelength_nm):
    """r[S]: where samples that are equally spaced in k = 2π/λ lie on the spectrometer's axis."""
    k, at = 2 * np.pi / np.asarray(wavelength_nm, np.float64), np.arange(len(wavelength_nm), dtype=np.float64)
    if k[0] > k[-1]:
        k, at = k[::-1], at[::-1]
    return np.interp(np.linspace(k[0], k[-1], len(k)), k, at)


def resample(spectra, r, kind):
    """Linear, or cubic by Catmull-Rom; taps outside are clamped."""
    last = spectra.shape[1] - 1
    i = np.floor(r).astype(int)
    t = r - i
    p = [spectra[:, np.clip(i + o, 0, last)] for o in (-1, 0, 1, 2)]
    if kind == "linear":
        return (1 - t) * p[1] + t * p[2]
    return 0.5 * (2 * p[1] + (p[2] - p[0]) * t + (2 * p[0] - 5 * p[1] + 4 * p[2] - p[3]) * t ** 2 + (3 * p[1] - p[0] - 3 * p[2] + p[3]) * t ** 3)


def depth_profiles(records, *, background=None, r=None, interpolation="cubic", window="hann", a2=0.0, a3=0.0, phase=None, fft_length=0,
                   first_bin=0, depth=0):
    """Steps 1 to 4: complex z [R, D]."""
    y = np.asarray(records, np.float64)
    if background is not None:
        y = y - background
    if r is not None:
        y = resample(y, np.asarray(r, np.float64), interpolation)
    n = y.shape[1]
    h = WINDOWS[window](n) if isinstance(window, str) else np.asarray(window, np.float64)
    d = np.arange(n) - n / 2
    h = h * np.exp(1j * (np.asarray(phase, np.float64) if phase is not None else a2 * d ** 2 + a3 * d ** 3))
    f = fft_length or n
    return np.fft.ifft(y * h, n=f, axis=1)[:, first_bin:first_bin + (depth or f // 2 - first_bin)]


def value_of(z, kind):
    """Step 6, in value units."""
    if kind == "db":
        return 20 * np.log10(np.maximum(np.abs(z), 1e-15))
    return np.abs(z) if kind == "magnitude" else np.abs(z) ** 2


def stored(value, levels, dtype):
    """Step 7: what the volume holds."""
    if levels is None:
        return value
    share = (value - levels[0]) / (levels[1] - levels[0])
    if dtype == "f32":
        return share
    top = {"u8": 255, "u16": 65535}[dtype]
    return np.clip(np.floor(share * top + 0.5), 0, top)
