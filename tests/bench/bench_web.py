#!/usr/bin/env python3
"""octavo-web as browsers see it: from the last record of a volume to the bytes at a viewer's socket, and many viewers beside a scan.
One JSON object a line; what must hold is checked (one subscription, exact counts), what is measured is told.
  OCTAVO_BUILD_DIR=build/default tests/bench/bench_web.py [--viewers 50] [--seconds 300] [--latency-seconds 20] [--alone-seconds 60] [--share 0.25]
The scan runs at `share` of what the machine does when it does nothing else. Viewers acknowledge on the wire, as browsers do; what
a browser needs to paint is measured apart, with --paint-seconds.
"""

import argparse
import json
import os
import re
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

import numpy as np  # noqa: E402
from harness import Daemon, octavo, until  # noqa: E402
from web_viewer import HEADER, Viewer  # noqa: E402

SIDE = 512
WARM_SECONDS = 3
U8 = dict(processing=octavo.processing(dtype="u8"))
# Of a frame of 64 KiB or more: the protocol's header and the web socket's.
OVERHEAD = HEADER.size + 10


def line(name, **values):
    print(json.dumps({"name": name, **values}), flush=True)


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentiles(ns):
    return {f"p{p}_ms": round(float(np.percentile(ns, p)) / 1e6, 3) for p in (50, 99)}


class Driver:
    """A process with some of the viewers: one would not keep up with all of them."""

    def __init__(self, viewer, count):
        self.count = count
        read, self._go = os.pipe()
        self._told, write = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(read)
            os.close(write)
            return
        os.close(self._go)
        with os.fdopen(read) as orders, os.fdopen(write, "w") as told:
            order = json.loads(orders.readline())
            json.dump(self._drive(viewer, **order), told)
        os._exit(0)

    def _drive(self, viewer, scan, seconds):
        sockets = [viewer.socket() for _ in range(self.count)]
        for web in sockets:
            web.open(0, scan, width=SIDE, encoding="RAW", rate_hz=60)
        last, frames, dropped, ages = [None] * self.count, 0, 0, []
        begun = time.monotonic()
        while time.monotonic() < begun + seconds:
            for i, web in enumerate(sockets):
                header, data = web.frame()
                assert len(data) == SIDE * SIDE, len(data)
                if last[i] is not None:
                    assert header["sequence"] == last[i] + 1 + header["dropped"], header
                    dropped += header["dropped"]
                last[i] = header["sequence"]
                frames += 1
                ages.append(header["bridge_us"] * 1000)
                web.acknowledge(header)
        took = time.monotonic() - begun
        for web in sockets:
            web.close()
        return dict(frames=frames, dropped=dropped, seconds=took, ages=ages)

    def begin(self, scan, seconds):
        with os.fdopen(self._go, "w") as orders:
            orders.write(json.dumps(dict(scan=scan, seconds=seconds)) + "\n")

    def end(self):
        with os.fdopen(self._told) as told:
            result = json.load(told)
        os.waitpid(self._pid, 0)
        return result


def latency(daemon, client, viewer, rate, seconds):
    """Of complete volumes' projections. The daemon stamps the last record with a clock that all processes of the host share."""
    scan = client.submit_scan(octavo.simulated(1), octavo.raster(SIDE, SIDE, volumes=0), samples=512, rate_hz=rate, **U8).name
    acquired, by_grpc, by_web = {}, {}, {}

    def subscribe():
        with daemon.client() as own:
            for frame in own.subscribe(scan, "mip", image=dict(max_width=SIDE, max_height=SIDE, depth_down=True)):
                if frame.complete:
                    acquired[frame.sequence] = frame.acquired_ns
                    by_grpc[frame.sequence] = time.monotonic_ns()

    thread = threading.Thread(target=subscribe)
    thread.start()
    web = viewer.socket()
    web.open(0, scan, width=SIDE, encoding="RAW", rate_hz=60)
    # The first frames find buffers of the kernel that grow with the connection.
    inside, begin = [], time.monotonic() + WARM_SECONDS
    end = begin + seconds
    while time.monotonic() < end:
        header, _ = web.frame()
        if header["complete"] and time.monotonic() > begin:
            by_web[header["sequence"]] = time.monotonic_ns()
            inside.append(header["bridge_us"] * 1000)
        web.acknowledge(header)
    web.close()
    client.stop(scan)
    thread.join(30)
    both = [s for s in by_web if s in acquired]
    line("last record to socket", rate_hz=round(rate), volumes=len(both), in_octavo_web=percentiles(inside),
         grpc_client=percentiles([by_grpc[s] - acquired[s] for s in both]), viewer=percentiles([by_web[s] - acquired[s] for s in both]))


