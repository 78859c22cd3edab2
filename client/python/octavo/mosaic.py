"""Tiles and slabs in device memory: registered, stitched, overlapped (Client.mosaic)."""

from __future__ import annotations

import csv
import numbers
import os
from typing import Any, Dict, List, Optional, Sequence, Union

import grpc
import numpy as np

from octavo import errors
from octavo.arguments import Seconds, explained, explained_methods, message, real, short, whole
from octavo.buffers import Buffers, scalar
from octavo.fields import Fields, of_message, plain
from octavo.names import Names
from octavo.objects import Name
from octavo.v1 import mosaic_pb2, mosaic_pb2_grpc

BLENDS = Names({"linear": mosaic_pb2.TILE_BLEND_LINEAR, "hann": mosaic_pb2.TILE_BLEND_HANN, "average": mosaic_pb2.TILE_BLEND_AVERAGE},
               aliases={"feather": "linear", "mean": "average", "hanning": "hann"}, of=mosaic_pb2.TileBlend)
SECTION_BLENDS = Names({"later": mosaic_pb2.SECTION_BLEND_LATER, "earlier": mosaic_pb2.SECTION_BLEND_EARLIER, "hann": mosaic_pb2.SECTION_BLEND_HANN},
                       aliases={"none": "later", "hanning": "hann"}, of=mosaic_pb2.SectionBlend)
Position = Sequence[float]
_GAIN_MIN_VOXELS = 1000  # of StackSectionsRequest without it
_UM = {"um": 1.0, "mm": 1000.0}
_COLUMNS = {f"{axis}_{form}{unit}" for axis in "zyx" for form in ("", "shift_") for unit in _UM}


def read_positions(path: Union[str, os.PathLike]) -> List[List[float]]:
    """Positions of tiles [z, y, x] in µm, from a file.

    A CSV file with a line of headings has a line for each tile, with its position in the columns x_um, y_um and z_um, or x_mm, y_mm and
    z_mm (z may be missing: 0); or, in the columns x_shift_mm and y_shift_mm, the way from the tile of the line to the next one (so does
    linumpy), and the first tile is at 0. Other columns do not matter. A TOML file has `unit = "um"` or "mm", which is needed, and a table
    [[tile]] with x, y and z for each tile (needs Python 3.11).
    """
    if str(path).endswith(".toml"):
        return _from_toml(path)
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
        rows = csv.DictReader(file, skipinitialspace=True)
        columns = [name.strip() for name in rows.fieldnames or []]
        rows.fieldnames = columns
        lines = list(rows)
    known = [name for name in columns if name in _COLUMNS]
    if len(set(known)) < len(known) or len({name.split("_", 1)[1] for name in known}) > 1:
        raise ValueError(f"{path} has the columns {', '.join(known)}; expected each once, and all in one unit")
    for unit, um in _UM.items():
        for form in (f"{{}}_{unit}", f"{{}}_shift_{unit}"):
            named = [form.format(axis) for axis in "zyx"]
            if named[1] in columns and named[2] in columns:
                steps = [[_number(path, i + 2, name, line[name]) * um if name in columns else 0.0 for name in named] for i, line in enumerate(lines)]
                if "shift" not in form:
                    return steps
                return np.vstack([np.zeros((1, 3)), np.cumsum(np.reshape(steps, (-1, 3)), axis=0)]).tolist()
    raise ValueError(f"{path} has the columns {', '.join(columns) or 'of no heading'}; expected x_um and y_um, x_mm and y_mm, or x_shift_mm and y_shift_mm")


def _number(path, line: int, column: str, text) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        raise ValueError(f"{path}: line {line} has {short(text)} in the column {column}; expected a number") from None


