"""Malformed and out-of-range requests, row by row: each gets the right code and a message that
names the field, and changes nothing.

A row of a scan gives a field of a valid request, its wrong value, the code, and the text that
`field` (or, if there is no single field, the message) must contain. Every row of SubmitScan is also
sent to PlanScan, which must give the same answer.
"""

import math
import os
import unittest

import grpc
import numpy as np

from google.protobuf.duration_pb2 import Duration
from harness import DaemonTest, octavo
from octavo.v1 import scan_pb2, stream_pb2, types_pb2, volume_pb2

NAN, INF, HUGE = math.nan, math.inf, 2 ** 32 - 1
BAD, FULL = "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"
R, P, A, S, T = "pattern.raster.", "processing.", "acquisition.", "simulated.", "retention."


def array(n, change=None, at=0, dtype=float):
    values = np.linspace(0, 255, n).astype(dtype)
    if change is not None:
        values[at] = change
    return values.tolist()


def layer(**fields):
    return [scan_pb2.SimulatedLayer(**{"depth_um": 100.0, "reflectivity": 0.01, **fields})]


# Field to set, value, code, text that must name it.
SCANS = [
    ("title", "x" * 257, BAD, "title"),
    ("labels", {"Upper": "x"}, BAD, "labels"),
    ("labels", {"": "x"}, BAD, "labels"),
    ("labels", {"x" * 64: "x"}, BAD, "labels"),
    ("labels", {"a b": "x"}, BAD, "labels"),
    ("labels", {"k": "x" * 257}, BAD, "labels"),
    ("labels", {f"k{i}": "" for i in range(65)}, BAD, "labels"),
    ("subject.id", "x" * 4097, BAD, "subject.id"),
    ("subject.site", "x" * 4097, BAD, "subject.site"),
    ("subject.note", "x" * 4097, BAD, "subject.note"),
    ("device", "devices/7", BAD, "device"),
    ("device", "gpu0", BAD, "device"),
    ("device", "devices/-1", BAD, "device"),
    ("device", "devices/0x", BAD, "device"),
    ("overrun", 9, BAD, "overrun"),
    # -- the simulated source
    (S + "centre_wavelength_nm", 399.0, BAD, "simulated.centre_wavelength_nm"),
    (S + "centre_wavelength_nm", 2001.0, BAD, "simulated.centre_wavelength_nm"),
    (S + "centre_wavelength_nm", -840.0, BAD, "simulated.centre_wavelength_nm"),
    (S + "centre_wavelength_nm", NAN, BAD, "simulated.centre_wavelength_nm"),
    (S + "bandwidth_nm", -1.0, BAD, "simulated.bandwidth_nm"),
    (S + "bandwidth_nm", 1000.0, BAD, "simulated.bandwidth_nm"),
    (S + "bandwidth_nm", INF, BAD, "simulated.bandwidth_nm"),
    (S + "nonlinearity", 0.21, BAD, "simulated.nonlinearity"),
    (S + "nonlinearity", -0.21, BAD, "simulated.nonlinearity"),
    (S + "nonlinearity", NAN, BAD, "simulated.nonlinearity"),
    (S + "dispersion_a2", INF, BAD, "simulated.dispersion_a2"),
    (S + "dispersion_a3", NAN, BAD, "simulated.dispersion_a3"),
    (S + "noise_counts", 1e5, BAD, "simulated.noise_counts"),
    (S + "noise_counts", NAN, BAD, "simulated.noise_counts"),
    (S + "fixed_pattern", 0.6, BAD, "simulated.fixed_pattern"),
    (S + "fixed_pattern", INF, BAD, "simulated.fixed_pattern"),
    (S + "adc_bits", 7, BAD, "simulated.adc_bits"),
    (S + "adc_bits", 17, BAD, "simulated.adc_bits"),
    (S + "motion_um_per_volume", NAN, BAD, "simulated.motion_um_per_volume"),
    (S + "layers", layer(depth_um=0), BAD, "simulated.layers"),
    (S + "layers", layer(depth_um=-5), BAD, "simulated.layers"),
    (S + "layers", layer(depth_um=NAN), BAD, "simulated.layers"),
    (S + "layers", layer(reflectivity=0), BAD, "simulated.layers"),
    (S + "layers", layer(reflectivity=0.3), BAD, "simulated.layers"),
    (S + "layers", layer(tilt_um_per_mm=INF), BAD, "simulated.layers"),
    (S + "layers", layer(waviness_um=NAN), BAD, "simulated.layers"),
    (S + "scatterers", HUGE, BAD, "simulated.scatterers"),
    # -- the replay source
    ("replay.path", "", BAD, "replay.path"),
    ("replay.path", "../etc/passwd", BAD, "replay.path"),
    ("replay.path", "/etc/passwd", BAD, "replay.path"),
    ("replay.path", "a/../../x", BAD, "replay.path"),
    ("replay.path", "x\ny", "NOT_FOUND", "replay.path"),
    ("replay.path", "no-such-file.npy", "NOT_FOUND", "no-such-file.npy"),
    ("replay.path", "folder", BAD, "replay.path"),
    ("replay.path", "f64.npy", BAD, "replay.path"),
    ("replay.path", "fortran.npy", BAD, "replay.path"),
    ("replay.path", "one.npy", BAD, "replay.path"),
    ("replay.path", "short.npy", BAD, "replay.path"),
    ("replay.path", "empty.npy", BAD, "replay.path"),
    ("replay.path", "text.npy", BAD, "replay.path"),
    ("replay.path", "other-length.npy", BAD, "acquisition.samples_per_record"),
    ("replay.path", "odd.raw", BAD, "replay.path"),
    ("replay.rate_hz", -1.0, BAD, "replay.rate_hz"),
    ("replay.rate_hz", NAN, BAD, "replay.rate_hz"),
    ("replay.rate_hz", 1e-300, BAD, "replay.rate_hz"),
    # -- acquisition
    (A + "samples_per_record", 15, BAD, "acquisition.samples_per_record"),
    (A + "samples_per_record", 65537, BAD, "acquisition.samples_per_record"),
    (A + "samples_per_record", HUGE, BAD, "acquisition.samples_per_record"),
    (A + "raw_type", 99, BAD, "acquisition.raw_type"),
    (A + "raw_type", -1, BAD, "acquisition.raw_type"),
    (A + "record_rate_hz", -1.0, BAD, "acquisition.record_rate_hz"),
    (A + "record_rate_hz", NAN, BAD, "acquisition.record_rate_hz"),
    (A + "record_rate_hz", INF, BAD, "acquisition.record_rate_hz"),
    (A + "record_rate_hz", 1e12, BAD, "acquisition.record_rate_hz"),
    (A + "records_per_block", HUGE, BAD, "acquisition.records_per_block"),
    (A + "ring_blocks", 1, BAD, "acquisition.ring_blocks"),
    (A + "ring_blocks", 2, BAD, "acquisition.ring_blocks"),
    (A + "ring_blocks", HUGE, BAD, "acquisition.ring_blocks"),
    (A + "channels", 17, BAD, "acquisition.channels"),
    (A + "channels", HUGE, BAD, "acquisition.channels"),
    (A + "channel", 1, BAD, "acquisition.channel"),
    (A + "channel", HUGE, BAD, "acquisition.channel"),
    (A + "record_average", 257, BAD, "acquisition.record_average"),
    (A + "record_average", HUGE, BAD, "acquisition.record_average"),
    # -- pattern
    ("pattern", None, BAD, "pattern"),
    (R + "ascans_per_bscan", 0, BAD, "pattern.raster.ascans_per_bscan"),
    (R + "ascans_per_bscan", HUGE, BAD, "pattern.raster."),
    (R + "bscans_per_volume", 0, BAD, "pattern.raster.bscans_per_volume"),
    (R + "bscans_per_volume", HUGE, BAD, "pattern.raster."),
    (R + "volumes", HUGE, BAD, "retention.hold_slots"),  # the server would have to hold as many
    (R + "flyback_records", HUGE, BAD, "pattern.raster."),
    (R + "volume_flyback_records", HUGE, BAD, "pattern.raster."),
    (R + "extent_x_mm", -1.0, BAD, "pattern.raster.extent_x_mm"),
    (R + "extent_x_mm", NAN, BAD, "pattern.raster.extent_x_mm"),
    (R + "extent_x_mm", INF, BAD, "pattern.raster.extent_x_mm"),
    (R + "extent_y_mm", -0.001, BAD, "pattern.raster.extent_y_mm"),
    (R + "extent_y_mm", NAN, BAD, "pattern.raster.extent_y_mm"),
    # -- processing
    (P + "background.mode", 17, BAD, "processing.background.mode"),
    (P + "background", scan_pb2.Processing.Background(mode=2), BAD, "processing.background.spectrum"),
    (P + "background", scan_pb2.Processing.Background(mode=2, spectrum=array(255)), BAD, "processing.background.spectrum"),
    (P + "background", scan_pb2.Processing.Background(mode=2, spectrum=array(257)), BAD, "processing.background.spectrum"),
    (P + "background", scan_pb2.Processing.Background(mode=2, spectrum=array(256, NAN)), BAD, "processing.background.spectrum"),
    (P + "background", scan_pb2.Processing.Background(mode=1, spectrum=array(256)), BAD, "processing.background.spectrum"),
    (P + "background", scan_pb2.Processing.Background(mode=3, spectrum=array(256)), BAD, "processing.background.spectrum"),
    (P + "background.window_records", 1048577, BAD, "processing.background.window_records"),
    (P + "k_linearisation.interpolation", 44, BAD, "processing.k_linearisation.interpolation"),
    (P + "k_linearisation.index.values", array(15), BAD, "processing.k_linearisation.index"),
    (P + "k_linearisation.index.values", array(70000), BAD, "processing.k_linearisation.index"),
    (P + "k_linearisation.index.values", array(256, -0.5), BAD, "processing.k_linearisation.index"),
    (P + "k_linearisation.index.values", array(256, 255.5, 255), BAD, "processing.k_linearisation.index"),
    (P + "k_linearisation.index.values", array(256, 9, 100), BAD, "processing.k_linearisation.index"),
    (P + "k_linearisation.index.values", array(256, NAN, 3), BAD, "processing.k_linearisation.index"),
    (P + "k_linearisation.index.values", array(256, INF, 255), BAD, "processing.k_linearisation.index"),
    (P + "k_linearisation.polynomial.values", [], BAD, "processing.k_linearisation.polynomial"),
    (P + "k_linearisation.polynomial.values", [0, 2], BAD, "processing.k_linearisation.polynomial"),
    (P + "k_linearisation.polynomial.values", [0, -1], BAD, "processing.k_linearisation.polynomial"),
    (P + "k_linearisation.polynomial.values", [0, NAN], BAD, "processing.k_linearisation.polynomial"),
    (P + "k_linearisation.polynomial.values", [255, -1], BAD, "processing.k_linearisation.polynomial"),
    (P + "k_linearisation.wavelength_nm.values", array(255), BAD, "processing.k_linearisation.wavelength_nm"),
    (P + "k_linearisation.wavelength_nm.values", [800.0] * 256, BAD, "processing.k_linearisation.wavelength_nm"),
    (P + "k_linearisation.wavelength_nm.values", array(256), BAD, "processing.k_linearisation.wavelength_nm"),
    (P + "k_linearisation.wavelength_nm.values", [800.0 + i for i in range(255)] + [NAN], BAD, "processing.k_linearisation.wavelength_nm"),
    (P + "k_linearisation.wavelength_nm.values", [-800.0 - i for i in range(256)], BAD, "processing.k_linearisation.wavelength_nm"),
    (P + "window", 55, BAD, "processing.window"),
    (P + "window_values", array(255), BAD, "processing.window_values"),
    (P + "window_values", array(257), BAD, "processing.window_values"),
    (P + "window_values", array(256, NAN, 5), BAD, "processing.window_values"),
    (P + "dispersion.a2", NAN, BAD, "processing.dispersion.a2"),
    (P + "dispersion.a3", INF, BAD, "processing.dispersion.a3"),
    (P + "dispersion.phase", array(255), BAD, "processing.dispersion.phase"),
    (P + "dispersion.phase", array(256, NAN), BAD, "processing.dispersion.phase"),
    (P + "dispersion", scan_pb2.Processing.Dispersion(a2=1e-5, phase=array(256)), BAD, "processing.dispersion"),
    (P + "fft_length", 131073, BAD, "processing.fft_length"),
    (P + "fixed_pattern_noise", 9, BAD, "processing.fixed_pattern_noise"),
    (P + "fixed_pattern_noise", scan_pb2.Processing.FIXED_PATTERN_NOISE_QUIET_SEGMENT, BAD, "processing.fixed_pattern_noise"),  # 16 A-scans are too few
    (P + "dtype", types_pb2.DTYPE_C64, BAD, "processing.dtype"),  # without complex values
    (P + "fft_length", 255, BAD, "processing.fft_length"),
    (P + "fft_length", 1, BAD, "processing."),
    (P + "fft_length", HUGE, BAD, "processing.fft_length"),
    (P + "first_bin", 256, BAD, "processing."),
    (P + "first_bin", HUGE, BAD, "processing."),
    (P + "depth", 257, BAD, "processing.depth"),
    (P + "depth", HUGE, BAD, "processing.depth"),
    (P + "value", 77, BAD, "processing.value"),
    (P + "levels", types_pb2.Levels(lo=3, hi=3), BAD, "processing.levels"),
    (P + "levels", types_pb2.Levels(lo=4, hi=3), BAD, "processing.levels"),
    (P + "levels", types_pb2.Levels(lo=NAN, hi=3), BAD, "processing.levels"),
    (P + "levels", types_pb2.Levels(lo=0, hi=INF), BAD, "processing.levels"),
    (P + "dtype", 7, BAD, "processing.dtype"),
    (P + "dtype", 99, BAD, "processing.dtype"),
    (P + "axial_spacing_um", -1.0, BAD, "processing.axial_spacing_um"),
    (P + "axial_spacing_um", NAN, BAD, "processing.axial_spacing_um"),
    (P + "refractive_index", -1.0, BAD, "processing.refractive_index"),
    (P + "refractive_index", 0.5, BAD, "processing.refractive_index"),
    (P + "refractive_index", INF, BAD, "processing.refractive_index"),
    # -- products
    ("products.slab_begin_um", NAN, BAD, "products.slab_begin_um"),
    ("products.slab_begin_um", -5.0, BAD, "products.slab"),
    ("products.slab_end_um", INF, BAD, "products.slab_end_um"),
    ("products.slab_end_um", -1.0, BAD, "products.slab"),
    ("products", scan_pb2.Products(slab_begin_um=50, slab_end_um=40), BAD, "products.slab"),
    ("products", scan_pb2.Products(slab_begin_um=1e9, slab_end_um=2e9), BAD, "products.slab"),
    ("products.preview_rate_hz", NAN, BAD, "products.preview_rate_hz"),
    ("products.preview_rate_hz", 1e9, BAD, "products.preview_rate_hz"),
    # -- retention
    (T + "mode", 5, BAD, "retention.mode"),
    (T + "on_full", 9, BAD, "retention.on_full"),
    (T + "disposition", 8, BAD, "retention.disposition"),
    (T + "hold_slots", HUGE, BAD, "retention.hold_slots"),
    (T + "keep_last", 4, BAD, "retention.keep_last"),  # only for captures
    (T + "on_tier_full", 9, BAD, "retention.on_tier_full"),
    (T + "on_tier_full", scan_pb2.ON_FULL_SPILL_DISK, BAD, "retention.on_tier_full"),
    (T + "orphan", 9, BAD, "retention.orphan"),
    (T + "orphan", scan_pb2.ORPHAN_DISCARD, BAD, "retention.orphan"),  # of nobody's
    (T + "ttl", Duration(nanos=500000000), BAD, "retention.ttl"),
    (T + "ttl", Duration(seconds=-1), BAD, "retention.ttl"),
    (T + "ttl", Duration(seconds=2, nanos=-1), BAD, "retention.ttl"),
    (T + "ttl", Duration(nanos=1000000000), BAD, "retention.ttl"),
    (T + "ttl", Duration(seconds=2 ** 62), BAD, "retention.ttl"),
    (T + "ttl_warning", Duration(seconds=1), BAD, "retention.ttl_warning"),  # without a time to live
    ("retention", scan_pb2.Retention(disposition=2), BAD, "retention.auto_commit.destination"),
    ("retention", scan_pb2.Retention(disposition=2, auto_commit=scan_pb2.CommitOptions(destination="../x")), BAD, "retention.auto_commit.destination"),
    ("retention", scan_pb2.Retention(disposition=2, auto_commit=scan_pb2.CommitOptions(destination="{what}")), BAD, "retention.auto_commit.destination"),
    ("retention", scan_pb2.Retention(disposition=2, auto_commit=scan_pb2.CommitOptions(destination="v", format=99)), BAD, "retention.auto_commit.format"),
    ("retention", scan_pb2.Retention(disposition=2, auto_commit=scan_pb2.CommitOptions(destination="v{index}", chunk=[1, 2])), BAD, "retention.auto_commit.chunk"),
    ("retention", scan_pb2.Retention(disposition=2, auto_commit=scan_pb2.CommitOptions(destination="v{index}", zstd_level=20)), BAD, "zstd_level"),
    # -- requests beyond the server's memory
    ("pattern.raster", scan_pb2.Raster(ascans_per_bscan=8192, bscans_per_volume=262144, volumes=1), FULL, "budget"),
]

