"""Mistakes of users with octavo from Python. Each raises at once an error that names the argument,
its value and what is allowed, and changes nothing. Row: the call, the kind of error, and the words
that it must have. Also tests synonyms that other packages use."""

import os
import unittest
import warnings

import numpy as np

from harness import DaemonTest, octavo, until
from octavo.v1 import scan_pb2

SOURCE, SHAPE = octavo.simulated(seed=1, fast=True), octavo.raster(16, 8, volumes=1)
TOMO, THETA = np.ones((8, 2, 16), np.float32), np.linspace(0, np.pi, 8, endpoint=False)
PICTURE = np.arange(12.0).reshape(3, 4)


def spec(**fields):
    return octavo.scan_spec(SOURCE, SHAPE, **fields)


def files(**fields):
    return octavo.tomography("scan.h5", **fields)


def closed(c):
    other = octavo.Client(c.address)
    other.close()
    return other


def ended(c):
    session = c.session("a")
    session.close()
    return session


def replayed(c, file):
    c.submit_scan(octavo.replay(file), SHAPE)


# `c` is a client, `v` a held volume u16 [8, 16, 128], `j` a tomography job that waits for pushed
# frames (u16 [2, 16]), `s` a scan that waits for records (u16, 64 samples).
MISTAKES = [
    # -- files
    ("spacing of a file", lambda c, **_: c.import_volume("a.npy", spacing_um=5), ValueError, ["spacing_um is 5", "expected a dict with the keys x, y, z"]),
    # -- names
    ("window", lambda c, **_: octavo.processing(window="kaiser"), ValueError, ["window is 'kaiser'", "rect, hann, hamming, gauss, blackman, flat_top", "array [N]"]),
    ("window, misspelt", lambda c, **_: octavo.processing(window="haming"), ValueError, ["'haming'", "did you mean 'hamming'"]),
    ("dtype", lambda c, **_: octavo.processing(dtype="int64"), ValueError, ["dtype is 'int64'", "u8, i8, u16, f16, f32, c64", "NumPy"]),
    ("dtype, big-endian", lambda c, **_: octavo.processing(dtype=">u2"), ValueError, ["'>u2'", "little-endian"]),
    ("dtype, no type", lambda c, **_: octavo.processing(dtype=3.5), ValueError, ["dtype is 3.5", "u8, i8, u16"]),
    ("raw_type", lambda c, **_: spec(raw_type="uint32"), ValueError, ["raw_type is 'uint32'", "u8, u16, i16, f32, u12p, u12_packed"]),
    ("background", lambda c, **_: octavo.processing(background="static"), ValueError, ["background is 'static'", "give the spectrum itself", "none, rolling, bscan"]),
    ("k", lambda c, **_: octavo.processing(k="wavelength"), ValueError, ["k is 'wavelength'", "wavelength_nm=", "none, source"]),
    ("k twice", lambda c, **_: octavo.processing(k="none", polynomial=[0, 1]), ValueError, ["k and polynomial are given", "give one of"]),
    ("interpolation", lambda c, **_: octavo.processing(interpolation="spline"), ValueError, ["interpolation is 'spline'", "linear, cubic, lanczos"]),
    ("value", lambda c, **_: octavo.processing(value="log"), ValueError, ["value is 'log'", "db, magnitude, power, real, complex"]),
    ("levels", lambda c, **_: octavo.processing(levels=60), ValueError, ["levels is 60", "(lo, hi)"]),
    ("fixed pattern noise", lambda c, **_: octavo.processing(fixed_pattern_noise="median"), ValueError, ["'median'", "keep, mean, quiet_segment"]),
    ("flyback", lambda c, **_: octavo.pattern(SHAPE, flyback="fast"), ValueError, ["flyback is 'fast'", "fixed, fixed_linear, minimum_time"]),
    ("marker", lambda c, **_: octavo.marker("m", "line"), ValueError, ["at is 'line'", "volume, bscan, record"]),
    ("retention", lambda c, **_: spec(retention=dict(on_full="spill")), ValueError,
     ["retention.on_full is 'spill'", "stop_at_volume, drop_new, spill_host, spill_disk"]),
    ("insert", lambda c, **_: spec(queue="q", insert="first"), ValueError, ["insert is 'first'", "append, interrupt_at_volume, interrupt_now"]),
    ("insert without queue", lambda c, **_: spec(insert="append"), ValueError, ["insert is 'append' without a queue", "queue="]),
    ("algorithm", lambda c, **_: files(algorithm="fpb"), ValueError, ["algorithm is 'fpb'", "fbp, fourier, auto, sirt, mlem, cgls, tv", "did you mean 'fbp'"]),
    ("algorithm of TomoPy", lambda c, **_: files(algorithm="osem"), ValueError, ["'osem'", "mlem with blocks", "fbp, fourier, auto, sirt, mlem, cgls, tv"]),
    ("filter", lambda c, **_: files(filter="gaussian"), ValueError, ["filter is 'gaussian'", "ramp, shepp-logan, cosine, hann"]),
    ("rings of tomopy-cli", lambda c, **_: octavo.preparation(rings="ti"), ValueError, ["rings is 'ti'", "no counterpart", "sorting, large_stripe"]),
    ("rings, smoothing", lambda c, **_: octavo.preparation(rings=["sorting", "sf"]), ValueError, ["rings is 'sf'", "no counterpart", "sorting, large_stripe"]),
    ("rings, misspelt", lambda c, **_: octavo.preparation(rings=["vo-al"]), ValueError, ["'vo-al'", "all_stripe", "did you mean 'vo_all'"]),
    ("center", lambda c, **_: files(center="automatic"), ValueError, ["center is 'automatic'", "auto, pairs, vo, entropy, phase_correlation", "the column itself"]),
    ("place", lambda c, **_: files(place="host"), ValueError, ["place is 'host'", "device, disk"]),
    ("angle unit", lambda c, **_: octavo.ProjectionFile(path="a", angle_unit="grad"), ValueError, ["angle_unit is 'grad'", "degrees, radians"]),
    ("format", lambda c, v, **_: c.commit(v, "x", format="dicom"), ValueError, ["format is 'dicom'", "zarr, npy, nrrd, nifti, tiff, mat, hdf5, bin"]),
    ("codec", lambda c, v, **_: c.commit(v, "x", codec="lz4"), ValueError, ["codec is 'lz4'", "zstd, gzip, blosc-zstd, blosc-lz4"]),
    ("tier", lambda c, v, **_: c.spill(v, "ram"), ValueError, ["tier is 'ram'", "device, host, disk"]),
    ("states", lambda c, **_: c.volumes(states=["keeping"]), ValueError, ["states[0] is 'keeping'", "acquiring, held, committing"]),
    ("filter of jobs", lambda c, **_: c.jobs(filter="state = over"), octavo.OctavoError, ["the value of 'state' is 'over'", "QUEUED"]),
    ("product", lambda c, **_: c.subscribe("", ["mipp"]), ValueError, ["products[0] is 'mipp'", "mip, aip, bscan, volume, event, angiogram"]),
    ("axis", lambda c, **_: c.subscribe("", axis="depth"), ValueError, ["axis is 'depth'", "x, y, z"]),
    ("axis as a number", lambda c, **_: c.subscribe("", ["bscan"], axis=2), ValueError, ["axis is 2", "'x', 'y' or 'z'", "axes 1, 0 and 2", "[y, x, z]"]),
    ("axis of a derivation", lambda c, v, **_: c.derive(v, {"mip": {"axis": 3}}), ValueError, ["mip.axis is 3", "a whole number from -3 to 2"]),
    ("axis of a derivation by name", lambda c, v, **_: c.derive(v, {"mip": {"axis": "w"}}), ValueError,
     ["mip.axis is 'w'", "'y', 'x', 'z' (the axes 0, 1, 2)", "a whole number from -3 to 2"]),
    ("axes of a derivation", lambda c, v, **_: c.derive(v, {"reduce": {"kind": "mean", "axes": [0, "depth"]}}), ValueError, ["reduce.axes[1] is 'depth'", "'y', 'x', 'z'"]),
    ("axis of a chain", lambda c, **_: spec(chains={"a": [{"mip": {"axis": 3}}]}), ValueError, ["mip.axis is 3", "'y', 'x', 'z'", "-3 to 2"]),
    ("axis of a buffer by name", lambda c, **_: c.buffers.apply("buffers/1a2b-3c4d", {"mip": {"axis": "z"}}), ValueError, ["mip.axis is 'z'", "expected a whole number from -3 to 2"]),
    ("index below 0", lambda c, **_: c.subscribe("", ["bscan"], index=-1), ValueError, ["index is -1", "a whole number from 0 on", "None for the B-scan in the middle"]),
    ("index without B-scans", lambda c, **_: c.subscribe("", index=3), ValueError, ["index is 3", "products are mip", "with 'bscan'"]),
    ("subscribe to a volume", lambda c, v, **_: c.subscribe(v), octavo.OctavoError, ["parent is 'volumes/", "a volume; expected a scan, scans/<id> or a job, jobs/<id>", "client.volume('volumes/", "').parent", "client.read"]),
    ("session by its name", lambda c, **_: c.submit_scan(SOURCE, SHAPE, session="a"), ValueError, ["session is 'a'", "client.session()"]),
    ("session of a job by its name", lambda c, **_: c.submit_job(files(), session="a"), ValueError, ["session is 'a'", "client.session()"]),
    ("session of a lease", lambda c, v, **_: c.lease(v, session="a"), ValueError, ["session is 'a'", "client.session()"]),
    ("lease by its token", lambda c, v, **_: c.discard(v, lease="abc"), ValueError, ["lease is 'abc'", "client.lease()"]),
    ("percentiles as fractions", lambda c, **_: octavo.write_png(os.devnull, PICTURE, percentiles=(0.01, 0.998)), ValueError,
     ["percentiles is (0.01, 0.998)", "look like fractions", "(1, 99.8)"]),
    ("percentiles of a subscription as fractions", lambda c, **_: c.subscribe("", encoding="png", image=dict(percentiles=(0.01, 0.998))), ValueError,
     ["image.percentiles is (0.01, 0.998)", "look like fractions"]),
    ("records of negative numbers", lambda c, s, **_: c.push(s, [(-5, RECORDS[:4])]), ValueError, ["the number of a block's first record is -5", "a whole number from 0"]),
    ("markers of negative numbers", lambda c, s, **_: c.push(s, [(16, RECORDS[:4], [("m", -1)])]), ValueError, ["the record of the marker 'm' is -1", "a whole number from 0"]),
    ("ending of another format", lambda c, v, **_: c.commit(v, "b.h5", format="nifti"), octavo.OctavoError, ["options.format", "is nifti, and 'b.h5' ends as files of hdf5 do"]),
    ("compressed file", lambda c, v, **_: c.commit(v, "b.nii.gz", format="nifti"), octavo.OctavoError, ["options.destination", "compressed files (.nii.gz) are not written"]),
    ("file that is not written", lambda c, v, **_: c.commit(v, "b.png"), octavo.OctavoError, ["is 'b.png', and files that end in .png are not written", ".zarr, .npy"]),
    ("file that is not written, auto-commit",
     lambda c, **_: c.submit_scan(SOURCE, SHAPE, retention=dict(disposition="auto_commit", auto_commit=dict(destination="a/{index:05}.nii.gz"))),
     octavo.OctavoError, ["retention.auto_commit.destination", "'a/{index:05}.nii.gz'", ".nii.gz) are not written"]),
    ("format of h5py", lambda c, v, **_: c.commit(v, "x", format="h5py"), ValueError, ["format is 'h5py'", "did you mean 'h5' (hdf5)?"]),
    ("delivery", lambda c, **_: c.subscribe("", delivery="newest"), ValueError, ["delivery is 'newest'", "latest, drop_oldest, lossless"]),
    ("encoding", lambda c, **_: c.subscribe("", encoding="tiff"), ValueError, ["encoding is 'tiff'", "raw, png, jpeg"]),
    ("colours", lambda c, **_: c.subscribe("", encoding="png", image=dict(colour_map="jet")), ValueError, ["image.colour_map is 'jet'", "gray, gray_inverted, viridis"]),
    ("policy of missing frames", lambda c, **_: octavo.PushedProjections(rows=2, columns=16, frames=9, on_missing="stop"), ValueError,
     ["on_missing is 'stop'", "reconstruct_anyway, fail_job"]),
    ("orphan of a job", lambda c, **_: c.submit_job(files(), orphan="delete"), ValueError, ["orphan is 'delete'", "keep, spill_disk, commit_default, discard"]),
    ("kind of frame", lambda c, j, **_: c.push_projections(j, [octavo.ProjectionFrame(0, np.zeros((2, 16), "<u2"), "flats")]), ValueError,
     ["kind of frame 0 is 'flats'", "projection, flat, dark"]),
    ("type of a buffer", lambda c, **_: c.buffers.create((4, 4), "float8"), ValueError, ["dtype is 'float8'", "u8, i8, u16"]),
    ("array of a type that there is not", lambda c, **_: c.buffers.put(np.array(["a", "b"])), ValueError, ["dtype is", "u8, i8, u16"]),
    ("operation", lambda c, v, **_: c.derive(v, {"mipp": {"axis": 2}}), ValueError, ["'mipp'", "cartesian, angiography", "mip, aip", "did you mean 'mip'"]),
    ("kind of a reduction", lambda c, v, **_: c.derive(v, {"reduce": {"kind": "median"}}), ValueError, ["reduce.kind is 'median'", "sum, min, max, mean, std"]),
    # -- arguments that do not exist
    ("argument", lambda c, **_: octavo.raster(16, 8, volums=3), TypeError, ["raster() has no argument 'volums'", "volumes", "did you mean 'volumes'"]),
    ("argument of another", lambda c, **_: c.submit_scan(SOURCE, SHAPE, window="hann"), TypeError, ["submit_scan() has no argument 'window'", "octavo.processing(), octavo.tomography(), octavo.sinograms() take it"]),
    ("argument, in the singular", lambda c, **_: octavo.raster(203, 4, volume=1), TypeError, ["raster() has no argument 'volume'; did you mean 'volumes'?"]),
    ("argument, cut short", lambda c, **_: octavo.raster(203, 4, extent=2), TypeError, ["no argument 'extent'; did you mean 'extent_x_mm'?", "extent_y_mm"]),
    ("argument, begun", lambda c, **_: octavo.recon(TOMO, THETA, relax=1.0, client=c), TypeError, ["no argument 'relax'; did you mean 'relaxation'?"]),
    ("argument of TomoPy's circ_mask", lambda c, **_: octavo.recon(TOMO, THETA, ratio=1.0, client=c), TypeError, ["no argument 'ratio'; did you mean 'mask'?"]),
    ("argument of TomoPy's recon", lambda c, **_: files(num_iter=9), TypeError, ["no argument 'num_iter'; did you mean 'iterations'?"]),
    ("filter of TomoPy's recon", lambda c, **_: files(filter_name="hann"), TypeError, ["no argument 'filter_name'; did you mean 'filter'?"]),
    ("levels of a scan", lambda c, **_: c.submit_scan(SOURCE, SHAPE, levels=(0, 60)), TypeError, ["no argument 'levels'; octavo.processing() takes it"]),
    ("argument of another job", lambda c, **_: c.submit_job(files(), algorithm="sirt"), TypeError, ["submit_job() has no argument 'algorithm'", "octavo.tomography() takes it"]),
    ("field of a dict", lambda c, **_: spec(retention=dict(hold_slot=3)), TypeError, ["retention.hold_slot is no field", "retention.hold_slots", "did you mean"]),
    ("field of an operation", lambda c, v, **_: c.derive(v, {"mip": {"axes": 2}}), TypeError, ["mip.axes is no field", "mip.axis"]),
    ("argument of replay", lambda c, **_: octavo.replay("a.raw", loop=3), TypeError, ["'loop'", "loops", "did you mean 'loops'"]),
    ("argument of commit", lambda c, v, **_: c.commit(v, "x", compresion=3), TypeError, ["commit() has no argument 'compresion'", "codec"]),
    ("argument of recon", lambda c, **_: octavo.recon(TOMO, THETA, iterations=5, client=c), TypeError, ["recon() has no argument 'iterations'; did you mean 'num_iter'?"]),
    ("argument of preparation", lambda c, **_: octavo.preparation(ring="sorting"), TypeError, ["'ring'", "did you mean 'rings'"]),
    ("argument of the client", lambda c, **_: octavo.Client(adress="localhost:50051"), TypeError, ["'adress'", "did you mean 'address'"]),
    # -- values
    ("no pattern", lambda c, **_: c.submit_scan(SOURCE), ValueError, ["pattern is None", "octavo.raster()"]),
    ("source as text", lambda c, **_: c.submit_scan("simulated", SHAPE), ValueError, ["source is 'simulated'", "octavo.simulated()"]),
    ("source and pattern swapped", lambda c, **_: c.submit_scan(SHAPE, SOURCE), ValueError, ["source is", "octavo.simulated()"]),
    ("whole spec and more", lambda c, **_: c.submit_scan(scan_pb2.ScanSpec(), title="a"), ValueError, ["source is a whole ScanSpec", "title"]),
    ("negative number", lambda c, **_: octavo.raster(-16, 8), ValueError, ["ascans is -16", "a whole number from 0"]),
    ("text for a number", lambda c, **_: octavo.raster("16", 8), ValueError, ["ascans is '16'", "a whole number"]),
    ("half a number", lambda c, **_: octavo.simulated(seed=1.5), ValueError, ["seed is 1.5", "a whole number"]),
    ("seed below zero", lambda c, **_: octavo.simulated(seed=-1), ValueError, ["seed is -1", "a whole number from 0"]),
    ("one radius", lambda c, **_: octavo.radial(16, 8, radius=3), ValueError, ["radius is 3", "(begin, end)"]),
    ("three radii", lambda c, **_: octavo.spiral(16, 8, radius=(0, 1, 2)), ValueError, ["radius is (0, 1, 2)", "2 numbers: (inner, outer)"]),
    ("points", lambda c, **_: octavo.freeform([[1, 2, 3]]), ValueError, ["points has the shape (1, 3)", "x and y"]),
    ("a name that is a number", lambda c, **_: c.volume(7), ValueError, ["name is 7; expected a Volume, or its name, text of the form volumes/<id>"]),
    ("several volumes", lambda c, v, **_: c.discard([v]), ValueError, ["name is [", "expected a Volume, or its name", "one in each call"]),
    ("no volume", lambda c, **_: c.discard(None), ValueError, ["name is None; expected a Volume, or its name"]),
    ("an empty name", lambda c, **_: c.discard(""), ValueError, ["name is ''; expected a Volume, or its name"]),
    ("an id without its kind", lambda c, v, **_: c.read(v.split("/")[1]), octavo.OctavoError, ["which does not say its kind; expected a volume, volumes/<id>: volumes/"]),
    ("a word for a scan", lambda c, **_: c.wait("nope"), octavo.OctavoError, ["name is 'nope', which does not say its kind; expected a scan, scans/<id>"]),
    ("axis of a picture as a number", lambda c, v, **_: c.render(v, "max", 2), ValueError, ["axis is 2; expected 'x', 'y' or 'z'"]),
    ("a number of volumes that is none", lambda c, **_: octavo.raster(37, 23, volumes=True), ValueError, ["volumes is True; expected a whole number"]),
    ("pattern and source swapped, in one line", lambda c, **_: c.submit_scan(octavo.raster(37, 23), octavo.replay("a.npy")), ValueError,
     ["source is ascans_per_bscan: 37 bscans_per_volume: 23 volumes: 1 (Raster); expected"]),
    ("device of no scan", lambda c, **_: c.submit_scan(SOURCE, SHAPE, device="host"), octavo.OctavoError,
     ["device: is 'devices/host', which this server does not have (device.host_for_jobs of its configuration is false); allowed are auto, devices/0"]),
    ("device that is not there", lambda c, **_: c.submit_scan(SOURCE, SHAPE, device=7), octavo.OctavoError, ["devices/7"]),
    ("half a sample", lambda c, v, **_: c.derive(v, {"resize": {"shape": [3.5, 0, 0]}}), ValueError, ["resize.shape[0] is 3.5; expected a whole number from -2^63 to 2^63 - 1"]),
    ("a seed below 0", lambda c, **_: octavo.simulated(seed=-1), ValueError, ["seed is -1; expected a whole number from 0 to 2^64 - 1"]),
    ("spill to the device", lambda c, v, **_: c.spill(v, "device"), octavo.OctavoError, ["tier: is DEVICE; allowed HOST, DISK"]),
    ("a short time to live", lambda c, **_: c.submit_scan(SOURCE, SHAPE, samples=256, retention=dict(ttl=0.5)), octavo.OctavoError,
     ["retention.ttl: is 0.5 s; allowed unset (never), or 1 s to 365 days"]),
    ("a level of zstd for .npy", lambda c, v, **_: c.commit(v, "a.npy", zstd_level=19), octavo.OctavoError,
     ["options.zstd_level: is given, and the format is npy; allowed with zarr"]),
    ("chunks for .npy", lambda c, v, **_: c.commit(v, "a.npy", chunk=(2, 2, 2)), octavo.OctavoError, ["options.chunk: is given, and the format is npy; allowed with zarr, hdf5"]),
    ("a field that is nearly one", lambda c, **_: c.volumes(filter="stat = HELD"), octavo.OctavoError, ["no field 'stat' of Volume; did you mean state?"]),
    ("device below 0", lambda c, **_: c.submit_scan(SOURCE, SHAPE, device=-1), ValueError, ["device is -1; expected a whole number from 0"]),
    ("scan for raw spectra", lambda c, v, **_: c.submit_job(octavo.reprocess(c.volume(v).parent)), octavo.OctavoError,
     ["reprocess.volume is 'scans/", "a scan; expected a volume, volumes/<id>"]),
    ("job for raw spectra", lambda c, j, **_: c.submit_job(octavo.k_calibration(j)), octavo.OctavoError, ["k_calibration.volume is 'jobs/", "a job; expected a volume"]),
    ("degrees of pushed frames", lambda c, **_: octavo.projection_frames(TOMO, np.linspace(0, 180, 8, endpoint=False)), ValueError,
     ["angles_rad are 0 to 157.5, 25.1 turns, which look like degrees", "np.deg2rad(angles)"]),
    # -- waiting and leases
    ("limit of a wait below 0", lambda c, s, **_: c.wait(s, timeout=-1), ValueError, ["timeout is -1; expected seconds from 0 on, a timedelta, or None"]),
    ("limit of a wait as text", lambda c, s, **_: c.wait(s, timeout="3"), ValueError, ["timeout is '3'; expected seconds from 0 on, a timedelta"]),
    ("time to live as text", lambda c, **_: spec(retention=dict(ttl="5 min")), ValueError, ["retention.ttl is '5 min'; expected seconds, a number", "datetime.timedelta"]),
    ("quality of 0", lambda c, v, **_: c.render(v, encoding="jpeg", image=dict(quality=0)), ValueError, ["image.quality is 0; expected 1 to 100"]),
    ("width of 0", lambda c, v, **_: c.render(v, image=dict(max_width=0)), ValueError, ["image.max_width is 0; expected a number of pixels from 1 on"]),
    ("box of a volume", lambda c, v, **_: c.volume(v).read(box=(0, 0, 0, 1, 1, 1)), TypeError, ["read() has no argument 'box'; did you mean 'start'? Expected one of start, count"]),
    ("plane of a volume", lambda c, v, **_: c.volume(v).read(z=3), TypeError, ["read() has no argument 'z'; expected one of start, count"]),
    ("volume that is mapped", lambda c, v, **_: c.volume(v).map(), AttributeError, ["Volume has no 'map'", "client.map(volume, …)"]),
    ("session that was closed", lambda c, **_: c.submit_scan(SOURCE, SHAPE, session=ended(c)), ValueError,
     ["session is sessions/", "which was closed", "client.session() opens another"]),
    ("operation by its request", lambda c, **_: c.operation("mip-1"), octavo.OctavoError, ["name is 'mip-1'", """client.operations(filter='request_id = "mip-1"')"""]),
    ("scan that goes on", lambda c, s, **_: c.wait(s, timeout=0.2), octavo.OctavoTimeout, ["after 0.2 s <Scan scans/", "RUNNING", "it goes on: wait again, or cancel it"]),
    ("job that goes on", lambda c, j, **_: c.job(j).wait(timeout=0.2), octavo.OctavoTimeout, ["after 0.2 s <Job jobs/", "RUNNING tomography", "it goes on"]),
    ("operation that goes on", lambda c, j, **_: c.operation(c.job(j).operation).wait(timeout=0), octavo.OctavoTimeout,
     ["after 0 s <Operation operations/", "RUNNING job of jobs/", "it goes on"]),
    ("volume that goes on", lambda c, s, **_: c.volumes(s)[0].wait(timeout=0.2), octavo.OctavoTimeout, ["<Volume volumes/", "ACQUIRING"]),
    ("subscription that is over", lambda c, s, **_: list(c.subscribe(s, timeout=0)), octavo.OctavoTimeout,
     ["timeout is 0 s, which are over after 0 frames of <Scan scans/", "RUNNING"]),
    ("timeout of a client", lambda c, **_: octavo.Client(timeout=0), ValueError, ["timeout is 0; expected seconds above 0"]),
    ("lease without an end", lambda c, v, **_: c.lease(v), ValueError, ["seconds is 0.0 without a session", "seconds above 0, or session="]),
    ("lease of the past", lambda c, v, **_: c.lease(v, seconds=-1), octavo.OctavoError, ["seconds: is -1"]),
    ("lease by the contract's word", lambda c, v, **_: c.lease(v, ttl=-1), TypeError, ["lease() has no argument 'ttl'; did you mean 'seconds'?"]),
    ("session of nobody", lambda c, **_: c.session(""), ValueError, ["client is ''; expected a name for people, or none at all"]),
    ("a spectrum of words", lambda c, **_: octavo.processing(background=["a"]), ValueError, ["background is ['a']", "array of numbers"]),
    ("chains", lambda c, **_: spec(chains={"mip": {"mip": {"axis": 2}}}), ValueError, ["chains['mip']", "a list of operations"]),
    ("operation as text", lambda c, v, **_: c.derive(v, "mip"), ValueError, ["an operation is 'mip'", "{'mip': {'axis': 2}}"]),
    ("operation without fields", lambda c, v, **_: c.derive(v, {"mip": 2}), ValueError, ["mip is 2", "axis, keep_dims"]),
    ("two operations in one", lambda c, v, **_: c.derive(v, {"mip": {}, "crop": {}}), ValueError, ["a dict of one name"]),
    ("labels", lambda c, **_: spec(labels={"eye": 1}), ValueError, ["labels['eye'] is 1", "text"]),
    ("work", lambda c, **_: c.submit_job("scan.h5"), ValueError, ["work is 'scan.h5'", "octavo.tomography()"]),
    ("input of tomography", lambda c, **_: octavo.tomography(TOMO), ValueError, ["input is an array", "octavo.recon()"]),
    ("range as text", lambda c, **_: files(rows="3:5"), ValueError, ["rows is '3:5'", "(begin, end)"]),
    ("range of nothing", lambda c, **_: files(rows=(5, 3)), ValueError, ["rows is from 5 to 3", "an end above the begin"]),
    ("range from behind", lambda c, **_: files(projections=slice(-5, None)), ValueError, ["projections.begin is -5", "a whole number from 0"]),
    ("range of four", lambda c, **_: files(rows=(0, 8, 2, 1)), ValueError, ["rows is (0, 8, 2, 1)", "(begin, end, step)"]),
    ("try_centers", lambda c, **_: files(try_centers=(290, 300)), ValueError, ["try_centers is (290, 300)", "(begin, end, step)"]),
    ("search", lambda c, **_: files(search=295), ValueError, ["search is 295", "(begin, end)"]),
    ("samples", lambda c, **_: files(samples="i8"), ValueError, ["samples is 'i8'", "expected one of u8, u16, f16, f32"]),
    ("window of floats", lambda c, **_: files(samples="f16", window=(0, 1)), ValueError, ["window is (0, 1)", "with samples f16", "give it only with u8, u16"]),
    ("half a window", lambda c, **_: files(samples="u8", window=3), ValueError, ["window is 3", "(low, high)"]),
    ("samples of recon", lambda c, **_: octavo.recon(TOMO, THETA, samples="u8", client=c), TypeError, ["recon() has no argument 'samples'"]),
    ("filter of an iterative algorithm", lambda c, **_: octavo.recon(TOMO, THETA, algorithm="sirt", filter_name="hann", client=c), ValueError,
     ["filter_name is 'hann'", "num_iter, num_block, interpolation"]),
    ("iterations of a direct one", lambda c, **_: octavo.recon(TOMO, THETA, num_iter=50, client=c), ValueError, ["num_iter is 50 with gridrec", "filter_name, filter_par"]),
    ("iterations of auto, the default", lambda c, **_: files(iterations=20), ValueError, ["iterations is 20 with auto", "give it only with sirt, mlem, cgls, tv", "filter"]),
    ("iterations of gridrec", lambda c, **_: files(algorithm="gridrec", iterations=20), ValueError, ["iterations is 20 with gridrec", "sirt, mlem, cgls, tv"]),
    ("accuracy of auto, the default", lambda c, **_: files(fourier_accuracy=1e-3), ValueError, ["fourier_accuracy is 0.001 with auto", "give it only with fourier"]),
    ("filter of sirt", lambda c, **_: files(algorithm="sirt", iterations=9, filter="hann"), ValueError, ["filter is 'hann' with sirt", "give it only with fbp, fourier, auto", "relaxation"]),
    ("relaxation of mlem", lambda c, **_: files(algorithm="mlem", iterations=9, relaxation=0.5), ValueError, ["relaxation is 0.5 with mlem", "give it only with sirt"]),
    ("blocks of cgls", lambda c, **_: octavo.recon(TOMO, THETA, algorithm="cgls", num_iter=9, num_block=4, client=c), ValueError, ["num_block is 4 with cgls", "sirt or mlem"]),
    ("subsets of cgls", lambda c, **_: files(algorithm="cgls", iterations=9, subsets=4), ValueError, ["subsets is 4 with cgls", "give it only with sirt, mlem"]),
    ("form of cgls", lambda c, **_: files(algorithm="cgls", iterations=9, form="tomopy"), ValueError, ["form is 'tomopy' with cgls", "give it only with sirt, mlem"]),
    ("a function of TomoPy", lambda c, **_: octavo.recon(TOMO, THETA, algorithm=np.sum, client=c), ValueError, ["algorithm is a function", "gridrec, sirt"]),
    ("an axis beyond the columns", lambda c, **_: octavo.recon(TOMO, THETA, center=200, client=c), octavo.OctavoError, ["center: is 200; allowed -0.5 to 15.5"]),
    ("padding of auto, the default", lambda c, **_: octavo.recon(TOMO, THETA, padding=9, client=c), ValueError, ["padding is 9 with auto", "give it only with sirt, mlem, cgls, tv"]),
    ("list of rows", lambda c, **_: files(rows=[1, 2]), ValueError, ["rows is [1, 2]", "a slice", "(begin, end)", "rows=slice(1, 3)", "are 1 and 2"]),
    ("array of rows", lambda c, **_: files(projections=np.arange(3)), ValueError, ["projections is an array", "a slice", "(begin, end)"]),
    ("complex projections", lambda c, **_: octavo.recon(TOMO * 1j, THETA, client=c), TypeError, ["tomo is an array of complex64", "real numbers", "np.abs(tomo)"]),
    ("start of a direct algorithm", lambda c, **_: octavo.recon(TOMO, THETA, algorithm="fourier", init_recon=np.zeros((2, 16, 16), np.float32), client=c), ValueError,
     ["init_recon is given with fourier, which begins with no image", "give it only with sirt, mlem, cgls, tv"]),
    ("initial volume of auto, the default", lambda c, **_: files(initial="volumes/x"), ValueError, ["initial is", "with auto", "give it only with sirt, mlem, cgls, tv"]),
    ("complex start", lambda c, **_: octavo.recon(TOMO, THETA, algorithm="sirt", num_iter=2, init_recon=np.zeros((2, 16, 16), complex), client=c), TypeError,
     ["init_recon is an array of complex128", "real numbers"]),
    ("angles", lambda c, **_: octavo.recon(TOMO, THETA[:-1], client=c), ValueError, ["theta has 7 angles and tomo has 8 projections", "an angle for each projection"]),
    ("two axes", lambda c, **_: octavo.recon(TOMO[:, 0], THETA, client=c), ValueError, ["tomo has the shape (8, 16)", "[angle, slice, column]"]),
    ("degrees", lambda c, **_: octavo.recon(TOMO, np.rad2deg(THETA), client=c), octavo.OctavoError, ["theta: makes the angles", "degrees"]),
    ("angles of pushed frames", lambda c, **_: octavo.projection_frames(TOMO, THETA[:-1]), ValueError, ["angles_rad has 7 values", "expected 8"]),
    ("one flat field", lambda c, **_: octavo.projection_frames(TOMO, THETA, flats=TOMO[0]), ValueError, ["flats has the shape (2, 16)", "[frame, row, column]"]),
    ("arrays as frames", lambda c, j, **_: c.push_projections(j, TOMO), ValueError, ["an array of float32 (2, 16)", "octavo.projection_frames()"]),
    ("records of another type", lambda c, s, **_: c.push(s, [np.zeros((4, 32), "<f4")]), ValueError, ["float32 (4, 32)", "uint16 [records, 64]"]),
    ("signed records", lambda c, s, **_: c.push(s, [np.zeros((4, 64), "<i2")]), ValueError, ["int16 (4, 64)", "uint16 [records, 64]"]),
    ("one record", lambda c, s, **_: c.push(s, RECORDS[0]), ValueError, ["blocks is an array of uint16 (64,)", "array[None, :] is 64 samples as one record"]),
    ("records by their path", lambda c, s, **_: c.push(s, "own.npy"), ValueError, ["blocks is 'own.npy', a path", "np.load(path)", "octavo.replay(path)"]),
    ("numbers as blocks", lambda c, s, **_: c.push(s, [7]), ValueError, ["a block is ", "uint16 [records, 64]"]),
    ("words as blocks", lambda c, s, **_: c.push(s, ["own.npy"]), ValueError, ["a block is 'own.npy'", "uint16 [records, 64]"]),
    ("image of three axes", lambda c, **_: octavo.write_png(os.devnull, np.zeros((2, 3, 4))), ValueError, ["image has the shape (2, 3, 4)", "[rows, columns]"]),
    ("percentiles, swapped", lambda c, **_: octavo.write_png(os.devnull, PICTURE, percentiles=(99, 1)), ValueError, ["percentiles is (99.0, 1.0)", "0 <= lo < hi <= 100"]),
    ("levels, swapped", lambda c, **_: octavo.write_png(os.devnull, PICTURE, lo=5, hi=2), ValueError, ["lo is 5 and hi is 2", "lo < hi"]),
    ("image of a subscription", lambda c, **_: c.subscribe("", encoding="png", image="viridis"), ValueError, ["image is 'viridis'", "colour_map"]),
    # -- names of other objects
    ("job for a volume", lambda c, j, **_: c.commit(j, "x"), octavo.OctavoError, ["name is 'jobs/", "a job; expected a volume, volumes/<id>", "client.wait_job('jobs/", "none yet"]),
    ("scan for a volume", lambda c, v, **_: c.read(c.volume(v).parent), octavo.OctavoError, ["name is 'scans/", "a scan", "client.wait('scans/", ").volumes(): volumes/"]),
    ("Scan for a volume", lambda c, v, **_: c.derive(c.scan(c.volume(v).parent), {"mip": {}}), octavo.OctavoError, ["name is 'scans/", ").volumes(): volumes/"]),
    ("volume for a scan", lambda c, v, **_: c.wait(v), octavo.OctavoError, ["name is 'volumes/", "a volume; expected a scan, scans/<id>", "client.volume, read"]),
    ("job for a scan", lambda c, j, **_: c.wait(j), octavo.OctavoError, ["name is 'jobs/", "a job; expected a scan", "wait_job"]),
    ("job pushed to as a scan", lambda c, j, **_: c.push(j, []), octavo.OctavoError, ["scan is 'jobs/", "push_projections take it"]),
    ("scan for a job", lambda c, s, **_: c.wait_job(s), octavo.OctavoError, ["name is 'scans/", "expected a job, jobs/<id>", "client.scan, watch, wait"]),
    ("volumes of a buffer", lambda c, **_: c.volumes("buffers/1a2b-3c4d"), octavo.OctavoError,
     ["parent is 'buffers/1a2b-3c4d', a buffer; expected a scan, scans/<id> or a job, jobs/<id>", "client.buffers.read"]),
    ("volumes by another word", lambda c, s, **_: c.volumes(scan=s), TypeError, ["volumes() has no argument 'scan'", "parent"]),
    ("kind of an enum that there is not", lambda c, j, **_: octavo.enum_name(c.job(j), "stages"), ValueError, ["field is 'stages'", "kind, state, reason_code, stage", "did you mean 'stage'"]),
    ("buffer for a volume", lambda c, **_: c.read("buffers/1a2b-3c4d"), octavo.OctavoError, ["name is 'buffers/1a2b-3c4d', a buffer", "client.buffers.read"]),
    ("volume that is being acquired", lambda c, s, **_: c.read(c.volumes(s)[0]), octavo.OctavoError, ["still being acquired", "client.wait(scan) waits", "client.wait_volume(name)"]),
    # -- servers
    ("closed client", lambda c, **_: closed(c).info(), ValueError, ["this client is closed", "octavo.Client()"]),
    ("closed client, streams", lambda c, s, **_: list(closed(c).subscribe(s)), ValueError, ["this client is closed"]),
    ("closed client, changes", lambda c, **_: next(closed(c).watch_volumes()), ValueError, ["this client is closed"]),
    ("closed client, buffers", lambda c, **_: next(closed(c).buffers.watch()), ValueError, ["this client is closed"]),
    ("closed client, push", lambda c, j, **_: closed(c).push_projections(j, []), ValueError, ["this client is closed"]),
    (".npy of another byte order", lambda c, **_: replayed(c, "big.npy"), octavo.OctavoError, ["its type '>u2'", "np.save(path, array.astype('<u2'))"]),
    (".npy of doubles", lambda c, **_: replayed(c, "double.npy"), octavo.OctavoError, ["its type '<f8'", "array.astype('<u2')", "whole numbers", "array.astype('<f4')"]),
    (".npy in Fortran order", lambda c, **_: replayed(c, "fortran.npy"), octavo.OctavoError, ["fortran.npy' is no .npy file", "in Fortran order; allowed is C order", "np.save(path, np.ascontiguousarray(array))"]),
    ("address with a scheme", lambda c, **_: octavo.Client("http://localhost:50051"), ValueError, ["address is 'http://localhost:50051'", "host:port or unix:/path"]),
    ("address that is a number", lambda c, **_: octavo.Client(50051), ValueError, ["address is 50051; expected host:port (octavod listens on 50051) or unix:/path"]),
    ("address without a port", lambda c, **_: octavo.Client("localhost"), ValueError, ["address is 'localhost' without a port", "50051"]),
    *((f"address {bad!r}", lambda c, bad=bad, **_: octavo.Client(bad), ValueError, [f"address is {bad!r}; expected host:port with port 1 to 65535, or unix:/path"])
      for bad in ("127.0.0.1:99999", "127.0.0.1:65536", "127.0.0.1:0", "127.0.0.1:abc", "127.0.0.1:", ":50051", "unix:", "unix://", "127.0.0.1:50051 ",
                  "127.0.0.1:50051\n", "::1:50051", "127.0.0.1:-1", "dns:///localhost", "dns:///localhost:99999", "ipv4:127.0.0.1:1,127.0.0.1:99999")),
    ("file of a token that is not there", lambda c, **_: octavo.Client(token_file="/none"), ValueError, ["token_file is '/none', which cannot be read (No such file", "octavo token add"]),
    ("file without a token", lambda c, **_: octavo.Client(token_file=os.devnull), ValueError, ["token_file is '/dev/null', which holds no token"]),
    ("token instead of its file", lambda c, **_: octavo.Client(token_file=5), ValueError, ["token_file is 5, which cannot be read"]),
    ("no server", lambda c, **_: octavo.Client("127.0.0.1:1").info(), octavo.OctavoError, ["no octavod answers at 127.0.0.1:1", "OCTAVO_ADDRESS"]),
    ("no such volume", lambda c, **_: c.read("volumes/none"), octavo.OctavoError, ["no volume volumes/none"]),
]

