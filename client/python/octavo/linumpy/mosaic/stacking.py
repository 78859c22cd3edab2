"""linumpy.mosaic.stacking: sections (Z, Y, X), one over the other."""

from __future__ import annotations

import statistics
import warnings
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from octavo import errors
from octavo.arguments import real, short
from octavo.client import Client
from octavo.linumpy._device import Work, dtype_of, ranked, spread

OVERLAPS = ("overlap_voxels", "blend_overlap_voxels")


def find_z_overlap(fixed_vol: Any, moving_vol: Any, slicing_interval_mm: float, search_range_mm: float, resolution_um: float, use_gpu: bool = True, *,
                   moving_z_first_index: int = 0, client: Optional[Client] = None) -> Tuple[int, float]:
    """How many planes two sections (Z, Y, X) have in common, and their correlation there.

    slicing_interval_mm   what the blade takes off
    search_range_mm       how far from there to look
    resolution_um         from plane to plane
    moving_z_first_index  first planes of `moving_vol` that are left out before (linumpy leaves that to the caller, who may forget it)

    The definition is linumpy's. Quotients of lengths are rounded, where linumpy cuts them off (0.3 / 0.1 is 3, not 2). If there is
    nothing to try, it is (the expected overlap, 0.0), the overlap is not below 0, and an OctavoWarning says so.
    """
    ranked("fixed_vol", fixed_vol, (3,))
    ranked("moving_vol", moving_vol, (3,))
    with Work(client, fixed_vol, moving_vol) as work:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.OctavoWarning)  # the correlation says it
            found = work.client.mosaic.overlap(
                work.put(fixed_vol).name, work.put(moving_vol).name, slicing_interval_um=1000 * real("slicing_interval_mm", slicing_interval_mm),
                search_range_um=1000 * real("search_range_mm", search_range_mm), spacing_z_um=real("resolution_um", resolution_um),
                moving_first_plane=moving_z_first_index, min_correlation=-1.0)
        if found.best_overlap == 0:
            errors.warn(f"the overlap was not found, because no overlap within search_range_mm ({short(search_range_mm)}) of the expected one is possible: "
                        f"{found.expected_overlap} planes are expected from slicing_interval_mm ({short(slicing_interval_mm)})")
            return found.expected_overlap, 0.0
        return found.best_overlap, found.correlation


def enforce_z_consistency(z_matches: Sequence[Mapping[str, Any]], confidence_per_slice: Optional[Mapping[Any, float]] = None,
                          outlier_threshold_frac: float = 0.30, confidence_protect_threshold: float = 0.6) -> Tuple[List[dict], List[Dict[str, Any]]]:
    """Overlaps that stand out among those of all pairs of sections become what their neighbours have: (matches, corrections). Computed here,
    not by the server.

    z_matches  a dict for each pair, in order: moving_id, and overlap_voxels, blend_overlap_voxels or both
    confidence_per_slice  by moving_id, 0 to 1 (0.5 where it says nothing): pairs from confidence_protect_threshold on stay
    outlier_threshold_frac  of the median of all pairs: what lies further from it stands out

    With less than three pairs nothing stands out. corrections: dicts of moving_id, field, old, new.
    """
    matches = [dict(one) for one in z_matches]
    corrections: List[Dict[str, Any]] = []
    if len(matches) < 3:
        return matches, corrections
    confident = confidence_per_slice or {}
    for field in OVERLAPS:
        values = [one.get(field) for one in matches]
        known = [value for value in values if value is not None]
        if len(known) < 3:
            continue
        median = statistics.median(known)
        for i, value in enumerate(values):
            if value is None or abs(value - median) <= outlier_threshold_frac * max(median, 1):
                continue
            if confident.get(matches[i].get("moving_id"), 0.5) >= confidence_protect_threshold:
                continue
            near = [values[k] for k in (i - 1, i + 1) if 0 <= k < len(values) and values[k] is not None]
            if not near:
                continue
            matches[i][field] = int(statistics.median(near))
            corrections.append(dict(moving_id=matches[i].get("moving_id"), field=field, old=value, new=matches[i][field]))
    return matches, corrections


def blend_overlap_z(fixed_region: Any, moving_region: Any, *, client: Optional[Client] = None) -> Any:
    """The planes that two sections have in common, as one: float32. The weight of `moving_region` goes from 0 at the first plane to 1 at the
    last, (1 - cos) / 2. Voxels are valid above 0: where one alone is, it is taken; where none is, 0. A single plane is that of the
    region with more valid voxels (of equals `fixed_region`)."""
    shape = ranked("fixed_region", fixed_region, (3,))
    if tuple(ranked("moving_region", moving_region, (3,))) != tuple(shape):
        raise ValueError(f"moving_region has another shape than fixed_region, {tuple(shape)}; expected the same box of both sections")
    for field, region in (("fixed_region", fixed_region), ("moving_region", moving_region)):
        if dtype_of(region).kind == "c":
            raise ValueError(f"{field} is {dtype_of(region)}; expected real numbers")
    above = {"threshold": {"value": 0}}
    with Work(client, fixed_region, moving_region) as work:
        fixed, moving = work.put(fixed_region, np.float32), work.put(moving_region, np.float32)
        has_fixed, has_moving = work.apply(fixed, above), work.apply(moving, above)
        if shape[0] == 1:
            count = {"reduce": {"kind": "sum", "type": "float64"}}
            more = work.apply(has_moving, count).read().sum() > work.apply(has_fixed, count).read().sum()
            return work.result(moving if more else fixed)
        weights = spread(work, (0.5 * (1 - np.cos(np.linspace(0, np.pi, shape[0])))).astype(np.float32), 0, shape)
        mixed = work.apply(moving, {"combine": {"kind": "subtract", "other": fixed.name}}, {"combine": {"kind": "multiply", "other": weights.name}},
                           {"combine": {"kind": "add", "other": fixed.name}})
        some = work.apply(moving, {"select": {"mask": has_moving.name}})  # 0 where it is not valid
        one = work.apply(mixed, {"select": {"mask": has_fixed.name, "other": some.name}})
        alone = work.apply(fixed, {"select": {"mask": has_fixed.name}})
        return work.result(work.apply(one, {"select": {"mask": has_moving.name, "other": alone.name}}))


def _check_tile(tile_shape: Any) -> Tuple[int, int]:
    if not np.iterable(tile_shape) or len(tuple(tile_shape)) != 2 or any(int(one) != one or one < 1 for one in tile_shape):
        raise ValueError(f"tile_shape is {short(tile_shape)}; expected two whole numbers from 1: (rows, columns)")
    rows, columns = tile_shape
    return int(rows), int(columns)
