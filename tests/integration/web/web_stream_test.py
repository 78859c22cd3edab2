"""What octavo-web sends, on the wire and against a real octavod: frames, credits, drops, resume, one subscription, volumes."""

import io
import json
import os
import re
import socket
import time
import unittest
import urllib.request

import numpy as np

from harness import Daemon, DaemonTest, octavo, until
from web_viewer import Closed, Viewer

DTYPES = {"U8": np.uint8, "U16": np.uint16, "F32": np.float32}


def array(header, data):
    schema = header["schema"]
    return np.frombuffer(data, DTYPES[schema["dtype"]]).reshape(schema["shape"])


class ViewerTest(DaemonTest):
    flags = ("--device.frame_pool_bytes", str(64 << 20))

    def setUp(self):
        self.viewer = Viewer(self.daemon.address)
        self.addCleanup(self.viewer.stop)
        self.viewer.enter()

    def metric(self, name):
        page = urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=10).read().decode()
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)} (\S+)$", page, re.M))

    def live(self, ascans=64, bscans=16, rate=20000, **more):
        """A scan without an end, whose volumes come often."""
        return self.client.submit_scan(octavo.simulated(3), octavo.raster(ascans, bscans, volumes=0), samples=256, rate_hz=rate, **more).name

    def held(self, ascans=48, bscans=20, volumes=1, **more):
        scan = self.client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(ascans, bscans, volumes=volumes, extent_x_mm=1, extent_y_mm=0.5), samples=256, **more)
        self.client.wait(scan.name)
        return scan.name, [v.name for v in self.client.volumes(scan.name)]


