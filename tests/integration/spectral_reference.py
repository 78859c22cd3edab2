"""The spectral chain in double precision with NumPy. It follows the equations and is the reference
for every backend.

Shapes: records [R, S] (raw numbers), result [R, D] in value units, or in the stored form if there
are levels.
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


def rolling_background(records, window, group):
    """For each record of a group, the mean of the last `window` records, including all of its
    group; window 0: the mean of the group. [R, S]"""
    out = np.empty(records.shape)
    for begin in range(0, len(records), group):
        end = min(begin + group, len(records))
        out[begin:end] = records[max(0, end - window) if window else begin:end].mean(axis=0)
    return out


def positions_of_wavelength(wavelength_nm):
    """r[S]: positions of samples that are equally spaced in k = 2π/λ, on the spectrometer's axis."""
    k, at = 2 * np.pi / np.asarray(wavelength_nm, np.float64), np.arange(len(wavelength_nm), dtype=np.float64)
    if k[0] > k[-1]:
        k, at = k[::-1], at[::-1]
    return np.interp(np.linspace(k[0], k[-1], len(k)), k, at)


def pack12(samples, raw_type):
    """Records [R, n] of 12 bits, two samples in three bytes: "u12p" low bits first, "u12_packed" high bits first. [R, bytes]"""
    count = samples.shape[1]
    even = np.asarray(samples[:, 0::2], np.uint16)
    odd = np.zeros_like(even)
    odd[:, :count // 2] = samples[:, 1::2]
    if raw_type == "u12p":
        triple = (even & 255, even >> 8 | (odd & 15) << 4, odd >> 4)
    else:
        triple = (even >> 4, (even & 15) | (odd & 15) << 4, odd >> 4)
    packed = np.stack(triple, axis=2).astype(np.uint8).reshape(len(samples), -1)
    return packed[:, :(3 * count + 1) // 2]


def fixed_pattern(z, kind):
    """The fixed pattern of B-scans z [Y, X, D] per depth: the complex mean over X, or over the
    quietest of 9 segments. [Y, 1, D]"""
    if kind == "mean":
        return z.mean(axis=1, keepdims=True)
    edges = [z.shape[1] * s // 9 for s in range(10)]
    segments = [z[:, a:b] for a, b in zip(edges[:-1], edges[1:])]
    variance = np.stack([(np.abs(s - s.mean(axis=1, keepdims=True)) ** 2).mean(axis=1) for s in segments])
    means = np.stack([s.mean(axis=1) for s in segments])
    return np.take_along_axis(means, variance.argmin(axis=0)[None], axis=0)[0][:, None]


def lanczos(x):
    """Lanczos kernel of 4 lobes."""
    return np.where(np.abs(x) < 4, np.sinc(x) * np.sinc(x / 4), 0)


def resample(spectra, r, kind):
    """Linear, cubic by Catmull-Rom, or Lanczos with weights that sum to 1; taps outside are
    clamped."""
    last = spectra.shape[1] - 1
    i = np.floor(r).astype(int)
    t = r - i
    if kind == "lanczos":
        taps = np.arange(-3, 5)
        weights = lanczos(t - taps[:, None])
        return sum(w * spectra[:, np.clip(i + o, 0, last)] for w, o in zip(weights / weights.sum(axis=0), taps))
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
    return {"magnitude": np.abs, "power": lambda v: np.abs(v) ** 2, "real": np.real, "complex": lambda v: v}[kind](z)


def stored(value, levels, dtype):
    """Step 7: the stored values."""
    if levels is None:
        return value
    share = (value - levels[0]) / (levels[1] - levels[0])
    if dtype in ("f16", "f32"):
        return share
    bottom, top = {"u8": (0, 255), "i8": (-128, 127), "u16": (0, 65535)}[dtype]
    scaled = bottom + share * (top - bottom)
    return np.clip(np.sign(scaled) * np.floor(np.abs(scaled) + 0.5), bottom, top)