ALL_ZERO, RECORDS = np.zeros((128, 64), "<u2"), np.tile(np.arange(900, 1028, 2, dtype="<u2"), (128, 1))


def pushed(c, blocks, **fields):
    scan = c.submit_scan(octavo.push(), octavo.raster(16, 8, volumes=1), samples=64, **fields)
    c.push(scan, blocks)
    c.wait(scan)


def pushed_frames(c, frames):
    job = c.submit_job(octavo.tomography(octavo.PushedProjections(rows=2, columns=16, frames=frames)))
    c.push_projections(job, octavo.projection_frames(np.ones((8, 2, 16), "<u2"), THETA, flats=np.full((3, 2, 16), 2, "<u2")))
    c.wait_job(job)


# Line integrals of a disc.
LINES = np.broadcast_to(np.sqrt(np.maximum(0, 0.5 - np.linspace(-1, 1, 16, dtype=np.float32) ** 2)), (8, 2, 16)).copy()

# Calls that work, because the user may intend them, with an OctavoWarning that has these words.
DOUBTS = [
    ("middle of edges", lambda c: octavo.recon(LINES, THETA, center=8, client=c), ["center is 8, half of 16 columns", "the middle is 7.5"]),
    ("middle of edges, projected", lambda c: octavo.project(np.ones((2, 16, 16)), THETA, [8, 7.5], client=c), ["center is 8", "the middle is 7.5"]),
    ("frames without flat fields", lambda c: pushed_frames(c, 8), ["11 frames were given, the job takes 8 (projections, flat and dark fields together", "3 of them"]),
    ("half of the records", lambda c: pushed(c, [RECORDS[:64]]), ["end at 64 of the 128 that the scan takes", "end=False"]),
    ("no records", lambda c: pushed(c, []), ["end at 0 of the 128"]),
    ("records outside of the scan", lambda c: pushed(c, [(5000, RECORDS)]), ["128 records were given with numbers outside of the scan's 0 to 127, the first of them 5000"]),
    ("records in another order", lambda c: pushed(c, [(50, RECORDS[50:100]), (0, RECORDS[:50]), (100, RECORDS[100:])]),
     ["Records came out of order: record 0 came when 99 was there already", "left out"]),
    ("too many records", lambda c: pushed(c, [RECORDS] * 3), ["256 records more were given than the 128 that the scan takes"]),
    ("too many records, one after the other", lambda c: pushed(c, iter([RECORDS] * 3)), ["more records were given than the 128 that the scan takes"]),
    ("records of more bits", lambda c: pushed(c, [RECORDS], adc_bits=9), ["adc_bits is 9, which are samples of 0 to 511", "up to 1026", "all 16"]),
    ("transmissions", lambda c: octavo.recon(np.exp(-LINES), THETA, client=c), ["looks like transmissions", "about 1 (1) in the outermost columns", "-log(tomo)"]),
    ("transmissions as sinograms", lambda c: octavo.recon(np.exp(-LINES).swapaxes(0, 1), THETA, sinogram_order=True, client=c), ["looks like transmissions"]),
    ("counts", lambda c: octavo.recon((1000 * np.exp(-LINES)).astype("<u2"), THETA, client=c), ["tomo is uint16", "mostly counts"]),
    ("counts as floats", lambda c: octavo.recon(np.round(1000 * np.exp(-LINES)), THETA, client=c), ["only whole numbers, up to 1000", "counts", "-log("]),
    ("counts that are no whole numbers", lambda c: octavo.recon(33891 * np.exp(-2 * LINES) + 0.25, THETA, client=c),
     ["tomo cannot be attenuation", "look like counts", "octavo.tomography makes it of counts and flat fields"]),
    ("logarithm without its minus", lambda c: octavo.recon(-LINES, THETA, client=c), ["tomo cannot be attenuation", "minus in front of the logarithm"]),
    ("B-scans and A-scans exchanged", lambda c: pushed(c, RECORDS.reshape(16, 8, 64)),
     ["the array's own shape is 16 x 8 records, B-scans of 8 A-scans; the pattern has 8 B-scans of 16 A-scans: are ascans and bscans exchanged?",
      "octavo.raster(ascans=8, bscans=16)"]),
    ("B-scans of another length", lambda c: pushed(c, RECORDS[:126].reshape(9, 14, 64)), ["own shape is 9 x 14 records", "the pattern has 8 B-scans of 16 A-scans"]),
    ("one iteration of recon", lambda c: octavo.recon(LINES, THETA, algorithm="sirt", client=c), ["num_iter is not given: 1 iteration", "num_iter=100 is usual"]),
    ("records of nothing", lambda c: pushed(c, [ALL_ZERO]), ["first 128 records are all 0"]),
]