class Frames(ViewerTest):
    def test_pictures_are_those_of_the_volume(self):
        scan, (name,) = self.held()
        volume = self.client.read(name)
        web = self.viewer.socket()
        for product, axis, index, expected in (("MIP", "Z", -1, volume.max(axis=2)), ("BSCAN", "Y", 7, volume[7].T), ("BSCAN", "Y", -1, volume[10].T),
                                               ("BSCAN", "X", 5, volume[:, 5].T)):
            web.open(1, scan, product, axis, index, width=512, encoding="RAW")
            header, data = web.frame()
            np.testing.assert_array_equal(array(header, data), expected, (product, axis, index))
            schema = header["schema"]
            self.assertEqual((header["view"], header["dropped"], header["complete"], schema["product"], schema["encoding"]), (1, 0, True, product, "RAW"))
            self.assertEqual(len(schema["spacing_um"]), 2)
            self.assertEqual(schema["unit"], "dB")
            end = web.text("end")  # the scan has ended, and so does the view
            self.assertEqual((end["view"], end["reason"]), (1, "FINISHED"))

    def test_jpeg_is_the_same_within_its_levels(self):
        scan, (name,) = self.held(ascans=128, bscans=96)
        web = self.viewer.socket()
        web.open(0, scan, encoding="JPEG")
        header, data = web.frame()
        self.assertTrue(header["jpeg"] and data.startswith(b"\xff\xd8"))
        display = header["schema"]["display"]
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("no python3-pil")
        grey = np.asarray(Image.open(io.BytesIO(data)).convert("L")).astype(float)
        stored = display["lo"] + grey / 255 * (display["hi"] - display["lo"])
        exact = np.clip(self.client.read(name).max(axis=2).astype(float), display["lo"], display["hi"])
        self.assertLess(np.abs(stored - exact).mean() / (display["hi"] - display["lo"]), 0.03)

    def test_what_cannot_be_shown_says_why(self):
        scan, _ = self.held()
        web = self.viewer.socket()
        for view, (parent, product, index, reason) in enumerate((("scans/none", "MIP", -1, "NO_SCAN"), (scan, "ANGIOGRAM", -1, "NO_ANGIOGRAM"), (scan, "AIP", -1, "NO_AIP"), (scan, "BSCAN", 999, "BAD_RANGE"))):
            web.open(view % 4, parent, product, "Y" if product == "BSCAN" else "Z", index)
            end = web.text("end")
            self.assertEqual((end["view"], end["reason"]), (view % 4, reason))
            # Of which view of this number it is: a page may have opened another one meanwhile.
            self.assertEqual((end["topic"]["parent"], end["topic"]["product"], end["topic"]["index"]), (parent, product, index))
            self.assertTrue(end["message"])

    def test_a_slab_of_depth(self):
        scan = self.live(ascans=32, bscans=8)
        web = self.viewer.socket()
        web.open(0, scan, slab=[20, 40])
        web.open(1, scan, slab=[20, 129])  # of 128 depths
        frames = {}
        while len(frames) < 3:
            header, data = web.frame()
            frames[header["sequence"]] = (header, array(header, data).copy())
            self.assertEqual((header["view"], header["complete"], header["schema"]["product"]), (0, True, "MIP"))
            web.acknowledge(header)
        # It may have come between the frames.
        end = next((text for text in web.texts if text["type"] == "end"), None) or web.text("end")
        self.assertEqual((end["view"], end["reason"]), (1, "BAD_RANGE"))
        self.assertIn("slab.end is 129", end["message"])
        volume = self.client.volumes(scan)[-1]
        self.assertEqual(header["schema"]["shape"], [8, 32])
        # A slab is darker than all of it.
        web.open(2, scan)
        header, data = web.frame()
        while header["view"] != 2 or not header["complete"]:
            web.acknowledge(header)
            header, data = web.frame()
        self.assertLess(np.mean([picture.mean() for _, picture in frames.values()]), array(header, data).mean(), volume.name)

    def frames(self, product="MIP"):
        """Frames of a product that octavo-web has had."""
        return sum(topic["frames"] for topic in self.viewer.status()["topics"] if topic["product"] == product)

    def test_credits_and_exact_counts(self):
        scan = self.live()
        web = self.viewer.socket()
        web.open(0, scan)
        first, _ = web.frame()
        second, _ = web.frame()
        self.assertEqual(second["sequence"], first["sequence"] + second["dropped"] + 1)
        # Two are on their way: no third one comes without an acknowledgement.
        came = self.frames()
        with self.assertRaises(TimeoutError):
            web.frame(timeout=1)
        until(lambda: self.frames() >= came + 3)
        web.acknowledge(second)  # and with it the first
        headers = [first, second]
        for _ in range(30):
            header, data = web.frame()
            self.assertEqual(len(data), 64 * 16 * np.dtype(DTYPES[header["schema"]["dtype"]]).itemsize)
            self.assertEqual(header["sequence"], headers[-1]["sequence"] + 1 + header["dropped"])
            headers.append(header)
            web.acknowledge(header)
        self.assertGreater(headers[2]["dropped"], 0)  # those of the silence
        self.assertTrue(all(h["server_us"] is not None and h["server_us"] < 5e6 for h in headers))

    def test_a_view_that_is_opened_again_has_credits_of_its_own(self):
        scan = self.live()
        web = self.viewer.socket()
        web.open(0, scan)
        old = [web.frame()[0] for _ in range(2)]  # on their way for ever: nobody acknowledges them
        web.open(0, scan, "BSCAN", "Y")
        new = [web.frame()[0] for _ in range(2)]
        self.assertEqual([header["schema"]["product"] for header in old + new], ["MIP"] * 2 + ["BSCAN"] * 2)
        # What is said of frames of the view before gives no credit.
        for header in old:
            if header["sequence"] not in [other["sequence"] for other in new]:
                web.acknowledge(header)
        came = self.frames("BSCAN")
        with self.assertRaises(TimeoutError):
            web.frame(timeout=1)
        until(lambda: self.frames("BSCAN") >= came + 3)
        web.acknowledge(new[1])
        header, _ = web.frame()
        self.assertEqual(header["sequence"], new[1]["sequence"] + 1 + header["dropped"])
        self.assertGreater(header["dropped"], 0)

    def test_the_only_picture_of_what_has_ended_comes_before_its_end(self):
        """It has to wait while frames of the view before are on their way, and the subscription is over long before."""
        scan, _ = self.held()
        live = self.live()
        web = self.viewer.socket()
        for product, axis in (("MIP", "Z"), ("BSCAN", "Y"), ("BSCAN", "X")):
            web.open(0, live)
            for _ in range(2):
                web.frame()
            web.open(0, scan, product, axis)
            time.sleep(0.5)  # reads nothing meanwhile, not even the ping that says what has arrived
            header, _ = web.frame(timeout=10)
            while header["schema"]["topic"]["parent"] != scan:
                header, _ = web.frame(timeout=10)
            self.assertEqual((header["sequence"], header["schema"]["product"]), (0, product))
            end = web.text("end")
            self.assertEqual((end["view"], end["topic"]["parent"], end["reason"]), (0, scan, "FINISHED"))

    def test_opening_views_over_and_over_brings_no_more_frames(self):
        """Two of the view that was there, and two of the last one: those between them began when nothing had arrived yet."""
        scan = self.live(ascans=128, bscans=32)
        other = self.viewer.socket()
        other.open(0, scan)
        other.frame()  # the subscription is there, with a frame for each view that opens
        for views in ([0], [0, 1, 2, 3, 4], range(100, 200)):
            with self.subTest(views=len(views)):
                web = self.viewer.socket()
                web.open(views[0], scan)
                web.frame()
                for turn in range(200):  # reads nothing meanwhile, not even a ping
                    view = views[turn % len(views)]
                    web.open(view, scan)
                    web.send(dict(type="close", view=view))
                web.open(views[0], scan)
                for _ in range(2):
                    web.frame()  # the last view is not stuck
                count = 2
                with self.assertRaises(TimeoutError):
                    while True:
                        web.frame(timeout=1)
                        count += 1
                self.assertLessEqual(count, 1 + 2 + 2)
                web.close()

    def test_a_slow_page_gets_fewer_frames_and_none_that_is_older(self):
        scan = self.live()
        fast, slow = self.viewer.socket(), self.viewer.socket()
        fast.open(0, scan)
        slow.open(0, scan)
        newest, seen, lags, waiting, taken = 0, [], [], None, 8
        for count in range(10 * taken):
            header, _ = fast.frame()
            newest = max(newest, header["sequence"])
            fast.acknowledge(header)
            if count % taken == 0:  # a page that takes as long for each frame as eight of them do
                if waiting:
                    slow.acknowledge(waiting)
                waiting, _ = slow.frame()
                seen.append(newest)
                lags.append(newest - waiting["sequence"])
        # At most the two that were on their way lie between what it shows and the newest.
        late = [lag - (now - before) for lag, now, before in zip(lags[2:], seen[2:], seen)]
        self.assertLess(np.median(late), 5)

    def test_the_rate_of_a_view(self):
        scan = self.live()
        web = self.viewer.socket()
        web.open(0, scan, rate_hz=5)
        web.acknowledge(web.frame()[0])
        start = time.monotonic()
        for _ in range(12):
            web.acknowledge(web.frame()[0])
        self.assertGreater(time.monotonic() - start, 1.8)  # two may have been on their way
        self.assertLess(time.monotonic() - start, 20)  # 2.4 s where nothing else runs

    def test_resume_leaves_out_what_the_page_has_and_counts_what_it_missed(self):
        scan = self.live()
        web = self.viewer.socket()
        web.open(0, scan)
        header, _ = web.frame()
        keeper = self.viewer.socket()
        keeper.open(0, scan)  # keeps the subscription
        came = self.frames()
        web.close()
        until(lambda: self.frames() >= came + 3)
        again = self.viewer.socket()
        again.open(0, scan, resume=header["sequence"])
        next_header, _ = again.frame()
        self.assertGreater(next_header["dropped"], 0)
        self.assertEqual(next_header["sequence"], header["sequence"] + 1 + next_header["dropped"])
        # Of a scan that has ended: the page has its last frame.
        scan, _ = self.held()
        again.open(1, scan)
        last, _ = again.frame()
        while last["view"] != 1:
            again.acknowledge(last)
            last, _ = again.frame()
        third = self.viewer.socket()
        third.open(1, scan, resume=last["sequence"])
        self.assertEqual(third.text("end")["reason"], "FINISHED")

    def test_one_subscription_for_all_viewers_of_a_topic(self):
        scan = self.live()
        before = self.metric('octavo_subscribers{product="mip"}')
        sockets = [self.viewer.socket() for _ in range(20)]
        for web in sockets:
            web.open(3, scan, encoding="RAW")
        seen = set()
        for web in sockets:
            header, data = web.frame()
            seen.add(header["sequence"])
        self.assertEqual(self.metric('octavo_subscribers{product="mip"}'), before + 1)
        status = self.viewer.status()
        self.assertEqual((status["viewers"], status["views"], status["subscriptions"]), (20, 20, 1))
        sockets[0].open(4, scan, "BSCAN", "Y", -1)
        sockets[1].open(4, scan, encoding="RAW", width=32)  # another size is another topic
        until(lambda: self.viewer.status()["subscriptions"] == 3)
        for web in sockets:
            web.close()
        until(lambda: self.metric('octavo_subscribers{product="mip"}') == before)
        self.assertEqual(self.viewer.status()["subscriptions"], 0)

    def test_readers_that_stop_cost_no_memory(self):
        scan = self.live(ascans=256, bscans=128, rate=100000)
        web = self.viewer.socket()
        web.open(0, scan)
        web.acknowledge(web.frame()[0])
        stopped = [self.viewer.socket(receive_buffer=4096) for _ in range(20)]
        for other in stopped:
            for view in range(4):
                other.open(view, scan)
        until(lambda: self.viewer.status()["views"] == 81)
        sizes, shown = [], 0
        end = time.monotonic() + 8
        while time.monotonic() < end:
            header, _ = web.frame()
            web.acknowledge(header)
            shown += 1
            if shown % 5 == 0:
                sizes.append(self.viewer.status())
        frame = 256 * 128 * 2
        self.assertTrue(all(s["buffered_bytes"] <= 20 * 4 * 2 * frame + (1 << 20) for s in sizes), max(s["buffered_bytes"] for s in sizes))
        early, late = np.median([s["resident_bytes"] for s in sizes[: len(sizes) // 3]]), np.median([s["resident_bytes"] for s in sizes[-len(sizes) // 3:]])
        self.assertLess(late - early, 48 << 20)
        # Who answers no ping for a quarter of a minute is cut off.
        until(lambda: self._drain(web) and self.viewer.status()["viewers"] == 1, seconds=60)

    def _drain(self, web):
        web.acknowledge(web.frame()[0])
        return True

    def test_the_encoding_follows_the_connection(self):
        scan = self.live(ascans=256, bscans=64)
        web = self.viewer.socket()
        web.open(0, scan)
        header, _ = web.frame()
        self.assertFalse(header["jpeg"])
        for _ in range(200):  # a connection on which each frame takes 50 ms: 64 KiB in 50 ms are 10 Mbit/s
            time.sleep(0.05)
            web.acknowledge(header, painted_ms=0)
            header, _ = web.frame()
            if header["jpeg"]:
                break
        self.assertTrue(header["jpeg"])
        sequence = header["sequence"]
        for _ in range(200):  # the same, but it is the page that is slow: fast again
            time.sleep(0.05)
            web.acknowledge(header, painted_ms=60)
            header, _ = web.frame()
            self.assertEqual(header["sequence"], sequence + 1 + header["dropped"])
            sequence = header["sequence"]
            if not header["jpeg"]:
                break
        self.assertFalse(header["jpeg"])


class Turns(ViewerTest):
    """Pictures and voxel reads: 6 at once, 4 of one browser; 64 wait, 16 of one browser."""

    def browser(self):
        """The cookie of one more browser."""
        self.viewer.enter(self.viewer.invitation().partition("/#token=")[2])
        return self.viewer.cookie

    def ask(self, cookie, path, receive_buffer=None):
        """A request of which nothing is read."""
        peer = socket.socket()
        self.addCleanup(peer.close)
        if receive_buffer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        peer.settimeout(30)
        peer.connect(("127.0.0.1", self.viewer.port))
        peer.sendall(f"GET {path} HTTP/1.1\r\nHost: {self.viewer.host}\r\nCookie: {cookie}\r\n\r\n".encode())
        return peer

    def counts(self, running, waiting):
        until(lambda: self.viewer.status()["bulk"] == {"running": running, "waiting": waiting}, seconds=30)

    def answer(self, peer):
        return peer.recv(12).decode()

    def picture(self, cookie):
        status, headers, body = self.viewer.request("GET", self.small, headers={"Cookie": cookie}, cookie=False)
        return status, (json.loads(body)["error"]["reason"] if status != 200 else ""), headers["Retry-After"]

    def test_one_browser_does_not_keep_the_others_waiting(self):
        scan = self.client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(256, 128), samples=1024)
        self.client.wait(scan.name)
        name = self.client.volumes(scan.name)[0].name
        large, self.small = f"/api/{name}/voxels", f"/api/{name}/picture?rendering=plane&size=32"
        browsers = [self.browser() for _ in range(6)]
        first, second = browsers[:2]
        stalled = [self.ask(first, large, 4096) for _ in range(4)]
        self.counts(4, 0)
        mine = [self.ask(first, self.small) for _ in range(16)]
        self.counts(4, 16)
        self.assertEqual(self.picture(second), (200, "", None))
        self.assertEqual(self.picture(first), (429, "TOO_MANY", "1"))
        # Who goes away while he waits leaves his place.
        mine.pop().close()
        self.counts(4, 15)
        others = [self.ask(second, large, 4096) for _ in range(2)]
        self.counts(6, 15)
        theirs = [self.ask(browser, self.small) for browser in browsers[2:5] for _ in range(16)] + [self.ask(first, self.small)]
        self.counts(6, 64)
        self.assertEqual(self.picture(browsers[5]), (503, "BUSY", "1"))
        self.assertEqual(self.picture(first), (429, "TOO_MANY", "1"))
        self.assertEqual(self.viewer.request("GET", "/api/status")[0], 200)  # what is small has no turns
        # The next turns are those of all browsers that wait: each gets one before the first gets its second.
        others.pop().close()
        for peer in (theirs[0], theirs[16], theirs[32]):
            self.assertEqual(self.answer(peer), "HTTP/1.1 200")
        for peer in stalled + others:
            peer.close()
        self.counts(0, 0)
        self.assertEqual({self.answer(peer) for peer in mine + [theirs[1], theirs[17], theirs[-1]]}, {"HTTP/1.1 200"})
        self.assertEqual(self.picture(first), (200, "", None))


class What(ViewerTest):
    def test_scans_volumes_and_operations_are_told_as_they_change(self):
        web = self.viewer.socket()
        until(lambda: self._told(web) and web.daemon and web.daemon["up"])
        scan, names = self.held(volumes=2, title="told")
        until(lambda: self._told(web) and set(names) <= set(web.state["volumes"]) and all(web.state["volumes"][n]["state"] == "HELD" for n in names))
        row = web.state["volumes"][names[0]]
        self.assertEqual((row["title"], row["shape"], row["axes"], row["tier"], row["parent"], row["lengths"][:2]), ("told", [20, 48, 128], ["y", "x", "z"], "DEVICE", scan, [True, True]))
        self.assertAlmostEqual(row["held"] / 1000, time.time(), delta=60)
        until(lambda: self._told(web) and web.state["scans"].get(scan, {}).get("state") == "DONE")
        self.assertEqual(web.state["scans"][scan]["shape"], [20, 48])
        status, answer = self.viewer.call("VolumeService/CommitVolume", name=names[0], options=dict(destination="told_{index}", format="FORMAT_NPY"), wait=dict(seconds=0))
        self.assertEqual(status, 200)
        operation = answer["operation"]["name"]
        until(lambda: self._told(web) and web.state["operations"].get(operation, {}).get("state") == "SUCCEEDED" and names[0] not in web.state["volumes"])
        path = web.state["operations"][operation]["path"]
        self.assertTrue(os.path.isfile(path))
        self.assertEqual(self.viewer.call("VolumeService/DiscardVolume", name=names[1])[0], 200)
        until(lambda: self._told(web) and names[1] not in web.state["volumes"])

    def _told(self, web):
        try:
            while True:
                web.message(timeout=0.05)
        except TimeoutError:
            return True

    def test_errors_of_the_daemon_reach_the_page(self):
        _, (name,) = self.held()
        status, body = self.viewer.call("VolumeService/DiscardVolume", name="volumes/none")
        self.assertEqual((status, body["error"]["reason"]), (404, "NO_VOLUME"))
        status, body = self.viewer.call("VolumeService/CommitVolume", name=name, options=dict(destination="{nonsense}"))
        self.assertEqual((status, body["error"]["field"]), (400, "options.destination"))
        self.assertIn("{nonsense}", body["error"]["message"])
        status, _, body = self.viewer.request("GET", "/api/volumes/none/picture")
        self.assertEqual((status, json.loads(body)["error"]["reason"]), (404, "NO_VOLUME"))

    def test_pictures_of_volumes(self):
        scan, (name,) = self.held()
        digest = self.client.volume(name).digest
        status, headers, body = self.viewer.request("GET", f"/api/{name}/picture?rendering=max&axis=z&size=32&digest={digest}")
        self.assertEqual((status, headers["Content-Type"], body[:8]), (200, "image/png", b"\x89PNG\r\n\x1a\n"))
        self.assertLessEqual(int.from_bytes(body[16:20], "big"), 32)
        self.assertEqual(self.viewer.request("GET", f"/api/{name}/picture?rendering=max&axis=z&size=32&digest={digest}", headers={"If-None-Match": headers["ETag"]})[0], 304)
        for query in ("rendering=all", "axis=q", "size=1", "size=1e3", "size=99999", "more=1", "rendering=plane&index=-2"):
            self.assertEqual(self.viewer.request("GET", f"/api/{name}/picture?{query}")[0], 400, query)
        self.assertEqual(self.viewer.request("GET", f"/api/{name}/picture?rendering=plane&axis=y&index=999")[0], 400)  # the daemon's own answer

    def test_voxels_and_ranges_of_them(self):
        scan, (name,) = self.held()
        volume = self.client.read(name)
        whole = volume.tobytes()
        status, headers, body = self.viewer.request("GET", f"/api/{name}/voxels")
        self.assertEqual((status, headers["X-Shape"], np.dtype(DTYPES[headers["X-Dtype"]]), body == whole), (200, "20,48,128", volume.dtype, True))
        for text, first, last in (("0-0", 0, 0), ("1-100000", 1, 100000), (f"{len(whole) - 1}-", len(whole) - 1, len(whole) - 1), ("-7", len(whole) - 7, len(whole) - 1), ("12345-", 12345, len(whole) - 1),
                                  (f"5-{len(whole) * 2}", 5, len(whole) - 1)):
            status, ranged, body = self.viewer.request("GET", f"/api/{name}/voxels", headers={"Range": f"bytes={text}"})
            self.assertEqual((status, ranged["Content-Range"], body == whole[first:last + 1]), (206, f"bytes {first}-{last}/{len(whole)}", True), text)
        self.assertEqual(self.viewer.request("GET", f"/api/{name}/voxels", headers={"Range": f"bytes={len(whole)}-"})[0], 416)
        self.assertEqual(self.viewer.request("GET", f"/api/{name}/voxels", headers={"Range": "lines=1-2"})[0], 200)
        self.assertEqual(self.viewer.request("GET", f"/api/{name}/voxels", headers={"Range": "bytes=0-1", "If-Range": '"other"'})[0], 200)
        self.assertEqual(self.viewer.request("GET", f"/api/{name}/voxels", headers={"If-None-Match": headers["ETag"]})[0], 304)
        status, headers, body = self.viewer.request("GET", f"/api/{name}/voxels?plane=7")
        self.assertEqual((status, headers["X-Shape"], body == volume[7].tobytes()), (200, "1,48,128", True))
        status, headers, body = self.viewer.request("GET", f"/api/{name}/voxels?plane=7&downsample=2&method=mean")
        self.assertEqual((status, headers["X-Shape"], headers["X-Dtype"]), (200, "1,24,64", "F32"))
        np.testing.assert_allclose(np.frombuffer(body, np.float32).reshape(24, 64), volume[7].astype(float).reshape(24, 2, 64, 2).mean(axis=(1, 3)), rtol=1e-6)
        for query in ("plane=20", "plane=-1", "plane=x", "downsample=3", "downsample=128", "method=sum", "lo=1", "lo=2&hi=1", "lo=a&hi=b", "start=1"):
            self.assertEqual(self.viewer.request("GET", f"/api/{name}/voxels?{query}")[0], 400, query)

    def test_coarse_voxels(self):
        scan, (name,) = self.held()
        volume = self.client.read(name)
        status, headers, body = self.viewer.request("GET", f"/api/{name}/voxels?downsample=4")
        if status == 501:
            self.assertEqual(json.loads(body)["error"]["reason"], "NO_COARSE_READ")
            self.skipTest("this octavod does not read coarsely")
        self.assertEqual((status, headers["X-Shape"]), (200, "5,12,32"))
        coarse = volume.reshape(5, 4, 12, 4, 32, 4).max(axis=(1, 3, 5))
        np.testing.assert_array_equal(np.frombuffer(body, volume.dtype).reshape(5, 12, 32), coarse)
        plane = 12 * 32 * volume.itemsize
        status, _, part = self.viewer.request("GET", f"/api/{name}/voxels?downsample=4", headers={"Range": f"bytes={plane + 3}-{3 * plane + 4}"})
        self.assertEqual((status, part), (206, body[plane + 3:3 * plane + 5]))
        status, headers, body = self.viewer.request("GET", f"/api/{name}/voxels?downsample=2&lo=0&hi=100")
        self.assertEqual((status, headers["X-Dtype"], len(body)), (200, "U8", 10 * 24 * 64))


class Restart(unittest.TestCase):
    def test_a_daemon_that_is_killed_and_comes_back(self):
        daemon = Daemon()
        viewer = Viewer(daemon.address)
        try:
            viewer.enter()
            web = viewer.socket()
            with daemon.client() as client:
                scan = client.submit_scan(octavo.simulated(3), octavo.raster(64, 16, volumes=0), samples=256, rate_hz=20000).name
                web.open(0, scan)
                web.acknowledge(web.frame()[0])
            daemon.kill()
            until(lambda: not self._next(web, "daemon")["up"])
            self.assertIsNone(viewer.process.poll())
            again = Daemon("--listen.tcp", daemon.address, directory=daemon.directory)
            try:
                until(lambda: self._next(web, "daemon")["up"])  # why it is away may have been told in other words meanwhile
                # The scan went with its daemon: its view ends, and says so.
                self.assertTrue(any(t["type"] == "end" and t["reason"] == "NO_SCAN" for t in web.texts) or web.text("end")["reason"] == "NO_SCAN")
                # Its history may have had the time to write it down.
                until(lambda: self._told_all(web) and web.state["scans"].get(scan, {"state": "LOST"})["state"] == "LOST")
                with again.client() as client:
                    scan = client.submit_scan(octavo.simulated(3), octavo.raster(64, 16, volumes=0), samples=256, rate_hz=20000).name
                    web.open(0, scan)
                    header, _ = web.frame()
                    self.assertEqual(header["dropped"], 0)
                    client.cancel(scan)
            finally:
                again.stop()
                again.remove()
        finally:
            viewer.stop()
            daemon.remove()

    def _next(self, web, kind):
        return web.text(kind)

    def _told_all(self, web):
        try:
            while True:
                web.message(timeout=0.2)
        except TimeoutError:
            return True


if __name__ == "__main__":
    unittest.main()
