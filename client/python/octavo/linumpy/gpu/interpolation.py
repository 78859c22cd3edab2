"""linumpy.gpu.interpolation: arrays sampled at other places. Positions are computed in double precision; linumpy's GPU path has single.

Images have 1 to 3 axes; orders are 0, 1 and 3. Outside of the image is 0 (SciPy's mode "constant").
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import numpy as np

from octavo.arguments import short
from octavo.client import Client
from octavo.linumpy._device import Work, dtype_of, extents, is_buffer, order_name, ranked, shape_of

_RANKS = (1, 2, 3)


def _real(field: str, image: Any) -> None:
    if dtype_of(image).kind == "c":
        raise ValueError(f"{field} is {dtype_of(image)}; expected real numbers (the magnitude, or the parts one by one)")


def resize(image: Any, output_shape: Sequence[int], order: int = 1, anti_aliasing: bool = True, use_gpu: bool = True, *, client: Optional[Client] = None) -> Any:
    """The image with another number of samples along each axis, corner on corner: sample i of the result is at i (in - 1) / (out - 1).

    image         real numbers; the result is float32
    output_shape  one number for each axis
    anti_aliasing  first a Gaussian along the axes that shrink by a factor f > 1: sigma (f - 1) / 2, cut off at 4 sigma, edge "reflect"

    linumpy's last sample is 0 for some pairs of extents (8 to 26: rounding puts it outside of the image); here it is the image's last.
    """
    shape = ranked("image", image, _RANKS)
    _real("image", image)
    output_shape = extents("output_shape", output_shape, len(shape))
    sampling = order_name(order)
    with Work(client, image) as work:
        source = work.put(image)
        chain: list = [{"scale": {"type": "float32"}}] if dtype_of(source) != np.float32 else []
        if order == 3:
            # The spline of SciPy's mode "constant" mirrors at the ends, the Gaussian reflects: not one operation.
            sigma = [max(0.0, (n / m - 1) / 2) for n, m in zip(shape, output_shape)]
            if anti_aliasing and any(sigma):
                chain.append({"gaussian": {"sigma": sigma}})
            chain.append({"resize": {"shape": output_shape, "sampling": sampling, "corner_aligned": True, "anti_aliasing": False, "edge": "mirror"}})
        else:
            chain.append({"resize": {"shape": output_shape, "sampling": sampling, "corner_aligned": True, "anti_aliasing": bool(anti_aliasing), "edge": "reflect"}})
        return work.result(work.apply(source, *chain))


def affine_transform(image: Any, matrix: Any, output_shape: Optional[Sequence[int]] = None, order: int = 1, use_gpu: bool = True, *,
                     client: Optional[Client] = None) -> Any:
    """The image at matrix · i for each index i of the result, in samples, as scipy.ndimage.affine_transform.

    matrix        (n, n) for n axes, or homogeneous: (n + 1, n + 1), or its first n rows, whose last column is an offset
    output_shape  default: the image's

    The result has the type of the image, integers rounded; linumpy's GPU path gives float32.
    """
    shape = ranked("image", image, _RANKS)
    rank = len(shape)
    given = np.asarray(matrix, np.float64)
    if given.shape not in ((rank, rank), (rank, rank + 1), (rank + 1, rank + 1)) or not np.isfinite(given).all():
        raise ValueError(f"matrix has the shape {given.shape}; expected finite numbers of the shape {(rank, rank)}, or homogeneous {(rank + 1, rank + 1)}")
    if given.shape == (rank + 1, rank + 1) and not np.array_equal(given[rank], [0] * rank + [1]):
        raise ValueError(f"matrix has the last row {given[rank].tolist()}; expected {[0] * rank + [1]}: projections are not affine")
    offset = given[:rank, rank] if given.shape[1] > rank else np.zeros(rank)
    fields = dict(matrix=given[:rank, :rank], offset=offset.tolist(), sampling=order_name(order), edge="constant")
    if output_shape is not None:
        fields["shape"] = extents("output_shape", output_shape, rank)
    with Work(client, image) as work:
        return work.result(work.apply(work.put(image), {"affine": fields}))


def map_coordinates(image: Any, coordinates: Any, order: int = 1, use_gpu: bool = True, *, client: Optional[Client] = None) -> Any:
    """The image at any positions, as scipy.ndimage.map_coordinates: coordinates[d] is the position along axis d, in samples. The result
    has the shape of coordinates[0], of 1 to 3 axes, and the image's type."""
    shape = ranked("image", image, _RANKS)
    sampling = order_name(order)
    fields = dict(sampling=sampling, edge="constant")
    with Work(client, image, coordinates) as work:
        if is_buffer(coordinates):
            fields["coordinates"] = coordinates.name
        else:
            positions = np.asarray(coordinates)
            if positions.dtype not in (np.float32, np.float64):
                positions = positions.astype(np.float64)
            if positions.ndim < 2 or positions.ndim > 4 or len(positions) != len(shape) or 0 in positions.shape:
                raise ValueError(f"coordinates has the shape {positions.shape}; expected {len(shape)} coordinates of 1 to 3 axes: [{len(shape)}, ...]")
            if positions.ndim == 4:  # a buffer has three axes
                fields["shape"] = list(positions.shape[1:])
                positions = positions.reshape((-1,) + positions.shape[2:])
            fields["coordinates"] = work.put(positions).name
        return work.result(work.apply(work.put(image), {"map_coordinates": fields}))


def apply_displacement_field(image: Any, displacement_field: Any, use_gpu: bool = True, *, client: Optional[Client] = None) -> Any:
    """Each sample i of the result is the image at i + displacement_field[:, i], linear between samples. displacement_field: (axes, *shape),
    in samples; of a buffer with three axes, the first two may be one."""
    shape = ranked("image", image, _RANKS)
    with Work(client, image, displacement_field) as work:
        if is_buffer(displacement_field):
            field = displacement_field
        else:
            moved = np.asarray(displacement_field)
            if moved.dtype not in (np.float32, np.float64):
                moved = moved.astype(np.float64)
            if moved.shape != (len(shape), *shape):
                raise ValueError(f"displacement_field has the shape {moved.shape}; expected {(len(shape), *shape)}")
            field = work.put(moved.reshape((-1,) + moved.shape[2:]) if moved.ndim == 4 else moved)
        return work.result(work.apply(work.put(image), {"displace": {"field": field.name, "sampling": "linear", "edge": "constant"}}))


def resample_volume(volume: Any, current_spacing: Sequence[float], target_spacing: Sequence[float], order: int = 1, use_gpu: bool = True, *,
                    client: Optional[Client] = None) -> Any:
    """The volume with another spacing of its samples, by resize: int(n · current / target) samples along each axis, at least 1.

    current_spacing, target_spacing  one number, or one for each axis, in one unit

    Corner on corner, the spacing is n' = n · current / target only nearly: exact is current · (n - 1) / (n' - 1).
    """
    shape = shape_of(volume)
    current, target = (_spacing(field, value, len(shape)) for field, value in (("current_spacing", current_spacing), ("target_spacing", target_spacing)))
    return resize(volume, [max(1, int(n * now / then)) for n, now, then in zip(shape, current, target)], order=order, use_gpu=use_gpu, client=client)


def _spacing(field: str, value: Any, rank: int) -> np.ndarray:
    try:
        spacing = np.broadcast_to(np.asarray(value, np.float64), (rank,))
    except ValueError:
        spacing = np.array([np.nan])
    if not (np.isfinite(spacing) & (spacing > 0)).all():
        raise ValueError(f"{field} is {short(value)}; expected a number above 0, or {rank}, one for each axis")
    return spacing
