"""Octavo from Python: scans, volumes and live products as NumPy arrays.

    import octavo
    with octavo.Client() as client:
        scan = client.submit_scan(octavo.simulated(seed=1), octavo.raster(512, 256, volumes=4))
        for frame in client.subscribe(scan.name, products=["mip"]):
            print(frame.sequence, frame.array.max())
        volume = client.volumes(scan.name)[0]
        array = client.read(volume.name)            # [y, x, z]
        client.commit(volume.name, "mouse_{index:05}")

Arrays are C order, [y (B-scan), x (A-scan), z (depth)]; lengths are micrometres.
"""

from octavo.client import Client, Frame, commit_options
from octavo.errors import OctavoError
from octavo.png import write_png
from octavo.push import PushResult
from octavo.specs import camera, marker, processing, push, raster, replay, scan_spec, simulated

__all__ = ["Client", "Frame", "OctavoError", "PushResult", "camera", "commit_options", "marker", "processing", "push", "raster", "replay", "scan_spec",
           "simulated", "write_png"]
__version__ = "0.1.0"