COMMITS = [
    (dict(destination=""), BAD, "options.destination"),
    (dict(destination="."), BAD, "options.destination"),
    (dict(destination="/"), BAD, "options.destination"),
    (dict(destination=".."), BAD, "options.destination"),
    (dict(destination="../x"), BAD, "options.destination"),
    (dict(destination="a/../../x"), BAD, "options.destination"),
    (dict(destination="/etc/octavo"), BAD, "options.destination"),
    (dict(destination="a\nb"), BAD, "options.destination"),
    (dict(destination="x" * 5000), BAD, "options.destination"),
    (dict(destination="x" * 201), BAD, "options.destination"),
    (dict(destination=".octavo-1.tmp"), BAD, "options.destination"),
    (dict(destination="out/etc"), BAD, "options.destination"),
    (dict(destination="{nothing}"), BAD, "options.destination"),
    (dict(destination="{index:5}"), BAD, "options.destination"),
    (dict(destination="{index"), BAD, "options.destination"),
    (dict(destination="a-file/x"), "NOT_FOUND|INVALID_ARGUMENT|FAILED_PRECONDITION|INTERNAL|ALREADY_EXISTS", "a-file"),
    (dict(destination="taken"), "ALREADY_EXISTS", "taken"),
    (dict(destination="taken", format=2), "ALREADY_EXISTS", "taken"),
    (dict(destination="v", format=77), BAD, "options.format"),
    (dict(destination="v", chunk=[1]), BAD, "options.chunk"),
    (dict(destination="v", chunk=[0, 8, 8]), BAD, "options.chunk"),
    (dict(destination="v", chunk=[HUGE, 8, 8]), BAD, "options.chunk"),
    (dict(destination="v", chunk=[4, 8, 8, 8]), BAD, "options.chunk"),
    (dict(destination="v", chunk=[4, 8, 8], shard=[6, 8, 8]), BAD, "options.shard"),
    (dict(destination="v", shard=[4, 8]), BAD, "options.shard"),
    (dict(destination="v", chunk=[1, 1, 1], shard=[65536, 65536, 65536]), BAD, "options.shard"),
    (dict(destination="v", zstd_level=20), BAD, "options.zstd_level"),
    (dict(destination="v", zstd_level=-1), BAD, "options.zstd_level"),
    (dict(destination="v", codec=77), BAD, "options.codec"),
    (dict(destination="v", codec=scan_pb2.CODEC_GZIP, format=scan_pb2.FORMAT_NPY), BAD, "options.codec"),
    (dict(destination="v", codec=scan_pb2.CODEC_GZIP, level=10), BAD, "options.level"),
    (dict(destination="v", level=-1), BAD, "options.level"),
    (dict(destination="v", level=3), BAD, "options.level"),
    (dict(destination="v", shuffle=77), BAD, "options.shuffle"),
    (dict(destination="v", shuffle=scan_pb2.SHUFFLE_BIT, format=scan_pb2.FORMAT_HDF5), BAD, "options.shuffle"),
    (dict(destination="v", pyramid_levels=HUGE), BAD, "options.pyramid_levels"),
    (dict(destination="v", pyramid_levels=12), BAD, "options.pyramid_levels"),
    (dict(destination="v", pyramid_levels=2, format=scan_pb2.FORMAT_OME_TIFF), BAD, "options.pyramid_levels"),
    (dict(destination="v", pyramid_um=[-1]), BAD, "options.pyramid_um[0]"),
    (dict(destination="v", pyramid_um=[float("nan")]), BAD, "options.pyramid_um[0]"),
    (dict(destination="v", pyramid_um=[1e9]), BAD, "options.pyramid_um"),
    (dict(destination="v", pyramid_um=[10] * 16), BAD, "options.pyramid_um"),
    (dict(destination="v", pyramid_um=[50], format=scan_pb2.FORMAT_OME_TIFF), BAD, "options.pyramid_um"),
    (dict(destination="v", ngff=77), BAD, "options.ngff"),
    (dict(destination="v", ngff=scan_pb2.NGFF_VERSION_04, format=scan_pb2.FORMAT_NPY), BAD, "options.ngff"),
    (dict(destination="v", ngff=scan_pb2.NGFF_VERSION_04, chunk=[2, 2, 2], shard=[4, 4, 4]), BAD, "options.shard"),
    (dict(destination="v", nifti_version=HUGE, format=scan_pb2.FORMAT_NIFTI), BAD, "options.nifti_version"),
    (dict(destination="v", nifti_version=1), BAD, "options.nifti_version"),
]

