"""linumpy.geometry.interface: where the tissue begins. Volumes have the depth last: (X, Y, Z)."""

from __future__ import annotations

import math
from typing import Any, Optional

import numpy as np

from octavo.arguments import short
from octavo.client import Client
from octavo.linumpy._device import Work, dtype_of, is_buffer, ranked


def find_tissue_interface(vol: Any, s_xy: float = 15, s_z: float = 2, use_log: bool = True, mask: Any = None, order: int = 1,
                          detect_cutting_errors: bool = False, *, client: Optional[Client] = None) -> Any:
    """The depth of the steepest rise in each column of a volume (X, Y, Z), in samples: int64 (X, Y). Of a buffer, a buffer of float32,
    NaN where nothing is known.

    s_xy      samples of the mean along X and Y; its fraction is cut off
    s_z       standard deviation of the Gaussian along Z
    use_log   take the logarithm of what is above 0 first
    mask      (X, Y, Z): only samples where it is not 0 count
    order     derivative
    detect_cutting_errors  never deeper than the column's largest smoothed magnitude: for tissue that reaches the top

    ceil(z + s_z / 2) of the first maximum z, as in linumpy. Unlike there it is at most the last sample, and integers are float32 before
    their logarithm. A column of which nothing is known (the mask has nothing of it) gets ceil(s_z / 2).
    `client.buffers.apply(volume, {"surface": {"axis": 2}})` is Octavo's own finder, which is right more often.
    """
    shape = ranked("vol", vol, (3,))
    fields: dict = dict(axis=2, algorithm="gradient", sigma=float(s_z), lateral_size=int(s_xy), logarithm=bool(use_log), order=order,
                        detect_cutting_errors=bool(detect_cutting_errors))
    with Work(client, vol) as work:
        if mask is not None:
            fields["mask"] = _mask(work, mask, shape).name
        found = work.apply(work.put(vol), {"surface": fields})
        if work.on_device:
            return work.result(found)
        depth = found.read()
        return np.where(np.isnan(depth), math.ceil(0.5 * s_z), depth).astype(np.int64)


def _mask(work: Work, mask: Any, shape: tuple):
    if is_buffer(mask):
        return mask
    chosen = np.asarray(mask) != 0
    if chosen.shape != tuple(shape):
        raise ValueError(f"mask has the shape {chosen.shape}; expected {tuple(shape)}, as vol has it")
    return work.put(chosen.astype(np.uint8))


def detect_interface_z(vol_xyz: Any, sigma_xy: float = 3.0, sigma_z: float = 2.0, use_log: bool = False, *, client: Optional[Client] = None) -> int:
    """One depth for the whole volume (X, Y, Z), in samples: where the smoothed volume rises most steeply, summed over the columns that hold
    something (those whose mean is above the 5th percentile of all means that are not 0).

    sigma_xy, sigma_z  standard deviations of the Gaussian along X and Y, and of its derivative along Z
    use_log            of ln(v + 1e-6) instead of v

    The first sample counts as if it went on above the volume, so that a volume that begins in tissue does not rise there.
    """
    shape = ranked("vol_xyz", vol_xyz, (3,))
    if dtype_of(vol_xyz).kind == "c":
        raise ValueError(f"vol_xyz is {dtype_of(vol_xyz)}; expected real numbers")
    for field, value in (("sigma_xy", sigma_xy), ("sigma_z", sigma_z)):
        if not (isinstance(value, (int, float, np.number)) and math.isfinite(value) and value > (0 if field == "sigma_z" else -1e-300)):
            raise ValueError(f"{field} is {short(value)}; expected a number {'above 0' if field == 'sigma_z' else 'from 0'}, in samples")
    pad = round(4 * sigma_z)
    with Work(client, vol_xyz) as work:
        chain: list = [{"scale": {"type": "float32", "add": 1e-6 if use_log else 0}}]
        if use_log:
            chain.append({"logarithm": {}})
        volume = work.apply(work.put(vol_xyz), *chain)
        means = work.apply(volume, {"reduce": {"kind": "mean", "axes": [2]}}).read()
        some = means[means != 0]
        columns = means > np.percentile(some, 5) if some.size else np.zeros(means.shape, bool)
        longer = [shape[0], shape[1], shape[2] + pad]
        same = {"matrix": np.eye(3), "sampling": "nearest", "edge": "nearest", "shape": longer}
        rises = work.apply(volume, {"affine": dict(same, offset=[0, 0, -pad])}, {"gaussian": {"sigma": [sigma_xy, sigma_xy, 0]}},
                           {"gaussian": {"sigma": [0, 0, sigma_z], "order": [0, 0, 1]}})
        chosen = work.apply(work.put(columns.astype(np.uint8)[..., None]), {"affine": same})
        sums = work.apply(rises, {"reduce": {"kind": "sum", "axes": [0, 1], "mask": chosen.name, "type": "float64"}}).read()
        return max(0, int(np.argmax(sums)) - pad)
