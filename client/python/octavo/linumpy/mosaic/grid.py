"""Mosaic grids (Z, Y, X): tiles of one size side by side, without any overlap removed. What linumpy's scripts do with them, as functions."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

import numpy as np

from octavo.arguments import short
from octavo.client import Client
from octavo.linumpy._device import Work, dtype_of, is_buffer, ranked, shape_of
from octavo.linumpy.mosaic.stacking import _check_tile

_FLATS = ("basic", "quadratic")


def aip(vol: Any, *, client: Optional[Client] = None) -> Any:
    """The mean over Z of a grid: float32 (Y, X). As linum_aip.py, and of the tiles that are cut short at the far edges, too, which that
    leaves 0. Complex numbers by magnitude."""
    ranked("vol", vol, (3,))
    with Work(client, vol) as work:
        volume = work.put(vol)
        fields: dict = {"kind": "mean", "axes": [0], "type": "float32"}
        if dtype_of(volume).kind == "c":
            fields["part"] = "magnitude"
        return work.result(work.apply(volume, {"reduce": fields}))


def _choice(algorithm: str) -> str:
    if algorithm not in _FLATS:
        raise ValueError(f"algorithm is {short(algorithm)}; expected 'basic' (linumpy's) or 'quadratic'")
    return algorithm


def _fit(algorithm: str, smoothness: float) -> dict:
    return {"algorithm": _choice(algorithm), **({"smoothness": smoothness} if algorithm == "basic" else {})}


def detect_focal_curvature(vol: Any, tile_shape: Sequence[int], s_xy: float = 3.0, s_z: float = 2.0, use_log: bool = True, *, algorithm: str = "basic",
                           smoothness: float = 1.0, client: Optional[Client] = None) -> Any:
    """How deep the focus lies at each place of a grid (Z, Y, X), against the mean of a tile: float32 (Y, X) in samples, the same in each tile.
    As linum_detect_focal_curvature.py: the steepest rise of each column, and what all tiles have of it in common by BaSiC.

    tile_shape  (rows, columns) of a tile; those at the far edges may be partial, and count (linumpy leaves them out)
    s_xy, s_z, use_log  as find_tissue_interface
    algorithm   "basic": the curvature multiplies the depth, as in linumpy; "quadratic": it adds to the depth, more robust

    The numbers are not rounded; linumpy cuts their fractions off (np.trunc).
    """
    with Work(client, vol) as work:
        amounts = _amounts(work, vol, tile_shape, s_xy, s_z, use_log, algorithm, smoothness)
        return work.result(work.apply(amounts, {"scale": {"multiply": -1}}))


def _amounts(work: Work, vol, tile_shape, s_xy, s_z, use_log, algorithm, smoothness):
    ranked("vol", vol, (3,))
    volume = work.put(vol)
    chain: list = [{"scale": {"part": "magnitude"}}] if dtype_of(volume).kind in "cfi" else []
    return work.apply(volume, *chain, {"surface": {"axis": 0, "algorithm": "gradient", "sigma": float(s_z), "lateral_size": int(s_xy), "logarithm": bool(use_log)}},
                      {"focal_curvature": {"tile": list(_check_tile(tile_shape)), **_fit(algorithm, smoothness)}})


def fix_focal_curvature(vol: Any, tile_shape: Sequence[int], s_xy: float = 3.0, s_z: float = 2.0, use_log: bool = True, *, fractional: bool = True,
                        wrap: bool = False, algorithm: str = "basic", smoothness: float = 1.0, client: Optional[Client] = None) -> Any:
    """The grid (Z, Y, X) without its focal curvature: each column moved along Z by detect_focal_curvature. Type and shape stay.

    fractional  by fractions of a sample, too, linear between samples; False: cut to whole samples (np.trunc), as linumpy's first version
    wrap        what leaves a column at one end comes in at the other, as in linumpy; False: 0 comes in
    """
    with Work(client, vol) as work:
        amounts = _amounts(work, vol, tile_shape, s_xy, s_z, use_log, algorithm, smoothness)
        if not fractional:
            amounts = work.put(np.trunc(amounts.read()))
        moved = {"axis": 0, "amounts": amounts.name, "sampling": "linear" if fractional else "nearest", "edge": "wrap" if wrap else "constant"}
        return work.result(work.apply(work.put(vol), {"shift": moved}))


def detect_flatfield(vol: Any, tile_shape: Sequence[int], *, algorithm: str = "basic", smoothness: float = 1.0, client: Optional[Client] = None) -> Any:
    """The illumination that all tiles of an image (Y, X), or of the mean over Z of a grid (Z, Y, X), have in common: float32 (rows, columns),
    of mean 1. As BaSiCPy's flat field (get_darkfield=False), which linum_fix_illumination_3d.py uses. Whole tiles count."""
    shape = ranked("vol", vol, (2, 3))
    rows, columns = _check_tile(tile_shape)
    down, across = shape[-2] // rows, shape[-1] // columns
    if down * across < 2:
        raise ValueError(f"tile_shape is {(rows, columns)}, of which the {shape[-2]} x {shape[-1]} pixels hold {down * across} whole ones; expected 2 or more")
    with Work(client, vol) as work:
        image = work.put(vol)
        if len(shape) == 3:
            image = work.apply(image, {"reduce": {"kind": "mean", "axes": [0], "type": "float32"}})
        pixels = image.read()[:down * rows, :across * columns]  # a plane: small beside the grid
        stack = np.ascontiguousarray(pixels.reshape(down, rows, across, columns).swapaxes(1, 2).reshape(-1, rows, columns))
        return work.result(work.apply(work.put(stack), {"flat_field": _fit(algorithm, smoothness)}))


