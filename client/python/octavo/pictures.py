"""Pictures of held volumes."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Dict, Iterable, Optional, Union

import numpy as np

from octavo.errors import warn
from octavo.frames import AXES, ENCODINGS, NUMPY, name_of
from octavo.names import Names
from octavo.objects import Volume
from octavo.v1 import stream_pb2, volume_pb2

RENDERINGS = Names({"plane": volume_pb2.RENDERING_PLANE, "max": volume_pb2.RENDERING_MAX, "mean": volume_pb2.RENDERING_MEAN,
                    "min": volume_pb2.RENDERING_MIN, "std": volume_pb2.RENDERING_STD},
                   aliases={"mip": "max", "aip": "mean", "slice": "plane"}, of=volume_pb2.Rendering)


_ENDINGS = {"png": (".png",), "jpeg": (".jpg", ".jpeg"), "webp": (".webp",), "raw": (".npy",)}


@dataclasses.dataclass(repr=False)
class Picture:
    """A picture of a held volume. `data` is the file; `array` is None but for encoding "raw". Jupyter shows it."""

    volume: Volume
    rendering: str
    axis: str            # cut across or projected along
    start: tuple         # the box that is shown, along the axes of the volume
    count: tuple
    begin_um: float      # where it begins and ends along `axis`
    end_um: float
    encoding: str
    shape: tuple         # [rows, columns], the colour bar's included
    axes: tuple          # names of rows and columns
    spacing_um: tuple    # per row and column
    levels: Optional[tuple]   # shown as dark and bright, in stored units; None: an array of a volume without display levels
    values: Optional[tuple]   # the same in value units, as image=dict(levels=(lo, hi)) chooses them
    unit: str
    scale_bar_um: float
    colour_bar_columns: int
    warnings: tuple      # what may not be as intended; each was an OctavoWarning, too
    array: Optional[np.ndarray]
    data: bytes

    def __repr__(self) -> str:
        what = f"array {self.array.dtype} {list(self.array.shape)}" if self.array is not None else (
            f"{self.encoding} of {' x '.join(map(str, self.shape))} pixels, {len(self.data)} bytes")
        return f"<octavo.Picture: {self.rendering} {self.axis} of {self.volume.name}, {what}>"

    def save(self, path: Union[str, os.PathLike]) -> None:
        """Writes the file (an array: as .npy). ValueError for a name without the ending of such files."""
        endings = _ENDINGS["raw" if self.array is not None else self.encoding]
        ending = os.path.splitext(os.fspath(path))[1].lower()
        if ending not in endings:
            others = [f"encoding={encoding!r}" for encoding, its in _ENDINGS.items() if ending in its]
            raise ValueError(f"path is {os.fspath(path)!r}, and this is {'an array' if self.array is not None else f'a picture in {self.encoding}'}; expected "
                             f"a name that ends in {', '.join(endings)}{f', and {others[0]} in render() makes such a file' if others else ''}")
        if self.array is not None:
            np.save(path, self.array)
            return
        with open(path, "wb") as file:
            file.write(self.data)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, bytes]:
        return {} if self.array is not None else {f"image/{self.encoding}": self.data}


def of(client: Any, messages: Iterable[volume_pb2.RenderVolumeResponse]) -> Optional[Picture]:
    """Assembles the chunks of a picture of a client's volume; None if some did not come."""
    head, buffer, done = None, bytearray(), 0
    for message in messages:
        if message.HasField("picture"):
            head, buffer = message.picture, bytearray(message.total_bytes)
        buffer[message.offset:message.offset + len(message.data)] = message.data
        done += len(message.data)
    if head is None or done != len(buffer):
        return None
    for warning in head.warnings:
        warn(warning)
    raw = head.encoding == stream_pb2.ENCODING_RAW
    pair = lambda name: (getattr(head, name).lo, getattr(head, name).hi) if head.HasField(name) else None  # noqa: E731
    return Picture(volume=Volume(client, head.volume), rendering=name_of(RENDERINGS, head.rendering), axis=name_of(AXES, head.axis), start=tuple(head.start),
                   count=tuple(head.count), begin_um=head.begin_um, end_um=head.end_um, encoding=name_of(ENCODINGS, head.encoding),
                   shape=tuple(head.shape), axes=tuple(head.axes), spacing_um=tuple(head.spacing_um), levels=pair("levels"), values=pair("values"),
                   unit=head.unit, scale_bar_um=head.scale_bar_um, colour_bar_columns=head.colour_bar_columns, warnings=tuple(head.warnings),
                   array=np.frombuffer(buffer, NUMPY[head.dtype]).reshape(tuple(head.shape)) if raw else None, data=b"" if raw else bytes(buffer))