# Synonyms from other packages: the resulting message equals that of Octavo's own word.
SAME = [
    (lambda: octavo.processing(window="hanning"), lambda: octavo.processing(window="hann")),
    (lambda: octavo.processing(window="boxcar"), lambda: octavo.processing(window="rect")),
    (lambda: octavo.processing(window="flattop"), lambda: octavo.processing(window="flat_top")),
    (lambda: octavo.processing(window="HANN"), lambda: octavo.processing(window=scan_pb2.WINDOW_KIND_HANN)),
    (lambda: octavo.processing(dtype="uint8"), lambda: octavo.processing(dtype="u8")),
    (lambda: octavo.processing(dtype=np.float32), lambda: octavo.processing(dtype="f32")),
    (lambda: octavo.processing(dtype=np.dtype("<u2")), lambda: octavo.processing(dtype="u16")),
    (lambda: octavo.processing(value="dB"), lambda: octavo.processing(value="db")),
    (lambda: spec(raw_type=np.uint16), lambda: spec(raw_type="u16")),
    (lambda: spec(raw_type="Mono12p"), lambda: spec(raw_type="u12p")),
    (lambda: spec(retention=dict(on_full="spill_disk", orphan="discard")),
     lambda: spec(retention=dict(on_full=scan_pb2.ON_FULL_SPILL_DISK, orphan=scan_pb2.ORPHAN_DISCARD))),
    (lambda: octavo.simulated(1, as_fast_as_possible=True), lambda: octavo.simulated(1, fast=True)),
    (lambda: files(algorithm="gridrec"), lambda: files(algorithm="auto", filter="shepp-logan")),
    (lambda: files(algorithm="gridrec", filter="ramlak"), lambda: files(filter="ramp")),
    (lambda: files(filter="shepp"), lambda: files(filter="shepp-logan")),
    (lambda: files(center="find_center_pc"), lambda: files(center="phase_correlation")),
    (lambda: files(rows=range(2, 9, 3)), lambda: files(rows=(2, 9, 3))),
    (lambda: octavo.preparation(rings="vo-all"), lambda: octavo.preparation(rings=["all_stripe"])),
    (lambda: octavo.preparation(rings=["fw", "remove_stripe_based_sorting"]), lambda: octavo.preparation(rings=["fourier_wavelet", "sorting"])),
    (lambda: octavo.commit_options("x", "tif"), lambda: octavo.commit_options("x", "tiff")),
    (lambda: octavo.PushedProjections(rows=2, columns=4, frames=3, dtype="float32"),
     lambda: octavo.PushedProjections(rows=2, columns=4, frames=3, dtype="f32")),
]