READS = [
    (dict(start=[0]), BAD, "start"),
    (dict(start=[0, 0, 0, 0]), BAD, "start"),
    (dict(start=[-1, 0, 0]), "OUT_OF_RANGE", "start"),
    (dict(start=[8, 0, 0]), "OUT_OF_RANGE", "start"),
    (dict(start=[0, 0, 128]), "OUT_OF_RANGE", "start"),
    (dict(count=[1, 1]), BAD, "count"),
    (dict(count=[-1, 1, 1]), "OUT_OF_RANGE", "count"),
    (dict(count=[9, 1, 1]), "OUT_OF_RANGE", "count"),
    (dict(start=[4, 0, 0], count=[5, 1, 1]), "OUT_OF_RANGE", "count"),
    (dict(start=[0, 0, 0], count=[2 ** 62, 2 ** 62, 2 ** 62]), "OUT_OF_RANGE", "count"),
    (dict(start=[2 ** 63 - 1, 0, 0], count=[2, 1, 1]), "OUT_OF_RANGE", "start"),
    (dict(chunk_bytes=1), BAD, "chunk_bytes"),
    (dict(chunk_bytes=HUGE), BAD, "chunk_bytes"),
]

SUBSCRIPTIONS = [
    (dict(parent="scans/none"), "NOT_FOUND", "scans/none"),
    (dict(parent="jobs/none"), "NOT_FOUND", "no job jobs/none"),
    (dict(parent="volumes/none"), BAD, "parent: is 'volumes/none'; allowed are scans/<id>, jobs/<id>"),
    (dict(parent="none"), BAD, "parent: is 'none'; allowed are scans/<id>, jobs/<id>"),
    (dict(products=[99]), BAD, "products"),
    (dict(axis=9), BAD, "axis"),
    (dict(encoding=99), BAD, "encoding"),
    (dict(delivery=9), BAD, "delivery"),
    (dict(queue_length=1025), BAD, "queue_length"),
    (dict(max_rate_hz=-1.0), BAD, "max_rate_hz"),
    (dict(max_rate_hz=NAN), BAD, "max_rate_hz"),
    (dict(chunk_bytes=100), BAD, "chunk_bytes"),
    (dict(chunk_bytes=HUGE), BAD, "chunk_bytes"),
    (dict(from_sequence=0), BAD, "from_sequence"),
    (dict(products=[stream_pb2.PRODUCT_VOLUME], encoding=stream_pb2.ENCODING_PNG), BAD, "encoding"),
    (dict(products=[stream_pb2.PRODUCT_AIP], axis=stream_pb2.AXIS_X), BAD, "axis"),
    (dict(labels={"Not a key": "x"}), BAD, "labels"),
]