def painting(client, viewer, rate, seconds):
    """From the arrival of a frame in the page until it is painted, as the page itself tells octavo-web, in Debian's Chromium with software GL."""
    from chromium import Chromium  # needs no browser unless it is asked for

    scan = client.submit_scan(octavo.simulated(1), octavo.raster(SIDE, SIDE, volumes=0), samples=512, rate_hz=rate, **U8).name
    with Chromium() as browser:
        page = browser.open(viewer.invitation(), fresh=True)
        page.wait("document.querySelector('#enface canvas')?.dataset.parent === " + json.dumps(scan), what="the page shows the scan")
        page.evaluate("""(() => { const send = WebSocket.prototype.send; window.paints = [];
            WebSocket.prototype.send = function (text) { const told = JSON.parse(text); if (told.type === "ack") paints.push([told.view, told.painted_ms]); return send.call(this, text); }; })()""")
        time.sleep(seconds)
        paints = json.loads(page.evaluate("JSON.stringify(paints)"))
        latency = page.evaluate("[...document.querySelectorAll('#enface .counters dd')].map(e => e.textContent).join('; ')")
        page.close()
    client.stop(scan)
    for view, name in ((1, "en face"), (2, "B-scan")):
        line("socket to painted pixel", picture=name, rate_hz=round(rate), frames=sum(v == view for v, _ in paints), **percentiles([ms * 1e6 for v, ms in paints if v == view]), **(dict(page_says=latency) if view == 1 else {}))


def many(daemon, client, viewer, drivers, rate, share, seconds):
    """Without drivers the same scan alone: what the machine itself drops."""
    scan = client.submit_scan(octavo.simulated(1), octavo.raster(SIDE, SIDE, volumes=0), samples=512, rate_hz=rate, **U8).name
    viewers = sum(driver.count for driver in drivers)
    for driver in drivers:
        driver.begin(scan, seconds + 2)
    # What other pictures were shown before is subscribed to for some seconds more.
    until(lambda: viewer.status()["views"] == viewers and viewer.status()["subscriptions"] == min(viewers, 1) and client.scan(scan).records > 0, 60)
    cpu = cpu_seconds(viewer.process.pid), cpu_seconds(daemon.process.pid)
    begun, before, resident, subscriptions, drops = time.monotonic(), client.scan(scan), [], set(), {}
    while time.monotonic() < begun + seconds:
        time.sleep(min(1, seconds / 10))
        status = viewer.status()
        resident.append(status["resident_bytes"])
        subscriptions.add(status["subscriptions"])
        drops[round(time.monotonic() - begun)] = client.scan(scan).blocks_dropped
    now, took = client.scan(scan), time.monotonic() - begun
    spent = cpu_seconds(viewer.process.pid) - cpu[0], cpu_seconds(daemon.process.pid) - cpu[1]
    page = urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10).read().decode()
    subscribers = float(re.search(r'^octavo_subscribers\{product="mip"\} (\S+)', page, re.M)[1])
    assert not viewers or (subscriptions, subscribers) == ({1}, 1), (subscriptions, subscribers)
    results = [driver.end() for driver in drivers]
    scanned = dict(seconds=round(took), share=share, ascans_per_second=round((now.records - before.records) / took), wanted=round(rate),
                   ratio=round((now.records - before.records) / took / rate, 4), blocks_dropped=now.blocks_dropped,
                   dropped_at_s=[second for (second, count), earlier in zip(drops.items(), [0, *drops.values()]) if count > earlier], octavod_cores=round(spent[1] / took, 2))
    client.stop(scan)
    if not viewers:
        return line("the scan alone", **scanned)
    frames = sum(result["frames"] / result["seconds"] for result in results)
    third = len(resident) // 3
    line("many viewers", viewers=viewers, **scanned, frames_per_second_each=round(frames / viewers, 1),
         mb_per_second_each=round(frames / viewers * (SIDE * SIDE + OVERHEAD) / 1e6, 2), mb_per_second=round(frames * (SIDE * SIDE + OVERHEAD) / 1e6),
         left_out=sum(result["dropped"] for result in results), in_octavo_web=percentiles(sum((result["ages"] for result in results), [])),
         resident_mib=dict(second_third=int(np.median(resident[third:2 * third])) >> 20, last_third=int(np.median(resident[-third:])) >> 20, most=max(resident) >> 20),
         octavo_web_cores=round(spent[0] / took, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--latency-seconds", type=float, default=20)
    parser.add_argument("--alone-seconds", type=float, default=0, help="the same scan before, without viewers")
    parser.add_argument("--paint-seconds", type=float, default=0, help="a page in Chromium shows the scan for so long")
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--drivers", type=int, default=max(1, min(8, (os.cpu_count() or 1) // 2)), help="processes that play the viewers")
    given = parser.parse_args()
    daemon = Daemon("--device.frame_pool_bytes", str(256 << 20))
    viewer = None
    try:
        viewer = Viewer(daemon.address)
        viewer.enter()
        # Before this process has threads of gRPC.
        shares = [len(part) for part in np.array_split(np.arange(given.viewers), min(given.drivers, given.viewers))]
        drivers = [Driver(viewer, share) for share in shares]
        with daemon.client() as client:
            measured = client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(SIDE, 4 * SIDE, volumes=2), samples=512, **U8)
            client.wait(measured.name)
            most = client.scan(measured.name).records_per_second
            line("machine", ascans_per_second=round(most), backend=client.devices()[0].backend, device=client.devices()[0].model)
            for volume in client.volumes(measured.name):
                volume.discard()
            rate = most * given.share
            latency(daemon, client, viewer, rate, given.latency_seconds)
            if given.paint_seconds > 0:
                painting(client, viewer, rate, given.paint_seconds)
            if given.alone_seconds > 0:
                many(daemon, client, viewer, [], rate, given.share, given.alone_seconds)
            many(daemon, client, viewer, drivers, rate, given.share, given.seconds)
    finally:
        if viewer is not None:
            viewer.stop()
        daemon.remove()


if __name__ == "__main__":
    main()
