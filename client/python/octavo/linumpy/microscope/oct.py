"""linumpy.microscope.oct: raw tiles of a microscope, folders with info.txt and image_*.bin."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Tuple, Union

import numpy as np

from octavo import errors
from octavo.arguments import short
from octavo.client import Client
from octavo.linumpy._device import client_of
from octavo.objects import Buffer


class OCT:
    """A raw tile: `info`, what info.txt says; shape (z, x, y); resolution and dimension in mm (z, x, y); position of the stage in mm (x, y, z).

    directory  the folder, here, and below a replay root of the server or where it can be handed over
    axial_res  of a sample along z, in µm, which info.txt does not say
    """

    def __init__(self, directory: Any, axial_res: float = 3.5, *, client: Optional[Client] = None):
        self.directory = os.path.abspath(os.fspath(directory))
        self._client = client
        self._axial_mm = float(axial_res) * 1e-3
        path = os.path.join(self.directory, "info.txt")
        self.info: Dict[str, Any] = {}
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                key, colon, value = line.partition(":")
                if colon:
                    self.info[key.strip()] = _value(value.strip())
        missing = [key for key in ("nx", "ny", "top_z", "bottom_z") if not isinstance(self.info.get(key), (int, float))]
        if missing:
            raise ValueError(f"{path} does not say {', '.join(missing)}; expected lines 'key: number' for them")

    @property
    def shape(self) -> Tuple[int, int, int]:
        """(z, x, y), without the A-scans of the galvo's way back. Where the files have one sample more than bottom_z - top_z, they are right."""
        nx, ny, extra = int(self.info["nx"]), int(self.info["ny"]), int(self.info.get("n_extra", 0))
        depth = int(self.info["bottom_z"]) - int(self.info["top_z"])
        stored = sum(entry.stat().st_size for entry in os.scandir(self.directory) if entry.name.startswith("image_") and entry.name.endswith(".bin"))
        line = 4 * (nx + extra) * ny
        return (stored // line if stored and stored % line == 0 and stored // line == depth + 1 else depth), nx, ny

    @property
    def dimension(self) -> Tuple[float, float, float]:
        """(z, x, y) in mm."""
        return self.shape[0] * self._axial_mm, float(self.info.get("width", 0)), float(self.info.get("height", 0))

    @property
    def resolution(self) -> Tuple[float, float, float]:
        """(z, x, y) in mm from sample to sample."""
        depth, width, height = self.dimension
        return self._axial_mm, width / self.shape[1], height / self.shape[2]

    @property
    def position_available(self) -> bool:
        return all(isinstance(self.info.get(f"stage_{axis}_pos_mm"), (int, float)) for axis in "xyz")

    @property
    def position(self) -> Tuple[float, float, float]:
        """Of the stage, (x, y, z) in mm; zeros where info.txt does not say it."""
        return tuple(float(self.info.get(f"stage_{axis}_pos_mm", 0) or 0) for axis in "xyz")  # type: ignore[return-value]

    def load_image(self, crop: bool = True, fix_galvo_shift: Union[bool, int] = True, fix_camera_shift: bool = False, *, on_device: bool = False) -> Any:
        """The tile (z, x, y), float32: an array, or with on_device a buffer, which the caller destroys.

        crop              without the last n_extra A-scans of each row, the galvo's way back
        fix_galvo_shift   a number of A-scans: each row is rolled on by it before the crop. True: linumpy looks for the number; here nothing is
                          done, and an OctavoWarning says so where there is a way back (n_extra)
        fix_camera_shift  must be False: the correction of old recordings is not here
        """
        if fix_camera_shift:
            raise ValueError(f"fix_camera_shift is {short(fix_camera_shift)}; expected False: this correction is not here")
        client = client_of(self._client)
        depth, nx, ny = self.shape
        extra = int(self.info.get("n_extra", 0))
        shift = 0
        if fix_galvo_shift is True:
            if extra:
                errors.warn(f"{self.directory}: the place of the galvo's way back is taken as it was recorded, at the end of each row; linumpy looks for it: "
                            "give fix_galvo_shift as a number, or False")
        elif fix_galvo_shift is not False:
            shift = int(fix_galvo_shift) % (nx + extra)
        box = dict(start=[0, 0, 0], count=[0, nx, 0]) if crop and not shift else {}
        buffer = client.import_buffer_from(self.directory, format="linumpy", order="zxy", **box)
        if shift:
            buffer = _rolled(client, buffer, shift, nx if crop else nx + extra)
        if on_device:
            return buffer
        try:
            return buffer.read()
        finally:
            buffer.destroy()


def _rolled(client: Client, buffer: Buffer, shift: int, keep: int) -> Buffer:
    """Rows along axis 1 rolled on, and their first `keep` samples."""
    depth, row, frames = buffer.shape
    amounts = client.buffers.put(np.full((depth, frames), shift, np.float32))
    try:
        return client.buffers.apply(buffer.name, {"shift": {"axis": 1, "amounts": amounts.name, "sampling": "nearest", "edge": "wrap"}},
                                    {"crop": {"start": [0, 0, 0], "count": [depth, keep, frames]}})
    finally:
        amounts.destroy()
        buffer.destroy()


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