def fix_illumination(vol: Any, tile_shape: Sequence[int], flatfield: Any = None, *, algorithm: str = "basic", smoothness: float = 1.0,
                     client: Optional[Client] = None) -> Any:
    """Each tile of an image (Y, X) or a grid (Z, Y, X) divided by its flat field, or by `flatfield` (rows, columns). Type and shape stay."""
    ranked("vol", vol, (2, 3))
    rows, columns = _check_tile(tile_shape)
    with Work(client, vol) as work:
        flat = detect_flatfield(vol, tile_shape, algorithm=algorithm, smoothness=smoothness, client=work.client) if flatfield is None else flatfield
        if tuple(shape_of(flat)) != (rows, columns):
            raise ValueError(f"flatfield has the shape {tuple(shape_of(flat))}; expected {(rows, columns)}, that of a tile")
        of_its_own = flatfield is None and is_buffer(flat)
        try:
            return work.result(work.apply(work.put(vol), {"flatten": {"flat": work.put(flat).name}}))
        finally:
            if of_its_own:
                flat.destroy()


def stitch_tiles(vol: Any, tile_shape: Sequence[int], positions_px: Sequence[Sequence[float]], *, blend: str = "linear", gap: float = 0.0,
                 client: Optional[Client] = None) -> Tuple[Any, Tuple[float, float, float]]:
    """The tiles of a grid (Z, Y, X) as one volume: (volume, position of its first voxel [z, y, x]).

    positions_px  where each tile lies, row by row: [y, x] or [z, y, x] in voxels, whole or not
    blend         "linear" (distance to the nearer edge), "hann", "average"
    gap           value of voxels that no tile has
    """
    ranked("vol", vol, (3,))
    with Work(client, vol) as work:
        made = work.client.mosaic.stitch(work.put(vol), [list(map(float, one)) for one in positions_px], spacing_um=1.0, tile=_check_tile(tile_shape), blend=blend, gap=gap)
        buffer = made.buffer
        work._made.append(buffer.name)
        return work.result(buffer), (made.origin_um.z, made.origin_um.y, made.origin_um.x)
