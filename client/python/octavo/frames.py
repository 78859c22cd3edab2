"""Live results: the request and its frames."""

from __future__ import annotations

import dataclasses
import numbers
from typing import Any, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

from octavo.arguments import explained, message, several
from octavo.fields import Fields, of_message
from octavo.names import Names, short
from octavo.png import no_fractions
from octavo.v1 import stream_pb2, types_pb2

NUMPY = {types_pb2.DTYPE_U8: np.dtype("u1"), types_pb2.DTYPE_I8: np.dtype("i1"), types_pb2.DTYPE_U16: np.dtype("<u2"), types_pb2.DTYPE_I16: np.dtype("<i2"),
         types_pb2.DTYPE_F16: np.dtype("<f2"), types_pb2.DTYPE_F32: np.dtype("<f4"), types_pb2.DTYPE_F64: np.dtype("<f8"), types_pb2.DTYPE_C64: np.dtype("<c8")}
PRODUCTS = Names({"mip": stream_pb2.PRODUCT_MIP, "aip": stream_pb2.PRODUCT_AIP, "bscan": stream_pb2.PRODUCT_BSCAN, "volume": stream_pb2.PRODUCT_VOLUME, "event": stream_pb2.PRODUCT_EVENT,
                  "angiogram": stream_pb2.PRODUCT_ANGIOGRAM, "spectrum": stream_pb2.PRODUCT_SPECTRUM, "ascan": stream_pb2.PRODUCT_ASCAN}, of=stream_pb2.Product)
SPECTRA = Names({"raw": stream_pb2.SPECTRUM_FORM_RAW, "corrected": stream_pb2.SPECTRUM_FORM_CORRECTED}, of=stream_pb2.SpectrumForm)
AXES = Names({"x": stream_pb2.AXIS_X, "y": stream_pb2.AXIS_Y, "z": stream_pb2.AXIS_Z}, of=stream_pb2.Axis)
DELIVERIES = Names({"latest": stream_pb2.DELIVERY_LATEST, "drop_oldest": stream_pb2.DELIVERY_DROP_OLDEST, "lossless": stream_pb2.DELIVERY_LOSSLESS}, of=stream_pb2.Delivery)
ENCODINGS = Names({"raw": stream_pb2.ENCODING_RAW, "png": stream_pb2.ENCODING_PNG, "jpeg": stream_pb2.ENCODING_JPEG, "webp": stream_pb2.ENCODING_WEBP}, aliases={"jpg": "jpeg"}, of=stream_pb2.Encoding)
COLOUR_MAPS = Names({"gray": stream_pb2.COLOUR_MAP_GRAY, "gray_inverted": stream_pb2.COLOUR_MAP_GRAY_INVERTED, "viridis": stream_pb2.COLOUR_MAP_VIRIDIS, "magma": stream_pb2.COLOUR_MAP_MAGMA,
                     "inferno": stream_pb2.COLOUR_MAP_INFERNO, "plasma": stream_pb2.COLOUR_MAP_PLASMA, "hot": stream_pb2.COLOUR_MAP_HOT},
                    aliases={"grey": "gray", "grey_inverted": "gray_inverted", "gray_r": "gray_inverted"}, of=stream_pb2.ColourMap)  # Matplotlib's


@dataclasses.dataclass(repr=False)
class Frame:
    """One live result. `array`, along `axes`: [rows, columns], or a volume; None for events and for pictures (`data` is the file)."""

    parent: str
    volume: str
    volume_index: int
    product: str
    axis: str
    sequence: int
    dropped_before: int
    complete: bool
    array: Optional[np.ndarray]
    data: bytes
    spacing_um: List[float]
    display: tuple
    acquired_ns: int   # monotonic clock of the server
    published_ns: int
    event: Optional[Fields] = None  # octavo.v1.ScanEvent, of product "event"; `text` is for people, `kind` for programs
    shape: tuple = ()          # of the array, or the picture's [rows, columns]
    axes: tuple = ()           # names of its axes: ("x", "z")
    unit: str = ""             # of the values, which are value_offset + value_step * array: "dB", "rad" or ""
    value_offset: float = 0.0
    value_step: float = 1.0
    scale_bar_um: float = 0.0  # pictures: length of the bar drawn; 0 = none
    colour_bar_columns: int = 0  # pictures: of shape, on the right, that the colour bar takes; 0 = none
    # projections and B-scans of completed volumes: times of the stages until here
    stages: Optional[stream_pb2.StageTimes] = None
    # octavo.v1.FrameRecord, of products "spectrum" and "ascan": record, row, column, minimum,
    # maximum, saturated_samples (their numbers), saturation_high, unit …
    record: Optional[Fields] = None
    slab: Optional[Tuple[int, int]] = None  # (begin, end) of the depth samples that a MIP is of, end excluded; None: of all

    def __repr__(self) -> str:
        """Describes the frame without its data."""
        what = (f"array {self.array.dtype} {list(self.array.shape)}" if self.array is not None else
                f"picture of {' x '.join(map(str, self.shape))} pixels, {len(self.data)} bytes" if self.data else f"{self.event.text!r}" if self.event else "no data")
        axis = f" {self.axis}" if self.axis and self.event is None and self.record is None else ""
        return (f"<octavo.Frame {self.sequence}: {self.product}{axis} of {self.volume or self.parent}, {what}, "
                f"dropped_before {self.dropped_before}>")


def name_of(table: dict, value: int) -> str:
    return next((name for name, number in table.items() if number == value), "")


