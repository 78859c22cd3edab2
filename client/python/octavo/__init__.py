"""Octavo from Python: scans, volumes and live products as NumPy arrays.

    import octavo
    with octavo.Client() as client:
        scan = client.submit_scan(octavo.simulated(seed=1), octavo.raster(512, 256, volumes=4))
        for frame in scan.subscribe(["mip"]):
            print(frame.sequence, frame.array.max())
        volume = scan.volumes()[0]
        array = volume.read()                       # [y, x, z]; np.asarray(volume), too
        volume.commit("mouse_{index:05}")

Arrays are C order, [y (B-scan), x (A-scan), z (depth)]; lengths are micrometres.

Wherever text stands for a choice ("hann", "u16", "sirt"), the names of other packages work, too
("hanning", np.uint16, "gridrec"). A value that is not allowed raises ValueError, an unknown
argument raises TypeError, and the message lists what is allowed; errors of the server raise
OctavoError.
"""

from octavo import _google_rpc  # noqa: F401  (before the stubs)
from octavo.client import Client, Waveform
from octavo.errors import OctavoError, OctavoTimeout, OctavoWarning
from octavo.fields import Choice, Fields
from octavo.formats import commit_options
from octavo.frames import Frame
from octavo.lending import ImportedBuffer, Loan, shared_array
from octavo.mapping import HandoffError, Mapped
from octavo.mosaic import read_positions
from octavo.names import enum_name
from octavo.objects import Buffer, BufferState, Job, JobState, Operation, OperationState, Scan, ScanState, Volume, VolumeState
from octavo.packing import pack12
from octavo.pictures import Picture
from octavo.png import write_png
from octavo.projection import back_project, project, projection
from octavo.push import ProjectionFrame, ProjectionPushResult, PushResult, projection_frames
from octavo.ring import Ring, RingError
from octavo.session import Lease, Session
from octavo.specs import (angular_warp, camera, dispersion_autofocus, freeform, job_spec, k_calibration, lissajous, marker, pattern, processing, push,
                          radial, raster, repeated_radial, repeated_raster, replay, reprocess, ring, scan_spec, scanner, simulated, spiral,
                          telecentric_warp, volume_import)
from octavo.tomography import ProjectionArrays, ProjectionFile, ProjectionMosaic, PushedProjections, preparation, recon, sinograms, tomography
from octavo import phantoms, prep  # noqa: E402  (after what they are made of)

__all__ = ["Buffer", "BufferState", "Choice", "Client", "Fields", "Frame", "HandoffError", "ImportedBuffer", "Job", "JobState", "Lease", "Loan", "Mapped", "OctavoError", "OctavoTimeout",
           "OctavoWarning", "Operation", "OperationState", "Picture", "ProjectionArrays", "ProjectionFile", "ProjectionFrame", "ProjectionMosaic", "ProjectionPushResult", "PushResult",
           "PushedProjections", "Ring", "RingError", "Scan", "ScanState", "Session", "Volume", "VolumeState", "Waveform", "angular_warp", "back_project", "camera",
           "commit_options", "dispersion_autofocus", "enum_name", "freeform", "job_spec", "k_calibration", "lissajous", "marker", "pack12", "pattern", "phantoms", "prep", "preparation",
           "processing", "project", "projection", "projection_frames", "push", "radial", "raster", "read_positions", "recon", "repeated_radial", "repeated_raster", "replay", "reprocess",
           "ring", "scan_spec", "scanner", "shared_array", "simulated", "sinograms", "spiral", "telecentric_warp", "tomography", "volume_import", "write_png"]
__version__ = "0.1.0"
