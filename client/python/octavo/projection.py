"""Projection and its adjoint: jobs, and project() and back_project() for arrays."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Union

import numpy as np
from google.protobuf.message import Message

from octavo.arguments import array, builder, explained, message, short
from octavo.array_jobs import ArrayJobs
from octavo.client import Client
from octavo.tomography import axis_of, doubt_axis
from octavo.v1 import projection_pb2

_CALLED = {"angles_rad": "angles", "axis_pixels": "center", "mask_ratio": "mask", "slices_per_batch": "batch"}


@builder(projection_pb2.ProjectionJob, called=_CALLED)
def projection(input: str, angles: Sequence[float], *, adjoint: bool = False, center: Union[None, float, Sequence[float]] = None, mask: float = 0.0,
               batch: int = 0, **fields: Any) -> projection_pb2.ProjectionJob:
    """A projection of images, or its exact adjoint, for Client.submit_job: the matrix that sirt, mlem, cgls and tv of octavo.tomography iterate with.
    The job leaves a held volume of float32.

    input    a held volume or a buffer that is not private, float32: square images [slice, y, x], which become sinograms [slice, angle, column];
             with adjoint sinograms, which become images
    angles   radians, one per projection; in any order, also repeated
    center   column of the axis as a pixel index (an axis in the middle of N columns: (N - 1) / 2), one for all or one per slice; None = the middle
    mask     circle outside of which pixels count as 0 (fraction of the half width); 0 = the whole image
    batch    slices projected at a time; 0 = chosen
    fields   columns of the sinograms and image_size, rows and columns of an image (0 = the same as the input has);
             interpolation "nearest", "linear" (the default), "cubic"; pixel_size; place "device", "disk"

    Each ray takes one interpolated sample in each row or column of the image (Joseph 1982, IEEE Trans. Med. Imaging 1, 192-196).
    octavo.v1.ProjectionJob has the formula.
    """
    center = None if center is None else np.atleast_1d(array("center", center, np.float64)).ravel()
    return message(projection_pb2.ProjectionJob, dict(
        input=input, adjoint=adjoint, angles_rad=array("angles", angles, np.float64).ravel(), axis_pixels=center, mask_ratio=mask, slices_per_batch=batch,
        **fields), called=_CALLED)


_TAKEN = ("input", "angles", "adjoint", "batch", "place")


@explained(projection, covered=(*_TAKEN, "image_size"))
def project(image: Any, theta: Sequence[float], center: Union[None, float, Sequence[float]] = None, *, sinogram_order: bool = False,
            device: str = "", client: Optional[Client] = None, progress: Optional[Callable] = None, **fields: Any) -> np.ndarray:
    """Projections of images, as tomopy.project has them: float32 [angle, slice, column], or [slice, angle, column] with sinogram_order.

    image    square images [slice, y, x] or one [y, x], which gives [angle, column]; or a held volume or a buffer [slice, y, x], by name
    theta    radians, one per projection; in any order, also repeated
    center   pixel index, as in octavo.recon (TomoPy's project counts 0.5 more): one for all or one per slice; None = the middle. The axis passes the middle of the image
    device   "devices/<n>", "host" (devices/host, where the server has it); empty: the server chooses
    client   the connection to use (default: a new one); progress called with each octavo.v1.Job
    fields   of octavo.projection: columns (0 = as many as the image has; TomoPy's pad=True makes about sqrt(2) times as many), interpolation,
             pixel_size, mask

    Values are line integrals of the image in its unit times pixel_size. Differs from tomopy.project: rays are sampled as in octavo.projection, and
    there are no columns beyond those asked for. Raises ValueError for arguments that cannot be meant, OctavoError for errors of the server.
    """
    return _run(client, "octavo.project", "image", image, ("[slice, y, x]", "[y, x]"), theta, center, False, sinogram_order, device, progress, fields)


@explained(projection, covered=(*_TAKEN, "columns"))
def back_project(tomo: Any, theta: Sequence[float], center: Union[None, float, Sequence[float]] = None, *, sinogram_order: bool = False,
                 device: str = "", client: Optional[Client] = None, progress: Optional[Callable] = None, **fields: Any) -> np.ndarray:
    """The exact adjoint of project(), without a filter: images float32 [slice, y, x].

    tomo     [angle, slice, column], or with sinogram_order [slice, angle, column]; or one sinogram [angle, column], which gives one image [y, x]; or a
             held volume or a buffer by name, which is [slice, angle, column]
    fields   of octavo.projection: image_size (0 = the columns), interpolation, pixel_size, mask; the other arguments as those of project()
    """
    order = "[slice, angle, column]" if sinogram_order else "[angle, slice, column]"
    return _run(client, "octavo.back_project", "tomo", tomo, (order, "[angle, column]"), theta, center, True, sinogram_order, device, progress, fields)


def _run(client: Optional[Client], title: str, name: str, given: Any, axes: Sequence[str], theta: Any, center: Any, adjoint: bool, sinogram_order: bool, device: str,
         progress: Optional[Callable], fields: dict) -> np.ndarray:
    if client is not None and not isinstance(client, Client):
        raise ValueError(f"client is {short(client)}; expected an octavo.Client")
    theta = array("theta", theta, np.float64).ravel()
    held = given if isinstance(given, str) else given.name if isinstance(given, Message) and "name" in given.DESCRIPTOR.fields_by_name else None
    if held is not None and not held.startswith(("volumes/", "buffers/")):
        raise ValueError(f"{name} is {short(held)}; expected an array {' or '.join(axes)}, or a held volume or a buffer, volumes/<id> or buffers/<id>")
    single, slices, arrays = False, None, []
    if held is None:
        stack = array(name, given, np.float32, " or ".join(axes))
        single = stack.ndim == 2
        if single:
            stack = stack[None]
        elif adjoint and not sinogram_order:
            stack = stack.swapaxes(0, 1)
        if not stack.size:
            raise ValueError(f"{name} has the shape {np.shape(given)}, which holds nothing; expected the axes {' or '.join(axes)}")
        if not adjoint and stack.shape[1] != stack.shape[2]:
            raise ValueError(f"{name} has the shape {np.shape(given)}; expected square images, {' or '.join(axes)} with as many rows as columns")
        if adjoint and stack.shape[1] != len(theta):
            raise ValueError(f"theta has {len(theta)} angles and {name} has {stack.shape[1]} projections; expected an angle for each projection")
        slices, arrays = len(stack), [np.ascontiguousarray(stack)]
    if center is not None:
        center = axis_of(center)
        if slices is not None and len(center) not in (1, slices):
            raise ValueError(f"center has {len(center)} values; expected 1{f', or {slices}: one for each slice' if slices > 1 else ''}")
    if not len(theta):
        raise ValueError("theta is empty; expected radians, one per projection")

    def make(names: Sequence[str]) -> projection_pb2.ProjectionJob:
        return projection(held if held is not None else names[0], theta, adjoint=adjoint, center=center, **fields)

    make(["buffers/none"])  # report errors in the arguments before sending anything
    if center is not None and arrays:
        doubt_axis(center, arrays[0].shape[2] if adjoint else fields.get("columns") or arrays[0].shape[2])
    with ArrayJobs(title, client) as jobs:
        job = jobs.run(make, arrays, device=device, progress=progress)
        made = jobs.read(job.volume_names[0])
    if single:
        return made[0]
    return made if adjoint or sinogram_order else np.ascontiguousarray(made.swapaxes(0, 1))