def check_axis(axis) -> None:
    """ValueError for an axis that is not a name, because elsewhere a number means an axis of
    the array."""
    if axis is not None and not isinstance(axis, str):
        raise ValueError(f"axis is {short(axis)}; expected 'x', 'y' or 'z': the axes 1, 0 and 2 of a scan's volumes [y, x, z], 2, 1 and 0 of "
                         "tomograms [z, y, x]")


def check_index(index: Optional[int], products: Sequence[int]) -> None:
    """ValueError for an impossible index, or one that no requested product has."""
    if index is None:
        return
    if index < 0:
        raise ValueError(f"index is {short(index)}; expected a whole number from 0 on, or None for the B-scan in the middle (of 'spectrum' and 'ascan': any column)")
    if not {stream_pb2.PRODUCT_BSCAN, stream_pb2.PRODUCT_SPECTRUM, stream_pb2.PRODUCT_ASCAN} & set(products):
        asked = ", ".join(name_of(PRODUCTS, product) or str(product) for product in products)
        raise ValueError(f"index is {short(index)}, the number of a B-scan, but products are {asked}; expected an index only with 'bscan', "
                         "and the column x with 'spectrum' and 'ascan'")


def slab_of(slab) -> Optional[stream_pb2.DepthRange]:
    """The range of depth (begin, end) of a request; ValueError for what is none."""
    if slab is None:
        return None
    begin, end = several("slab", slab, "begin, end")
    if begin != int(begin) or end != int(end):
        raise ValueError(f"slab is {short(slab)}; expected two whole numbers of depth samples: (begin, end), end excluded")
    return stream_pb2.DepthRange(begin=int(begin), end=int(end))


@explained(stream_pb2.ImageOptions)
def image_options(*, colour_map: Union[str, int] = "", levels: Optional[Sequence[float]] = None, percentiles: Optional[Sequence[float]] = None,
                  **fields: Any) -> stream_pb2.ImageOptions:
    """octavo.v1.ImageOptions; see Client.subscribe."""
    for name, allowed in (("quality", "1 to 100"), ("max_width", "a number of pixels from 1 on"), ("max_height", "a number of pixels from 1 on")):
        if isinstance(fields.get(name), numbers.Real) and fields[name] == 0:  # which the contract takes for the default
            raise ValueError(f"image.{name} is {short(fields[name])}; expected {allowed}, or None for the default")
    made = message(stream_pb2.ImageOptions, dict(colour_map=colour_map or None, **fields), "image.")
    for name, pair in (("levels", levels), ("percentiles", percentiles)):
        if pair is not None:
            lo, hi = several(f"image.{name}", pair, "lo, hi")
            if name == "percentiles":
                no_fractions(f"image.{name}", lo, hi)
            getattr(made, name).CopyFrom(types_pb2.Levels(lo=lo, hi=hi))
    return made


def image_of(image) -> stream_pb2.ImageOptions:
    """Options as a caller gives them: a dict, or the message."""
    if isinstance(image, stream_pb2.ImageOptions):
        return image
    if not isinstance(image, dict):
        raise ValueError(f"image is {short(image)}; expected a dict: {', '.join(image_options.allowed)}")
    return image_options(**image)


def left_out(image: stream_pb2.ImageOptions, shape: Sequence[int], scale_bar_um: float, colour_bar_columns: int) -> List[str]:
    """The bars that `image` asks for and a picture of this shape, [rows, columns], does not have, in words."""
    missing = [name for name, asked, drawn in (("scale bar", image.scale_bar, scale_bar_um), ("colour bar", image.colour_bar, colour_bar_columns))
               if asked and not drawn]
    return [f"the picture has no {name}: {shape[1]} x {shape[0]} pixels are too few for one"
            + (", or the sample spacing is unknown" if name == "scale bar" else "") for name in missing]


def of_messages(messages) -> Iterator[Tuple[stream_pb2.Frame, bytearray]]:
    """Assembles the chunks of each frame of a call: what it is, and its data."""
    head, buffer = None, bytearray()
    for message in messages:
        if message.HasField("frame"):
            head, buffer = message.frame, bytearray(message.total_bytes)
        buffer[message.offset:message.offset + len(message.data)] = message.data
        if message.offset + len(message.data) == message.total_bytes:
            yield head, buffer


def frame_of(head: stream_pb2.Frame, buffer) -> Frame:
    """The frame; its array is a view of the buffer."""
    array = None
    if len(buffer) and head.encoding == stream_pb2.ENCODING_RAW:
        array = np.frombuffer(buffer, NUMPY[head.dtype]).reshape(tuple(head.shape))
    return Frame(parent=head.parent, volume=head.volume, volume_index=head.volume_index, product=name_of(PRODUCTS, head.product),
                 axis=name_of(AXES, head.axis), sequence=head.sequence, dropped_before=head.dropped_before, complete=head.complete,
                 array=array, data=b"" if array is not None else bytes(buffer), spacing_um=list(head.spacing_um),
                 display=(head.display_levels.lo, head.display_levels.hi), acquired_ns=head.acquire_monotonic_ns,
                 published_ns=head.publish_monotonic_ns, shape=tuple(head.shape), axes=tuple(head.axes), unit=head.unit, value_offset=head.value_offset,
                 value_step=head.value_step, scale_bar_um=head.scale_bar_um,
                 colour_bar_columns=head.colour_bar_columns,
                 event=of_message(None, head.event) if head.HasField("event") else None,
                 stages=head.stages if head.HasField("stages") else None,
                 record=of_message(None, head.record) if head.HasField("record") else None,
                 slab=(head.slab.begin, head.slab.end) if head.HasField("slab") else None)