def _from_toml(path) -> List[List[float]]:
    try:
        import tomllib
    except ImportError:
        raise ValueError(f"{path} is TOML, which Python reads from 3.11 on; expected a CSV file") from None
    with open(path, "rb") as file:
        try:
            given = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path} is no TOML: {error}") from None
    if "unit" not in given:
        raise ValueError(f"{path}: unit: is missing; allowed um, mm")
    unit = given["unit"]
    if not isinstance(unit, str) or unit not in _UM:
        raise ValueError(f"{path}: unit: is {short(unit)}; allowed um, mm")
    tiles = given.get("tile")
    if not isinstance(tiles, list) or not tiles or not all(isinstance(one, dict) for one in tiles):
        raise ValueError(f"{path} has no [[tile]]; expected one for each tile, with x, y and z")
    positions = []
    for i, one in enumerate(tiles):
        for axis in ("x", "y"):
            if axis not in one:
                raise ValueError(f"{path}: tile {i} has no {axis}")
        positions.append([real(f"tile[{i}].{axis}", one.get(axis, 0)) * _UM[unit] for axis in "zyx"])
    return positions


def _vector(field: str, value, flat_z: float) -> mosaic_pb2.MosaicVector:
    """[z, y, x] or [y, x]."""
    if isinstance(value, mosaic_pb2.MosaicVector):
        return value
    if isinstance(value, Fields):
        return plain(value)
    if isinstance(value, str) or not hasattr(value, "__len__") or len(value) not in (2, 3):
        raise ValueError(f"{field} is {short(value)}; expected [z, y, x] or [y, x], in µm")
    z, y, x = ([flat_z] if len(value) == 2 else []) + [real(f"{field}[{i}]", one) for i, one in enumerate(value)]
    return mosaic_pb2.MosaicVector(z=z, y=y, x=x)


def _vectors(field: str, values) -> list:
    if isinstance(values, (str, os.PathLike)):
        values = read_positions(values)
    if isinstance(values, (mosaic_pb2.RegisterTilesResponse, Fields)):
        values = [tile.position_um for tile in plain(values).tiles]
    return [_vector(f"{field}[{i}]", one, 0.0) for i, one in enumerate(values)]


def _spacing(spacing_um, flat_z: float) -> mosaic_pb2.MosaicVector:
    return _vector("spacing_um", [spacing_um] * 3 if isinstance(spacing_um, numbers.Real) else spacing_um, flat_z)


def _source(tiles: str, spacing_um, depth, tile, lease_token: str, axes_as_zyx: bool) -> mosaic_pb2.TileSource:
    errors.check_kind("tiles", tiles, ("buffers", "volumes"))
    if depth is not None and tile is not None:
        raise ValueError(f"depth is {short(depth)} and tile is {short(tile)}; expected one of them: tiles one after the other, or side by side")
    source = mosaic_pb2.TileSource(name=tiles, spacing_um=_spacing(spacing_um, 0.0), lease_token=lease_token, axes_as_zyx=axes_as_zyx)
    if tile is None:
        source.stack.depth = whole("depth", 1 if depth is None else depth, 1, 2 ** 31)
    else:
        if not hasattr(tile, "__len__") or len(tile) != 2:
            raise ValueError(f"tile is {short(tile)}; expected the voxels of a tile along y and x: (512, 512)")
        source.grid.tile_y, source.grid.tile_x = (whole(f"tile[{i}]", one, 1, 2 ** 31) for i, one in enumerate(tile))
    return source


