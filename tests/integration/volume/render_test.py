"""RenderVolume: pictures of held volumes of every type, in every tier, along every axis, against NumPy's picture of the volume as read;
refusals, the command line, and a client that goes away."""

import json
import os
import threading
import unittest
import warnings

import grpc
import numpy as np

from harness import DaemonTest, octavo, until
from octavo.v1 import scan_pb2, volume_pb2
from pictures import decode_png, grey, jpeg_size

KINDS = {"max": np.nanmax, "min": np.nanmin, "mean": np.nanmean, "std": np.nanstd}


def shown(array, rendering, axis, box=None, index=None):
    """NumPy's projection or plane of the box (slices), of the type that an array of it has."""
    values = np.abs(array) if np.iscomplexobj(array) else array
    values = values[box or (slice(None),) * 3]
    kept = values.dtype if values.dtype.kind in "ui" else np.float32
    if rendering == "plane":
        return np.take(values, values.shape[axis] // 2 if index is None else index, axis).astype(kept)
    exact = rendering in ("max", "min")
    with np.errstate(all="ignore"), np.testing.suppress_warnings() as sup:
        sup.filter(RuntimeWarning)  # all of a line is NaN
        made = KINDS[rendering](values if exact else values.astype(np.float64), axis=axis)
    return made.astype(kept if exact else np.float32)


class Rendering(DaemonTest):
    flags = ("--spill.host_bytes", str(64 << 20), "--device.host_devices", "3", "--device.frame_pool_bytes", str(64 << 20))

    def scan(self, ascans=23, bscans=9, samples=128, spread=None, **processing):
        scan = self.client.submit_scan(octavo.simulated(7, fast=True), octavo.raster(ascans, bscans, volumes=1, extent_x_mm=0.46, extent_y_mm=0.27),
                                       samples=samples, processing=octavo.processing(axial_spacing_um=5, **processing),
                                       **({} if spread is None else dict(spread=spread)))
        return self.client.volumes(self.client.wait(scan.name).name)[0].name

    def values(self, name, *stored, difference=False):
        """What these stored integers of a volume mean; as `levels` of pictures are given."""
        volume = self.client.volume(name)
        step = (volume.levels.hi - volume.levels.lo) / {"U8": 255, "U16": 65535}[str(volume.dtype)]
        return tuple((0 if difference else volume.levels.lo) + step * x for x in stored)

    def with_gaps(self):
        """An F32 volume with missing A-scans, which hold NaN: single ones, and a whole B-scan."""
        scan = self.client.submit_scan(octavo.push(), octavo.raster(20, 8, volumes=1), samples=64,
                                       processing=octavo.processing(background="none", window="rect", value="magnitude", dtype="f32")).name
        raw = np.random.default_rng(5).integers(0, 4000, (160, 64), np.uint16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", octavo.OctavoWarning)  # of the gaps
            self.client.push(scan, [(0, raw[:25]), (27, raw[27:60]), (85, raw[85:])])
        self.client.wait(scan)
        name = self.client.volumes(scan)[0].name
        self.assertEqual(np.isnan(self.client.read(name)).any(axis=2).sum(), 27)
        return name

    def check(self, name, axes=("y", "x", "z")):
        """Every way to look at a volume in its present tier."""
        array = self.client.read(name)
        boxes = [(None, None)]
        if min(array.shape) > 4:
            boxes.append((tuple(slice(1, n - 2) for n in array.shape), [[1] * 3, [n - 3 for n in array.shape]]))
        for position, axis in enumerate(axes):
            for box, numbers in boxes:
                fields = {} if numbers is None else dict(start=numbers[0], count=numbers[1])
                for rendering in ("plane", *KINDS):
                    with self.subTest(name=name, axis=axis, box=box, rendering=rendering):
                        wanted = shown(array, rendering, position, box)
                        got = self.client.render(name, rendering, axis, encoding="raw", **fields)
                        self.assertEqual((got.rendering, got.axis, got.axes), (rendering, axis, tuple(a for a in axes if a != axis)))
                        self.assertEqual((got.array.dtype, got.array.shape), (wanted.dtype, wanted.shape))
                        if rendering in ("plane", "max", "min") and not np.iscomplexobj(array):
                            np.testing.assert_array_equal(got.array, wanted)
                        else:
                            np.testing.assert_allclose(got.array, wanted, rtol=1e-6, atol=1e-5)  # tens of dB in f32, of which a deviation may be small
        return array

    # -- values

    def test_every_type_tier_and_axis(self):
        for processing in (dict(dtype="u8"), dict(dtype="u16"), dict(dtype="i8"), dict(dtype="f16"), dict(dtype="f32"), dict(dtype="c64", value="complex")):
            name = self.scan(**processing)
            self.check(name)
            for tier in ("host", "disk"):
                self.client.spill(name, tier)
                self.check(name)
                self.assertEqual(self.client.volume(name).tier, octavo.volume_calls.TIERS[tier], "a picture moves nothing")
            self.client.discard(name)

    def test_missing_ascans_are_left_out(self):
        name = self.with_gaps()
        for tier in (None, "disk"):
            if tier:
                self.client.spill(name, tier)
            self.check(name)
            # NaN is the darkest colour.
            picture = self.client.render(name, axis="y", index=4, image=dict(levels=(1, 2)))
            array = self.client.read(name)[4]
            self.assertTrue(np.isnan(array).any())
            np.testing.assert_array_equal(decode_png(picture.data), grey(array, 1, 2))

    def test_striped_volumes(self):
        name = self.scan(ascans=48, bscans=20, spread=scan_pb2.Spread(striped=True, count=3), dtype="u16")
        self.assertGreater(self.client.volume(name).stripe_bscans, 0)
        self.check(name)

    def test_derived_volumes(self):
        name = self.scan(dtype="f32", ascans=16, bscans=6)
        for operation, axes in (({"transpose": {"axes": [2, 0, 1]}}, ("z", "y", "x")), ({"mip": {"axis": 2}}, ("y", "x", "z")),
                                ({"fft": {"axis": 1}}, ("y", "x", "z")), ({"histogram": {"bins": 16, "lo": -100, "hi": 100}}, ("y", "x", "z")),
                                ({"percentile": {"percentiles": [50], "axes": [0]}}, ("y", "x", "z"))):
            derived = self.client.derive(name, operation)
            self.check(derived.name, tuple(derived.axes))
            self.assertEqual(tuple(derived.axes), axes)
        counts = self.client.derive(name, {"histogram": {"bins": 16, "lo": -100, "hi": 100}})
        self.assertEqual(counts.dtype, "F64")  # the scan's levels are those of its F32
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.render(counts, image=dict(display_levels=True))
        self.assertEqual(caught.exception.field, "image.display_levels")

    def test_a_tomogram(self):
        tomo = np.random.default_rng(3).random((12, 7, 16), np.float32)
        arrays = octavo.ProjectionArrays(projections=self.client.buffers.put(tomo))
        job = self.client.wait_job(self.client.submit_job(octavo.tomography(arrays, angles=np.arange(12) * np.pi / 12,
                                                                            prepare=octavo.preparation(already_sinograms=True))))
        array = self.check(job.volume_names[0], ("z", "y", "x"))
        slices = self.client.render(job.volume_names[0], encoding="raw")  # the axis is chosen: slices, and z for projections, too
        self.assertEqual((slices.axis, slices.axes, slices.start[0]), ("z", ("y", "x"), 3))
        np.testing.assert_array_equal(slices.array, array[3])
        self.assertEqual(self.client.render(job.volume_names[0], "max", encoding="raw").axis, "z")
        (frame,) = self.client.subscribe(job, "bscan")
        self.assertEqual(self.client.render(job.volume_names[0], image=dict(display_levels=True)).levels, frame.display)
        self.client.buffers.destroy(arrays.projections)

    def test_long_lines_and_many_pieces(self):
        """Volumes of several pieces of 4 MiB: whole B-scans a piece, parts of a B-scan, and a few A-scans."""
        for shape in ((3, 700, 1024), (300, 40, 256), (2, 5, 2048)):
            scan = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(shape[1], shape[0], volumes=1), samples=2 * shape[2],
                                           processing=octavo.processing(dtype="u16"))
            name = self.client.volumes(self.client.wait(scan.name).name)[0].name
            self.assertEqual(self.client.read(name).shape, shape)
            self.check(name)
            self.client.spill(name, "host")
            self.check(name)
            self.client.discard(name)

    # -- pictures

    def test_the_picture_is_what_numpy_makes(self):
        name = self.scan(dtype="u8", ascans=40, bscans=12)
        array = self.client.read(name)
        for rendering, axis, index in (("plane", "y", 5), ("plane", "x", 0), ("plane", "z", 63), ("max", "z", None), ("mean", "x", None), ("std", "y", None)):
            plain = shown(array, rendering, "yxz".index(axis), index=index).astype(np.float64)
            kept = [a for a in "yxz" if a != axis]
            spacing = dict(y=22.5, x=11.5, z=5)
            picture = self.client.render(name, rendering, axis, index=index)
            self.assertEqual((picture.axes, picture.shape), (tuple(kept), plain.shape))
            np.testing.assert_allclose(picture.spacing_um, [spacing[a] for a in kept])
            np.testing.assert_allclose(picture.levels, np.percentile(plain, (1, 99.8)), rtol=1e-5)
            self.assertLessEqual(np.abs(decode_png(picture.data).astype(int) - grey(plain, *picture.levels)).max(), 1)
            # turned, with fixed levels
            levels = self.values(name, 3, 90, difference=rendering == "std")
            turned = self.client.render(name, rendering, axis, index=index, image=dict(depth_down=True, levels=levels))
            np.testing.assert_allclose(turned.levels, (3, 90), rtol=1e-4)
            wanted = plain.T if kept[1] == "z" else plain
            self.assertLessEqual(np.abs(decode_png(turned.data).astype(int) - grey(wanted, 3, 90)).max(), 1)
            self.assertEqual(turned.axes, tuple(kept[::-1]) if kept[1] == "z" else tuple(kept))
            # shrunk by whole areas
            half = self.client.render(name, rendering, axis, index=index, image=dict(max_width=plain.shape[1] // 2, levels=levels))
            mean = plain.reshape(plain.shape[0] // 2, 2, plain.shape[1] // 2, 2).mean(axis=(1, 3))
            self.assertLessEqual(np.abs(decode_png(half.data).astype(int) - grey(mean, 3, 90)).max(), 1)
            np.testing.assert_allclose(half.spacing_um, [2 * spacing[a] for a in kept])

    def test_levels_in_value_units(self):
        name = self.scan(dtype="u8", levels=(-30, 60))
        volume = self.client.volume(name)
        picture = self.client.render(name, "max", "z", image=dict(levels=(-12, 42)))
        self.assertEqual((picture.values, picture.unit), ((-12, 42), "dB"))
        np.testing.assert_allclose(picture.levels, [51, 204], rtol=1e-5)
        # The picture of a plane has the scan's display levels, the same as its live pictures.
        display = self.client.render(name, image=dict(display_levels=True))
        (frame,) = self.client.subscribe(volume.parent, "bscan")
        self.assertEqual(display.levels, frame.display)
        # A deviation is a difference: 18 dB are 0.2 of the range of values.
        deviation = self.client.render(name, "std", "z", image=dict(levels=(0, 18)))
        np.testing.assert_allclose(deviation.levels, [0, 51], atol=1e-4)
        shown_std = self.client.render(name, "std", "z", image=dict(display_levels=True))
        np.testing.assert_allclose(shown_std.levels, [0, (frame.display[1] - frame.display[0]) / 2])
        plain = self.client.render(self.scan(dtype="f32", value="magnitude"), "mean")
        self.assertEqual((plain.unit, plain.values), ("", plain.levels))

    def test_where_it_lies(self):
        name = self.scan()  # 30 um by 20 um by 5 um
        plane = self.client.render(name, "plane", "z", index=13)
        self.assertEqual((plane.start, plane.count, plane.begin_um, plane.end_um), ((0, 0, 13), (9, 23, 1), 65, 70))
        slab = self.client.render(name, "mip", "z", begin=10, end=30, encoding="raw")
        np.testing.assert_array_equal(slab.array, self.client.read(name)[:, :, 10:30].max(axis=2))
        self.assertEqual((slab.start, slab.count, slab.begin_um, slab.end_um), ((0, 0, 10), (9, 23, 20), 50, 150))
        to_the_end = self.client.render(name, "mean", "x", begin=20, encoding="raw")
        self.assertEqual((to_the_end.start, to_the_end.count), ((0, 20, 0), (9, 3, 64)))
        box = self.client.render(name, "plane", "y", start=(2, 3, 4), count=(5, 6, 7), encoding="raw")
        self.assertEqual((box.start, box.count), ((4, 3, 4), (1, 6, 7)))
        self.assertEqual((box.volume.name, box.volume.digest), (name, self.client.volume(name).digest))

    def test_bars_and_files(self):
        name = self.scan(ascans=200, bscans=120)
        both = self.client.render(name, "max", "z", image=dict(colour_map="viridis", colour_bar=True, scale_bar=True, levels=self.values(name, 0, 65535)))
        plain = self.client.render(name, "max", "z", image=dict(colour_map="viridis", levels=self.values(name, 0, 65535)))
        self.assertGreater(both.colour_bar_columns, 20)
        self.assertEqual(both.shape, (120, 200 + both.colour_bar_columns))
        self.assertEqual((plain.shape, plain.colour_bar_columns, plain.scale_bar_um), ((120, 200), 0, 0))
        self.assertGreater(both.scale_bar_um, 0)
        pixels, alone = decode_png(both.data), decode_png(plain.data)
        np.testing.assert_array_equal(pixels[:60, :200], alone[:60])  # the scale bar is below
        self.assertTrue((pixels[:, 200:] == 255).all(axis=2).any(), "white numbers")
        jpeg = self.client.render(name, "max", "z", encoding="jpeg", image=dict(max_width=100))
        self.assertEqual(jpeg_size(jpeg.data), (60, 100, 1))
        webp = self.client.render(name, "max", "z", encoding="webp", image=dict(quality=100))
        self.assertEqual((webp.data[:4], webp.data[8:12], webp.shape), (b"RIFF", b"WEBP", (120, 200)))
        self.assertEqual(webp._repr_mimebundle_(), {"image/webp": webp.data})
        self.assertLess(len(self.client.render(name, "max", "z", encoding="webp", image=dict(quality=20)).data), len(webp.data))
        # Live pictures have them, too.
        live = next(self.client.subscribe(self.client.volume(name).parent, encoding="webp", image=dict(colour_bar=True)))
        self.assertEqual((live.data[8:12], live.shape[1] - live.colour_bar_columns), (b"WEBP", 200))

    # -- refusals and bounds

    def test_errors_name_the_field(self):
        name = self.scan()
        code = grpc.StatusCode
        for fields, field, wanted in (
                (dict(axis="y", index=9), "index", code.OUT_OF_RANGE),
                (dict(axis="y", index=2, start=(3, 0, 0), count=(2, 1, 1)), "index", code.OUT_OF_RANGE),
                (dict(rendering="max", index=2), "index", code.INVALID_ARGUMENT),
                (dict(begin=2), "begin", code.INVALID_ARGUMENT),
                (dict(end=2), "end", code.INVALID_ARGUMENT),
                (dict(rendering="max", axis="z", begin=64), "begin", code.OUT_OF_RANGE),
                (dict(rendering="max", axis="z", begin=-1), "begin", code.OUT_OF_RANGE),
                (dict(rendering="max", axis="z", end=65), "end", code.OUT_OF_RANGE),
                (dict(rendering="max", axis="z", begin=5, end=5), "end", code.OUT_OF_RANGE),
                (dict(rendering="max", begin=5, start=(0, 0, 0)), "begin", code.INVALID_ARGUMENT),
                (dict(start=(0, 0)), "start", code.INVALID_ARGUMENT),
                (dict(start=(0, 23, 0)), "start", code.OUT_OF_RANGE),
                (dict(count=(9, 23, 65)), "count", code.OUT_OF_RANGE),
                (dict(image=dict(quality=50)), "image.quality", code.INVALID_ARGUMENT),
                (dict(encoding="raw", image=dict(colour_bar=True)), "image.colour_bar", code.INVALID_ARGUMENT),
                (dict(chunk_bytes=7), "chunk_bytes", code.INVALID_ARGUMENT)):
            with self.subTest(fields), self.assertRaises(octavo.OctavoError) as caught:
                self.client.render(name, **fields)
            self.assertEqual((caught.exception.code, caught.exception.field), (wanted, field), caught.exception)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.render("volumes/none")
        self.assertEqual((caught.exception.code, caught.exception.reason), (code.NOT_FOUND, "NO_VOLUME"))
        stub = self.client._volumes
        for request in (volume_pb2.RenderVolumeRequest(name=name, rendering=77), volume_pb2.RenderVolumeRequest(name=name, axis=77),
                        volume_pb2.RenderVolumeRequest(name=name, encoding=77), volume_pb2.RenderVolumeRequest(name=name, index=-2)):
            with self.assertRaises(grpc.RpcError) as caught:
                list(stub.RenderVolume(request))
            self.assertEqual(caught.exception.code(), code.INVALID_ARGUMENT)

    def test_what_is_not_held(self):
        scan = self.client.submit_scan(octavo.push(), octavo.raster(8, 4, volumes=1), samples=64).name
        self.client.push(scan, [np.ones((8, 64), np.uint16)], end=False)
        until(lambda: self.client.volumes(scan))
        (volume,) = self.client.volumes(scan)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.render(volume.name)
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.FAILED_PRECONDITION, "VOLUME_STATE"))
        self.client.cancel(scan)
        name = self.scan()
        self.client.discard(name)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.render(name)
        self.assertEqual(caught.exception.code, grpc.StatusCode.NOT_FOUND)

    def test_raw_spectra_are_no_picture(self):
        scan = self.client.wait(self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(8, 4, volumes=1), samples=64,
                                                        retention=dict(hold_raw=True)))
        (raw,) = [v for v in self.client.volumes(scan.name) if v.raw]
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.render(raw.name)
        self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, "name"))
        self.assertIn("reprocess", caught.exception.message)

    def test_a_picture_leaves_no_memory_behind(self):
        name = self.scan()
        before = [d.used_bytes for d in self.client.devices()]
        for axis in "xyz":
            for rendering in ("plane", "mean"):
                self.client.render(name, rendering, axis)
        self.assertEqual([d.used_bytes for d in self.client.devices()], before)

    def test_a_client_that_goes_away(self):
        """Many pictures at once, cancelled at once: the next one comes, and too many are refused."""
        name = self.scan(ascans=400, bscans=60, samples=1024)
        self.client.spill(name, "host")
        request = volume_pb2.RenderVolumeRequest(name=name, rendering=volume_pb2.RENDERING_STD)
        codes, lock = [], threading.Lock()
        calls = [self.client._volumes.RenderVolume(request) for _ in range(60)]

        def end(call):
            try:
                list(call)
                with lock:
                    codes.append(None)
            except grpc.RpcError as error:
                with lock:
                    codes.append(error.code())

        threads = [threading.Thread(target=end, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for call in calls[20:]:
            call.cancel()
        for thread in threads:
            thread.join()
        self.assertLessEqual(set(codes), {None, grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED})
        self.assertIn(None, codes)
        self.client.render(name)

    # -- the command line

    def test_the_command_line(self):
        name = self.scan(ascans=60, bscans=30)
        array = self.client.read(name)
        folder = self.daemon.directory

        def make(file, *arguments):
            path = os.path.join(folder, file)
            return path, self.command("volume", "png", name, "-o", path, *arguments).stdout

        levels = [str(x) for x in self.values(name, 0, 60000)]
        path, said = make("plane.png", "--plane", "z=13", "--levels", *levels)
        with open(path, "rb") as file:
            self.assertLessEqual(np.abs(decode_png(file.read()).astype(int) - grey(array[:, :, 13], 0, 60000)).max(), 1)
        self.assertIn("60 x 30 pixels", said)
        self.assertIn("z plane 13 (65 um)", said)
        path, said = make("slab.png", "--slab", "z=10:20", "--levels", *levels)
        with open(path, "rb") as file:
            self.assertLessEqual(np.abs(decode_png(file.read()).astype(int) - grey(array[:, :, 10:20].max(axis=2), 0, 60000)).max(), 1)
        self.assertIn("max over z 10:20 (50 ... 100 um)", said)
        path, _ = make("down.png", "--plane", "y", "--levels", *levels)  # depth downwards
        with open(path, "rb") as file:
            self.assertLessEqual(np.abs(decode_png(file.read()).astype(int) - grey(array[15].T, 0, 60000)).max(), 1)
        path, _ = make("mip.jpg", "--mip", "z", "--colour-map", "hot", "--max-width", "30")
        with open(path, "rb") as file:
            self.assertEqual(jpeg_size(file.read()), (15, 30, 3))
        path, _ = make("mip.out", "--mean", "y=2:9", "--format", "webp", "--colour-bar", "--scale-bar")
        with open(path, "rb") as file:
            self.assertEqual(file.read()[8:12], b"WEBP")
        about = json.loads(self.command("--json", "volume", "png", name, "-o", path, "--format", "png", "--std", "x").stdout)
        self.assertEqual((about["rendering"], about["axis"]), ("RENDERING_STD", "AXIS_X"))
        for arguments, text in ((("-o", "a.gif"), "its ending tells the format"), (("--plane", "w=3"), "axis 'w'"), (("--plane", "z=a"), "number 'a'"),
                                (("--mip", "z=5"), "AXIS=BEGIN:END"), (("--slab", "z"), "AXIS=BEGIN:END"), (("--slab", "z=9:9"), "allowed > 9"),
                                (("--mip", "z", "--plane", "z"), "excludes")):
            failed = self.command("volume", "png", name, *arguments, check=False)
            self.assertEqual(failed.returncode, 2, failed.stderr)
            self.assertIn(text, failed.stderr)
        failed = self.command("volume", "png", name, "-o", os.path.join(folder, "no.png"), "--plane", "z=99", check=False)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("index is 99; allowed 0 to 63", failed.stderr)
        self.assertFalse(os.path.exists(os.path.join(folder, "no.png")))


if __name__ == "__main__":
    unittest.main()