class Mistakes(DaemonTest):
    flags = ("--spill.host_bytes", str(16 << 20))

    def setUp(self):
        scan = self.client.wait(self.client.submit_scan(SOURCE, SHAPE, samples=256, processing=octavo.processing(dtype="u16")).name)
        records = np.ones((128, 64), "<u2")
        for name, array in (("big", records.astype(">u2")), ("double", records.astype("<f8")), ("fortran", np.asfortranarray(records))):
            np.save(os.path.join(self.daemon.root, f"{name}.npy"), array)
        self.given = dict(v=scan.volume_names[0], j=self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=2, columns=16, frames=9))).name,
                          s=self.client.submit_scan(octavo.push(), octavo.raster(16, 8, volumes=1), samples=64).name)
        self.client.push(self.given["s"], RECORDS[:16], end=False)
        until(lambda: self.client.volumes(self.given["s"]))  # the scan begins its volume when it takes the records

    def tearDown(self):
        self.client.cancel_job(self.given["j"])
        self.client.wait_job(self.given["j"], check=False)
        super().tearDown()

    def all(self):
        """All objects of the server."""
        c = self.client
        return ([s.name for s in c.scans()], [(j.name, j.state) for j in c.jobs()], [(v.name, v.state, v.tier) for v in c.volumes()],
                [b.name for b in c.buffers.list()], sorted(os.listdir(self.daemon.root)))

    def test_each_is_named_and_says_what_is_allowed(self):
        before = self.all()
        self.assertGreaterEqual(len(MISTAKES), 45)
        for name, call, kind, words in MISTAKES:
            with self.subTest(name):
                try:
                    call(self.client, **self.given)
                except Exception as error:  # noqa: BLE001 — that it is of the right kind is what is looked at
                    self.assertIs(type(error), kind, f"{type(error).__name__}: {error}")
                    for word in words:
                        self.assertIn(word, str(error))
                else:
                    self.fail("nothing was said")
        self.assertEqual(self.all(), before)

    def test_each_doubt_is_told(self):
        for name, call, words in DOUBTS:
            with self.subTest(name), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call(self.client)
                said = [str(warning.message) for warning in caught if warning.category is octavo.OctavoWarning and warning.filename == __file__]
                self.assertTrue(any(all(word in text for word in words) for text in said), said)
            for volume in self.client.volumes(states=["held"]):
                if volume.name != self.given["v"]:
                    self.client.discard(volume)

    def test_what_is_right_is_not_doubted(self):
        noise = np.random.default_rng(3).normal(0, 0.02, LINES.shape).astype(np.float32)
        wide = 1 + LINES  # an object wider than the detector
        octavo.recon(LINES, THETA, algorithm="cgls", num_iter=2, num_block=1, client=self.client)
        files(iterations=1)  # this is the value anyway
        for i, tomo in enumerate((LINES, LINES + noise, 0.3 * LINES, 5 * LINES, np.ones_like(LINES), np.zeros_like(LINES), wide, np.round(5 * LINES))):
            with self.subTest(i), warnings.catch_warnings():
                warnings.simplefilter("error")
                octavo.recon(tomo, THETA, extend_edges=tomo is wide, client=self.client)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for shape in ((8, 16), (4, 32), (32, 4), (128, 1)):  # whole B-scans, and parts of them
                pushed(self.client, np.random.default_rng(4).integers(0, 4000, (*shape, 64), "<u2"))
            octavo.recon(LINES, THETA, algorithm="sirt", num_iter=1, client=self.client)
            files(algorithm="sirt", iterations=1)
            files(algorithm="gridrec", filter="hann", filter_cutoff=0.5, relaxation=0, padding=None)
            files(algorithm=3, iterations=9, negative_data_to_zero=True, form="tomopy")

    def test_other_packages_words(self):
        for i, (theirs, ours) in enumerate(SAME):
            with self.subTest(i):
                self.assertEqual(theirs(), ours())

    def test_what_a_frame_shows(self):
        scan = self.client.volume(self.given["v"]).parent
        for options, words in ((dict(encoding="png"), "picture of 16 x 128 pixels"), ({}, "array uint16 [16, 128]")):
            frame = next(iter(self.client.subscribe(scan, ["bscan"], **options)))
            self.assertLess(len(repr(frame)), 300)
            for word in (words, "bscan", "volumes/"):
                self.assertIn(word, str(frame))

    def test_what_has_a_name_stands_for_it(self):
        volume = self.client.volume(self.given["v"])
        np.testing.assert_array_equal(self.client.read(volume), self.client.read(volume.name))
        self.assertEqual(self.client.scan(self.client.scan(volume.parent)).name, volume.parent)
        self.assertEqual([v.name for v in self.client.volumes(states=["held"])], [volume.name])

    def test_arrays_of_the_other_byte_order_keep_their_values(self):
        values = np.arange(6, dtype=">u2").reshape(2, 3)
        np.testing.assert_array_equal(self.client.buffers.read(self.client.buffers.put(values)), values)
        records = np.random.default_rng(1).integers(0, 4000, (128, 64))
        read = []
        for dtype in ("<u2", ">u2"):
            scan = self.client.submit_scan(octavo.push(), octavo.raster(16, 8, volumes=1), samples=64)
            self.client.push(scan, records.astype(dtype))  # one array is one block
            read.append(self.client.read(self.client.wait(scan).volume_names[0]))
        np.testing.assert_array_equal(*read)


if __name__ == "__main__":
    unittest.main()
