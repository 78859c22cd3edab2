"""linumpy.io.zarr: OME-Zarr images, read and written by the server.

An image to read lies here, and below a replay root of the server or where it can be handed over (a server on this host with a hand-over
socket). An image that is written lies below one of the server's storage roots: `octavo info` lists them.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from octavo import errors
from octavo.arguments import short
from octavo.client import Client
from octavo.linumpy._device import Work, client_of, dtype_of, is_buffer, shape_of
from octavo.objects import Buffer
from octavo.v1 import system_pb2

_MM = {"millimeter": 1.0, "millimetre": 1.0, "mm": 1.0, "micrometer": 1e-3, "micrometre": 1e-3, "um": 1e-3, "\u00b5m": 1e-3, "\u03bcm": 1e-3, "nanometer": 1e-6,
       "nanometre": 1e-6, "nm": 1e-6, "centimeter": 10.0, "centimetre": 10.0, "cm": 10.0, "meter": 1e3, "metre": 1e3, "m": 1e3}
_MOST_LEVELS = 16


def read_omezarr(zarr_path: Any, level: int = 0, *, client: Optional[Client] = None) -> Tuple["OmeZarrArray", List[float]]:
    """The image in an OME-Zarr (0.4 or 0.5) and the spacing of its samples along each axis: (array, resolution).

    level  of the pyramid, 0 = the full resolution

    The array is read when it is indexed, a box at a time: `array[10:20]`, `array[:]`, np.asarray(array); `array.buffer()` puts it on the
    device. The resolution is in millimetres where the file gives a unit of length; linumpy gives the file's numbers, whatever their unit.
    As there, the first image, its first `scale`, and no translation count.
    """
    path = os.path.abspath(os.fspath(zarr_path))
    if os.path.isfile(path):
        raise NotADirectoryError(f"zarr_path is {short(str(zarr_path))}, a file; expected the folder of an OME-Zarr. client.import_buffer_from reads files of "
                                 "other formats")
    group = _attributes(path)
    images = group.get("ome", group).get("multiscales") or []
    if not images or not isinstance(images[0], dict) or not images[0].get("datasets"):
        raise ValueError(f"zarr_path is {short(str(zarr_path))}, which has no image of OME-Zarr (multiscales); expected one")
    levels = images[0]["datasets"]
    if isinstance(level, bool) or not isinstance(level, (int, np.integer)) or not 0 <= level < len(levels):
        raise ValueError(f"level is {short(level)}; expected a whole number from 0 to {len(levels) - 1}, the levels of {short(str(zarr_path))}")
    chosen = levels[level]
    array = OmeZarrArray(path, chosen["path"], int(level), _names(images[0]), client_of(client))
    scale = next((one["scale"] for one in chosen.get("coordinateTransformations") or [] if one.get("type") == "scale"), [1.0] * array.ndim)
    units = [axis.get("unit") if isinstance(axis, dict) else None for axis in images[0].get("axes") or [None] * array.ndim]
    return array, [float(one) * _MM.get(unit or "", 1.0) for one, unit in zip(scale, units)]


def _names(image: dict) -> List[str]:
    return [axis["name"] if isinstance(axis, dict) else str(axis) for axis in image.get("axes") or []]


def _json(*path: str) -> Optional[dict]:
    try:
        with open(os.path.join(*path), encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise ValueError(f"{os.path.join(*path)} is no JSON: {error}") from None


def _attributes(path: str) -> dict:
    whole = _json(path, "zarr.json")
    if whole is not None:
        return whole.get("attributes", {})
    flat = _json(path, ".zattrs")
    if flat is None:
        raise FileNotFoundError(f"zarr_path is {short(path)}, where no group of Zarr is (zarr.json, .zattrs); paths of the server alone are read by "
                                "client.import_volume and client.import_buffer_from")
    return flat


class OmeZarrArray:
    """An array of an image, read by the server when it is indexed.

    shape, dtype, ndim, size, chunks, shards  as of an array of Zarr; shards: None without them
    """

    def __init__(self, path: str, dataset: str, level: int, axes: Sequence[str], client: Client):
        self._path, self._level, self._client = path, level, client
        about = _json(path, dataset, "zarr.json")
        self.shards: Optional[Tuple[int, ...]] = None
        if about is not None:
            outer = tuple(about["chunk_grid"]["configuration"]["chunk_shape"])
            inner = [one["configuration"]["chunk_shape"] for one in about.get("codecs", ()) if one.get("name") == "sharding_indexed"]
            self.chunks, self.shards = (tuple(inner[0]), outer) if inner else (outer, None)
            self.dtype = np.dtype(about["data_type"])
        else:
            about = _json(path, dataset, ".zarray")
            if about is None:
                raise FileNotFoundError(f"{os.path.join(path, dataset)} has no array of Zarr (zarr.json, .zarray)")
            self.chunks = tuple(about["chunks"])
            self.dtype = np.dtype(about["dtype"]).newbyteorder("=")
        self.shape = tuple(about["shape"])
        self.ndim = len(self.shape)
        names = [name.lower() for name in axes] if len(axes) == self.ndim else list("tczyx"[5 - self.ndim:])
        if sorted(names[-3:]) != ["x", "y", "z"] and not (self.ndim == 2 and sorted(names) == ["x", "y"]):
            raise ValueError(f"{path} has the axes {', '.join(axes)}; expected x, y and z last")
        self._names = names

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<OmeZarrArray {self._path} level {self._level} {self.shape} {self.dtype}>"

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        array = self[...]
        return array if dtype is None else array.astype(dtype)

    def buffer(self, channel: Sequence[int] = (), **fields: Any) -> Buffer:
        """The array, or a box of it (start=, count= along z, y, x), as a buffer on the device, which the caller destroys. channel: the index along
        each axis before the last three."""
        others = self._names[:-3] if self.ndim > 3 else []
        if len(channel) != len(others):
            raise ValueError(f"channel is {short(channel)}; expected an index along each of {', '.join(others) or 'no axes'}")
        select = {"select": dict(zip(others, (int(one) for one in channel)))} if others else {}
        names = self._names[-3:] if self.ndim >= 3 else self._names
        order = "".join(("z" if self.ndim == 2 else "", *names))
        return self._client.import_buffer_from(self._path, format="zarr", level=self._level, order=order, **select, **fields)

    def __getitem__(self, key: Any) -> np.ndarray:
        boxes, steps, gone = _boxes(key, self.shape)
        shape = [stop - start for start, stop in boxes]
        if 0 in shape:
            return np.empty(shape, self.dtype)[steps].reshape([n for n, drop in zip(np.empty(shape)[steps].shape, gone) if not drop])
        space = boxes[-3:] if self.ndim >= 3 else [(0, 1), *boxes]
        start, count = [box[0] for box in space], [box[1] - box[0] for box in space]
        out = np.empty((*shape[:-3], *count) if self.ndim >= 3 else count, self.dtype)
        for place in np.ndindex(*shape[:-3]) if self.ndim > 3 else [()]:
            buffer = self.buffer([place[i] + boxes[i][0] for i in range(len(place))], start=start, count=count)
            try:
                out[place] = buffer.read()
            finally:
                buffer.destroy()
        out = out.reshape(shape)[steps]
        return out.reshape([n for n, drop in zip(out.shape, gone) if not drop])


def _boxes(key: Any, shape: Sequence[int]) -> Tuple[List[Tuple[int, int]], tuple, List[bool]]:
    """The box that an index lies in, its steps within the box, and the axes that it takes away."""
    given = list(key) if isinstance(key, tuple) else [key]
    if sum(one is Ellipsis for one in given) > 1 or len(given) - (Ellipsis in [one for one in given if one is Ellipsis]) > len(shape):
        raise IndexError(f"the index {short(key)} has more places than the array's {len(shape)} axes")
    at = next((i for i, one in enumerate(given) if one is Ellipsis), len(given))
    rest = given[at + 1:]
    given = given[:at] + [slice(None)] * (len(shape) - at - len(rest)) + rest
    boxes, steps, gone = [], [], []
    for one, extent in zip(given, shape):
        if isinstance(one, (int, np.integer)) and not isinstance(one, bool):
            index = int(one) + (extent if one < 0 else 0)
            if not 0 <= index < extent:
                raise IndexError(f"the index {int(one)} leaves an axis of {extent} samples")
            boxes.append((index, index + 1))
            steps.append(slice(None))
            gone.append(True)
        elif isinstance(one, slice):
            places = range(*one.indices(extent))
            low, high = (min(places[0], places[-1]), max(places[0], places[-1]) + 1) if len(places) else (0, 0)
            boxes.append((low, high))
            steps.append(slice(None, None, places.step))
            gone.append(False)
        else:
            raise IndexError(f"the index {short(one)} is neither a whole number nor a slice")
    return boxes, tuple(steps), gone


def _check_within(key: Any, shape: Sequence[int]) -> None:
    """IndexError for a slice that is not empty as it is written, and lies beyond its axis."""
    given = list(key) if isinstance(key, tuple) else [key]
    at = next((i for i, one in enumerate(given) if one is Ellipsis), len(given))
    places = [*zip(given[:at], range(at)), *zip(given[at + 1:], range(len(shape) - len(given[at + 1:]), len(shape)))]
    for one, axis in places:
        if not isinstance(one, slice):
            continue
        extent = shape[axis]
        start, stop = (default if end is None else end + (extent if end < 0 else 0) for end, default in ((one.start, 0), (one.stop, extent)))
        if start < stop and (start >= extent or stop <= 0):
            written = ":".join("" if end is None else str(end) for end in (one.start, one.stop))
            raise IndexError(f"the range {written} lies beyond axis {axis}; expected a range within 0:{extent}")


def _spread_over(value: Any, count: Sequence[int], gone: Sequence[bool]) -> np.ndarray:
    """The value over a whole box, as NumPy broadcasts it. ValueError for one that does not fit."""
    kept = tuple(n for n, drop in zip(count, gone) if not drop)
    array = np.asarray(value)
    try:
        return np.broadcast_to(array, kept).reshape(count)
    except ValueError:
        raise ValueError(f"the value has the shape {array.shape}; expected {kept}, that of the box, or one that NumPy broadcasts to it") from None


class _Destination:
    """Where the server writes an image."""

    def __init__(self, store_path: Any, overwrite: bool, client: Client):
        self.path = os.path.abspath(os.fspath(store_path))
        if not self.path.endswith(".zarr"):
            raise ValueError(f"store_path is {short(str(store_path))}; expected a name that ends with .zarr, or .ome.zarr")
        roots = [root.path for root in client.info().storage if root.use == system_pb2.GetInfoResponse.StorageRoot.USE_COMMIT]
        if not any(os.path.realpath(os.path.dirname(self.path)) == os.path.realpath(root) or
                   os.path.realpath(os.path.dirname(self.path)).startswith(os.path.join(os.path.realpath(root), "")) for root in roots):
            raise ValueError(f"store_path is {short(self.path)}; expected a place below a storage root of the server, which writes it: {', '.join(roots)}")
        if os.path.lexists(self.path) and not overwrite:
            raise FileExistsError(f"{self.path} exists; overwrite=True replaces it")

    def clear(self) -> None:
        """Removes what is there; of a link, the link alone."""
        if os.path.islink(self.path) or os.path.isfile(self.path):
            os.remove(self.path)
        elif os.path.isdir(self.path):
            shutil.rmtree(self.path)


def _spacing_um(voxel_size: Any) -> List[float]:
    size = [float(one) for one in voxel_size][-3:] if np.iterable(voxel_size) else []
    if len(size) != 3 or not all(math.isfinite(one) and one > 0 for one in size):
        raise ValueError(f"voxel_size is {short(voxel_size)}; expected three numbers above 0, in mm along z, y and x")
    return [1000 * one for one in size]


def _levels(n_levels: int, shape: Sequence[int]) -> int:
    """Arrays of the pyramid: the image itself, and up to n_levels smaller ones, as far as the shortest axis can be halved."""
    if isinstance(n_levels, bool) or not isinstance(n_levels, (int, np.integer)) or n_levels < 0:
        raise ValueError(f"n_levels is {short(n_levels)}; expected a whole number from 0: how many smaller levels")
    return 1 + min(int(n_levels), int(math.log2(min(shape))), _MOST_LEVELS - 1)


def _chunking(chunks: Optional[Sequence[int]], shards: Optional[Sequence[int]]) -> Dict[str, Any]:
    fields: Dict[str, Any] = {}
    if chunks is not None:
        fields["chunk"] = [int(one) for one in chunks][-3:]
    if shards is not None:
        fields["shard"] = [int(one) for one in shards][-3:]
    return fields


def save_omezarr(data: Any, store_path: Any, voxel_size: Sequence[float] = (1e-3, 1e-3, 1e-3), chunks: Optional[Sequence[int]] = (128, 128, 128),
                 n_levels: int = 5, overwrite: bool = True, shards: Optional[Sequence[int]] = None, *, client: Optional[Client] = None) -> str:
    """Writes an array (Z, Y, X) as an OME-Zarr 0.5, all or nothing, and gives its path (linumpy gives a group of zarr-python).

    voxel_size  in mm along z, y, x; the file has micrometres, linumpy's millimetres
    chunks      voxels of a chunk;  shards  of a shard, multiples of chunks; None: none
    n_levels    smaller levels of the pyramid, each half of the one before (means of 2 x 2 x 2; linumpy interpolates): as many as the shortest
                axis can be halved
    overwrite   replace what is there, which goes before the new one is whole; of a link, the link alone
    """
    client = client_of(client)
    shape = shape_of(data)
    if len(shape) != 3:
        raise ValueError(f"data has the shape {tuple(shape)}; expected (z, y, x). Of several channels each is an image of its own here")
    with Work(client, data) as work:
        return _write(client, work.put(data if is_buffer(data) else np.asarray(data)), _Destination(store_path, overwrite, client), _spacing_um(voxel_size),
                      dict(_chunking(chunks, shards), pyramid_levels=_levels(n_levels, shape)))


def _write(client: Client, buffer: Buffer, to: _Destination, spacing_um: List[float], options: Dict[str, Any]) -> str:
    to.clear()
    return client.buffers.commit(buffer.name, to.path, "zarr", axes="zyx", spacing_um=spacing_um, **options).path


class OmeZarrWriter:
    """Makes an image piece by piece: an array of zeros on the device that is written at the end.

        writer = OmeZarrWriter(path, shape, chunk_shape, dtype)
        writer[0:10] = planes
        writer.finalize((0.01, 0.01, 0.01), n_levels=5)

    The file appears with finalize, whole; linumpy's is there from the beginning. The whole image has to fit the device's memory.
    Without finalize, close() (or a with block) frees it.
    """

    def __init__(self, store_path: Any, shape: Sequence[int], chunk_shape: Optional[Sequence[int]] = (128, 128, 128), dtype: Any = np.float32,
                 overwrite: bool = True, shards: Optional[Sequence[int]] = None, *, chunks: Optional[Sequence[int]] = None,
                 client: Optional[Client] = None):
        self._client = client_of(client)
        self.shape = tuple(int(one) for one in shape)
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise ValueError(f"shape is {short(shape)}; expected (z, y, x), each from 1")
        self.dtype = np.dtype(dtype)
        self.ndim = 3
        self.chunks = tuple(chunk_shape if chunks is None else chunks) if (chunk_shape is not None or chunks is not None) else None
        self._shards = shards
        self._to = _Destination(store_path, overwrite, self._client)
        self._buffer: Optional[Buffer] = self._client.buffers.create(self.shape, self.dtype)

    def _open(self) -> Buffer:
        if self._buffer is None:
            raise ValueError("the writer is finalized, or closed")
        return self._buffer

    def __setitem__(self, key: Any, value: Any) -> None:
        """Slices of step 1, and whole numbers. A slice ends where its axis ends, as NumPy's does. IndexError for one that lies beyond it: what is
        written there would be gone."""
        buffer = self._open()
        boxes, steps, gone = _boxes(key, self.shape)
        _check_within(key, self.shape)
        if any(one.step not in (None, 1) for one in steps):
            raise IndexError(f"the index {short(key)} has a step; expected slices of step 1")
        count = [stop - start for start, stop in boxes]
        if is_buffer(value):
            if tuple(value.shape) != tuple(count):
                raise ValueError(f"the buffer has the shape {tuple(value.shape)}; expected {tuple(count)}, that of the box")
        else:
            array = _spread_over(value, count, gone)
        if 0 in count:
            return
        with Work(self._client, value) as work:
            if is_buffer(value):
                piece = work.put(value, self.dtype)
            else:
                piece = work.put(np.ascontiguousarray(array.astype(self.dtype, copy=False)))
            self._client.buffers.apply(buffer.name, {"paste": {"other": piece.name, "start": [box[0] for box in boxes]}}, output=buffer.name)

    def __getitem__(self, key: Any) -> np.ndarray:
        boxes, steps, gone = _boxes(key, self.shape)
        count = [stop - start for start, stop in boxes]
        read = self._open().read(start=[box[0] for box in boxes], count=count) if 0 not in count else np.empty(count, self.dtype)
        read = read[steps]
        return read.reshape([n for n, drop in zip(read.shape, gone) if not drop])

    def buffer(self) -> Buffer:
        """The image on the device, while it is made. It goes with finalize."""
        return self._open()

    def finalize(self, res: Sequence[float] = (1e-3, 1e-3, 1e-3), n_levels: int = 5) -> str:
        """Writes the image with a pyramid, as save_omezarr does it, and frees it. res: mm along z, y, x. Gives its path."""
        return self._finish(_spacing_um(res), dict(pyramid_levels=_levels(n_levels, self.shape)))

    def _finish(self, spacing_um: List[float], pyramid: Dict[str, Any]) -> str:
        path = _write(self._client, self._open(), self._to, spacing_um, dict(_chunking(self.chunks, self._shards), **pyramid))
        self.close()
        return path

    def close(self) -> None:
        """Frees the image; without finalize there is no file."""
        if self._buffer is not None:
            buffer, self._buffer = self._buffer, None
            try:
                buffer.destroy()
            except errors.OctavoError:  # the server may have gone
                pass

    def __enter__(self) -> "OmeZarrWriter":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class AnalysisOmeZarrWriter(OmeZarrWriter):
    """The same with a pyramid at target resolutions."""

    def finalize(self, res: Sequence[float] = (1e-3, 1e-3, 1e-3), target_resolutions_um: Sequence[float] = (10, 25, 50, 100),  # type: ignore[override]
                 n_levels: Optional[int] = None) -> str:
        """Writes the image, and a level for each of target_resolutions_um (µm along every axis) that is coarser than the image and not above its
        extent: means over boxes (linumpy interpolates after a Gaussian). n_levels: at most so many of them."""
        spacing = _spacing_um(res)
        extent = max(one * n for one, n in zip(spacing, self.shape))
        coarser = sorted({float(one) for one in target_resolutions_um if min(spacing) < float(one) <= extent})
        return self._finish(spacing, dict(pyramid_um=coarser if n_levels is None else coarser[:n_levels]))


def create_tempstore(*_, **__) -> None:
    """linumpy's stores for intermediate results: here they are buffers on the device. ValueError."""
    raise ValueError("create_tempstore makes a file of zarr-python; intermediate results are buffers here (octavo.linumpy.gpu.to_gpu)")