@explained_methods
class Mosaic:
    """MosaicService of a client (Client.mosaic). Tiles are an array [tiles x depth, y, x], or lie side by side in an array [z, y, x]
    (tile=(height, width)). Positions are [z, y, x] or [y, x] in µm, one for each tile; or a file of them (read_positions)."""

    def __init__(self, channel: grpc.Channel, timeout: float, metadata: list, buffers: Buffers):
        self.address = buffers.address
        self._buffers = buffers
        self._stub = mosaic_pb2_grpc.MosaicServiceStub(channel)
        self._timeout = timeout
        self._metadata = metadata

    @explained(mosaic_pb2.RegisterTilesRequest, covered=("tiles", "stage_um"))
    def register(self, tiles: Name, stage_um: Union[Sequence[Position], str, os.PathLike], *, spacing_um: Union[float, Position], depth: Optional[int] = None,
                 tile: Optional[Sequence[int]] = None, lease_token: str = "", axes_as_zyx: bool = False, **fields: Any) -> Fields:
        """Finds where the tiles lie, by their overlaps: .tiles (position_um, state), .joints (difference_um, confidence, state), .suspects,
        .rms_residual_um. Tiles that are wrong are suspects, and an OctavoWarning names them.

        stage_um    where the stage had each tile
        spacing_um  from voxel to voxel: a number, or [z, y, x]
        depth       planes of a tile, of tiles one after the other
        tile        (height, width) of tiles side by side
        axes_as_zyx the axes are z, y, x, whatever a volume calls them
        """
        request = message(mosaic_pb2.RegisterTilesRequest, dict(
            tiles=_source(tiles, spacing_um, depth, tile, lease_token, axes_as_zyx), stage_um=_vectors("stage_um", stage_um), **fields))
        with errors.raising(self.address):
            found = self._stub.RegisterTiles(request, metadata=self._metadata)  # as long as it takes
        for i in found.suspects:
            one = found.tiles[i]
            state = mosaic_pb2.TileState.Name(one.state)[len("TILE_STATE_"):]
            errors.warn(f"tile {i} of {tiles} is {state}: {one.used_joints} of its {one.joints} joints are used")
        return of_message(self._buffers, found)

    @explained(mosaic_pb2.StitchTilesRequest, covered=("tiles",))
    def stitch(self, tiles: Name, position_um: Any, *, spacing_um: Union[float, Position], depth: Optional[int] = None,
               tile: Optional[Sequence[int]] = None, blend: str = "", type: Any = None, gap: Optional[float] = None,
               labels: Optional[Dict[str, str]] = None, ttl: Optional[Seconds] = None, request_id: str = "", lease_token: str = "",
               axes_as_zyx: bool = False) -> Fields:
        """Makes one array of the tiles: .buffer [z, y, x], .origin_um.

        position_um  where each tile lies: what register() gave, or positions
        blend        "linear", "hann", "average"
        type         of the result; None: that of the tiles
        gap          of voxels that no tile has; None: NaN, or 0 if the type has none
        """
        request = message(mosaic_pb2.StitchTilesRequest, dict(
            tiles=_source(tiles, spacing_um, depth, tile, lease_token, axes_as_zyx), position_um=_vectors("position_um", position_um),
            blend=BLENDS.pick("blend", blend) if blend else None, type=None if type is None else scalar(type), gap=gap, labels=labels, ttl=ttl,
            request_id=request_id))
        with errors.raising(self.address):
            return of_message(self._buffers, self._stub.StitchTiles(request, metadata=self._metadata))  # as long as it takes

    @explained(mosaic_pb2.FindZOverlapRequest, covered=("fixed", "moving"))
    def overlap(self, fixed: Name, moving: Name, *, slicing_interval_um: float, search_range_um: float, spacing_z_um: float, **fields: Any) -> Fields:
        """Finds how many planes two slabs [z, y, x] have in common: .overlap, .correlation, .fallback, and .correlations of all that were
        tried, from .first_overlap on. With .fallback it was not found, and an OctavoWarning says so."""
        errors.check_kind("fixed", fixed, ("buffers", "volumes"))
        errors.check_kind("moving", moving, ("buffers", "volumes"))
        request = message(mosaic_pb2.FindZOverlapRequest, dict(fixed=fixed, moving=moving, slicing_interval_um=slicing_interval_um,
                                                               search_range_um=search_range_um, spacing_z_um=spacing_z_um, **fields))
        with errors.raising(self.address):
            found = self._stub.FindZOverlap(request, metadata=self._metadata)  # as long as it takes
        if found.fallback:
            errors.warn(f"the overlap of {fixed} and {moving} was not found (correlation {found.correlation:.3f}): {found.overlap} planes are "
                        "expected from the slicing interval")
        return of_message(self._buffers, found)

    @explained(mosaic_pb2.StackSectionsRequest, covered=("sections",))
    def stack(self, sections: Sequence[Name], position_um: Any, *, spacing_um: Union[float, Position], blend: str = "", type: Any = None,
              lease_tokens: Optional[Dict[str, str]] = None, axes_as_zyx: bool = False, **fields: Any) -> Fields:
        """Makes one array of sections [z, y, x] that were cut one after the other: .buffer [z, y, x], .origin_um, .total_z, .sections (what
        was done with each: overlap, overlap_state, correlation, refinement_um, gain), .suspects. An OctavoWarning names each section whose
        overlap with the one before was not found, or was put right. Another one names those whose brightness match_intensity did not match,
        because too few voxels are above 0: it needs linear numbers, not dB.

        position_um   where the stage had each section: [y, x] or [z, y, x] in µm, or a file of them (read_positions); z does not count
        spacing_um    from voxel to voxel: a number, or [z, y, x]
        blend         "later" (default), "earlier", "hann"
        type          of the result; None: that of the sections
        lease_tokens  of your own leases, by name
        axes_as_zyx   the axes are z, y, x, whatever volumes call them
        """
        sections = [getattr(one, "name", one) for one in sections]
        for i, name in enumerate(sections):
            errors.check_kind(f"sections[{i}]", name, ("buffers", "volumes"))
        positions = _vectors("position_um", position_um)
        if len(positions) != len(sections):
            raise ValueError(f"position_um has {len(positions)} positions; expected {len(sections)}, one for each section")
        tokens = {getattr(one, "name", one): token for one, token in (lease_tokens or {}).items()}
        request = message(mosaic_pb2.StackSectionsRequest, dict(
            spacing_um=_spacing(spacing_um, 0.0), blend=SECTION_BLENDS.pick("blend", blend) if blend else None,
            type=None if type is None else scalar(type), **fields))
        for name, at in zip(sections, positions):
            request.sections.add(name=name, position_um=at, lease_token=tokens.get(name, ""), axes_as_zyx=axes_as_zyx)
        with errors.raising(self.address):
            made = self._stub.StackSections(request, metadata=self._metadata)  # as long as it takes
        for i in made.suspects:
            one = made.sections[i]
            state = mosaic_pb2.OverlapState.Name(one.overlap_state)[len("OVERLAP_STATE_"):]
            errors.warn(f"the overlap of section {i} ({sections[i]}) with the one before is {state}: {one.overlap} planes (the best correlation was "
                        f"{one.correlation:.3f} at {one.found_overlap})")
        unmatched = [f"section {i} ({sections[i]}: counted {one.gain_voxels} voxels above 0)" for i, one in enumerate(made.sections) if i and one.measured_gain == 0]
        if request.match_intensity and unmatched:
            least = request.gain_min_voxels if request.HasField("gain_min_voxels") else _GAIN_MIN_VOXELS
            errors.warn(f"match_intensity did not match the brightness of {', '.join(unmatched)}: an overlap has to have more than {least} voxels "
                        "(gain_min_voxels) that are above 0 in both; numbers in dB have to be linear ones for this")
        return of_message(self._buffers, made)

    @explained(mosaic_pb2.ResampleTilesRequest, covered=("tiles",))
    def resample(self, tiles: Name, target_um: Union[float, Position], *, spacing_um: Union[float, Position], depth: Optional[int] = None,
                 tile: Optional[Sequence[int]] = None, type: Any = None, lease_token: str = "", axes_as_zyx: bool = False, **fields: Any) -> Fields:
        """Resamples each tile by itself: .buffer, laid out as the tiles are, .depth, .tile_y, .tile_x, .spacing_um.

        depth, tile  one of them is needed: planes of a tile, of tiles one after the other; or (height, width) of tiles side by side
        target_um    the wanted distance from voxel to voxel: a number, or [z, y, x]; 0 leaves an axis as it is
        type         of the result; None: that of the tiles
        """
        if depth is None and tile is None:  # no positions would tell a wrong layout
            raise ValueError("depth and tile are missing; expected one of them: tile=(height, width) of tiles side by side, or depth= planes of tiles one "
                             "after the other")
        target = [target_um] * 3 if isinstance(target_um, numbers.Real) else target_um
        request = message(mosaic_pb2.ResampleTilesRequest, dict(
            tiles=_source(tiles, spacing_um, depth, tile, lease_token, axes_as_zyx), target_um=_vector("target_um", target, 0.0),
            type=None if type is None else scalar(type), **fields))
        with errors.raising(self.address):
            return of_message(self._buffers, self._stub.ResampleTiles(request, metadata=self._metadata))  # as long as it takes