def set_field(message, path, value):
    """Sets a.b.c of a message; None clears it."""
    *parents, last = path.split(".")
    for name in parents:
        message = getattr(message, name)
    if value is None:
        message.ClearField(last)
    elif isinstance(value, dict):
        getattr(message, last).update(value)
    elif isinstance(value, list):
        del getattr(message, last)[:]
        getattr(message, last).extend(value)
    elif hasattr(value, "DESCRIPTOR"):
        getattr(message, last).CopyFrom(value)
    else:
        setattr(message, last, value)
    if value == [] or value == 0:
        message.SetInParent()


class BadInput(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        root = cls.daemon.root
        os.mkdir(os.path.join(root, "folder"))
        os.symlink("/", os.path.join(root, "out"))
        for name, values in (("f64.npy", np.zeros((4, 256))), ("fortran.npy", np.asfortranarray(np.zeros((4, 256), np.uint16))),
                             ("one.npy", np.zeros((), np.uint16)), ("other-length.npy", np.zeros((512, 300), np.uint16)),
                             ("empty.npy", np.zeros((0, 256), np.uint16)), ("good.npy", np.zeros((512, 256), np.uint16))):
            np.save(os.path.join(root, name), values)
        with open(os.path.join(root, "good.npy"), "rb") as file, open(os.path.join(root, "short.npy"), "wb") as short:
            short.write(file.read()[:1000])
        for name, text in (("text.npy", "this is no array"), ("odd.raw", "x" * 513), ("a-file", "x")):
            with open(os.path.join(root, name), "w") as file:
                file.write(text)
        scan = cls.client.submit_scan(cls.good())
        cls.client.wait(scan.name)
        cls.volume, committed = [v.name for v in cls.client.volumes(scan.name)]
        cls.client.commit(committed, "taken")
        again = cls.client.submit_scan(cls.good(volumes=1))
        cls.client.wait(again.name)
        cls.client.commit(cls.client.volumes(again.name)[0].name, "taken", "npy")

    @staticmethod
    def good(volumes=2):
        return octavo.scan_spec(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=volumes), samples=256)

    def tearDown(self):
        pass  # the volume stays for all tests

    def state(self):
        """The state that a refused request must not change."""
        memory = [(d.used_bytes, d.reserved_bytes, d.held_bytes, d.running_scans) for d in self.client.devices()]
        files = sorted(os.path.join(folder, n) for folder, folders, names in os.walk(self.daemon.root) for n in names + folders)
        return memory, len(self.client.scans()), [(v.name, v.state) for v in self.client.volumes()], files

    def refused(self, what, code, named, call):
        before = self.state()
        with self.subTest(row=what):
            with self.assertRaises(octavo.OctavoError) as caught:
                call()
            error = caught.exception
            self.assertIn(error.code.name, code.split("|"), error.message)
            self.assertTrue(error.field.startswith(named) or named in error.message, f"field '{error.field}', message '{error.message}'; must name {named}")
            self.assertTrue(error.reason, error.message)
            self.assertEqual(self.state(), before)

    def test_the_good_request_is_good(self):
        self.assertTrue(self.client.plan_scan(self.good()).report.admitted)
        self.assertGreaterEqual(len(SCANS) + len(COMMITS) + len(READS) + len(SUBSCRIPTIONS), 200)

    def test_scans(self):
        for path, value, code, named in SCANS:
            spec = self.good()
            set_field(spec, path, value)
            what = f"{path} = {str(value)[:60]}"
            self.refused(what, code, named, lambda: self.client.submit_scan(spec))
            if code == FULL:
                self.assertFalse(self.client.plan_scan(spec).report.admitted, what)
            else:
                self.refused("plan: " + what, code, named, lambda: self.client.plan_scan(spec))

    def test_no_source(self):
        spec = self.good()
        spec.ClearField("source")
        self.refused("no source", BAD, "source", lambda: self.client.submit_scan(spec))

    def test_commits(self):
        for fields, code, named in COMMITS:
            request = volume_pb2.CommitVolumeRequest(name=self.volume, options=scan_pb2.CommitOptions(**fields))
            self.refused(fields, code, named, lambda: self.client._call(self.client._volumes.CommitVolume, request))

    def test_reads(self):
        for fields, code, named in READS:
            request = volume_pb2.ReadVolumeRequest(name=self.volume, **fields)
            self.refused(fields, code, named, lambda: list(self.stream(self.client._volumes.ReadVolume, request)))

    def test_subscriptions(self):
        for fields, code, named in SUBSCRIPTIONS:
            request = stream_pb2.SubscribeRequest(**fields)
            self.refused(fields, code, named, lambda: list(self.stream(self.client._streams.Subscribe, request, timeout=60)))

    def test_names(self):
        for name in ("", "volumes/", "volumes/none", "scans/x", "x" * 100_000, "volumes/../x", "volumes/\0"):
            volumes, scans = self.client._volumes, self.client._scans  # plain calls: the library refuses some of the names itself
            for call, request in ((volumes.GetVolume, volume_pb2.GetVolumeRequest(name=name)), (volumes.DiscardVolume, volume_pb2.DiscardVolumeRequest(name=name)),
                                  (volumes.HoldVolume, volume_pb2.HoldVolumeRequest(name=name)),
                                  (lambda r: list(volumes.ReadVolume(r)), volume_pb2.ReadVolumeRequest(name=name)),
                                  (volumes.CommitVolume, volume_pb2.CommitVolumeRequest(name=name, options=octavo.commit_options("v"))),
                                  (scans.GetScan, scan_pb2.GetScanRequest(name=name)), (scans.StopScan, scan_pb2.StopScanRequest(name=name)),
                                  (scans.CancelScan, scan_pb2.CancelScanRequest(name=name)), (lambda r: list(scans.WatchScan(r)), scan_pb2.WatchScanRequest(name=name)),
                                  (scans.UpdateScan, scan_pb2.UpdateScanRequest(name=name, processing=scan_pb2.Processing(), update_mask=dict(paths=["*"])))):
                def plain():
                    with octavo.errors.raising():
                        call(request)

                self.refused(f"{type(request).__name__} {name[:20]!r}", "NOT_FOUND|INVALID_ARGUMENT", "", plain)

    def test_pages(self):
        for fields in (dict(page_size=-1), dict(page_size=1001), dict(page_token="x"), dict(page_token="-1")):
            for method, message in ((self.client._scans.ListScans, scan_pb2.ListScansRequest), (self.client._volumes.ListVolumes, volume_pb2.ListVolumesRequest)):
                self.refused(fields, BAD, "page_", lambda: self.client._call(method, message(**fields)))

    def test_bytes_that_are_no_message(self):
        before = self.state()
        for path in ("ScanService/SubmitScan", "VolumeService/GetVolume", "SystemService/GetInfo"):
            method = self.client.channel.unary_unary(f"/octavo.v1.{path}", request_serializer=lambda b: b, response_deserializer=bytes)
            for junk in (b"\xff" * 64, b"\x0a\xff\xff\xff\xff\x0f", os.urandom(4096)):
                try:
                    method(junk, timeout=10)
                except grpc.RpcError as error:
                    self.assertIn(error.code().name, ("INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED"), error.details())
        self.assertEqual(self.state(), before)

    def test_a_message_beyond_the_limit(self):
        spec = self.good()
        spec.processing.window_values.extend([1.0] * (17 << 20))
        before = self.state()
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_scan(spec)
        self.assertEqual(caught.exception.code.name, FULL)
        self.assertEqual(self.state(), before)

    @staticmethod
    def stream(method, request, timeout=30):
        try:
            yield from method(request, timeout=timeout)
        except grpc.RpcError as error:
            from octavo.errors import from_rpc_error
            raise from_rpc_error(error) from None


if __name__ == "__main__":
    unittest.main()
