"""devices/host beside the devices of a daemon (two host devices, or those of OCTAVO_DEVICE_BACKEND): what
clients do with it."""

import os
import unittest
import urllib.request

import numpy as np

from harness import DaemonTest, octavo
from octavo.v1 import scan_pb2, tomography_pb2

BACKEND = os.environ.get("OCTAVO_DEVICE_BACKEND", "host")
HOST = "devices/host"
ANGLES, ROWS, COLUMNS = 45, 3, 40


def projections():
    """A disc off the axis, as minus logarithms [angle, row, column], and its angles."""
    theta = np.linspace(0, np.pi, ANGLES, endpoint=False)
    column = np.arange(COLUMNS) - (COLUMNS - 1) / 2
    distance = column - 5 * np.cos(theta)[:, None]
    line = 0.02 * np.sqrt(np.maximum(0, 9.0 ** 2 - distance ** 2))
    return np.repeat(line[:, None, :], ROWS, axis=1).astype(np.float32), theta


class HostForJobs(DaemonTest):
    flags = ("--device.backend", BACKEND, *(("--device.host_devices", "2") if BACKEND == "host" else ()), "--device.host_for_jobs", "true",
             "--device.host_for_jobs_bytes", str(128 << 20), "--device.memory_bytes", str(256 << 20), "--device.frame_pool_bytes", str(16 << 20))

    def setUp(self):
        super().setUp()
        self.tomo, self.theta = projections()

    def numbered(self):
        return [one.name for one in self.client.devices() if one.name != HOST]

    def test_every_list_shows_it(self):
        devices = self.client.devices()
        self.assertEqual([one.name for one in devices], [f"devices/{n}" for n in range(len(devices) - 1)] + [HOST])
        self.assertEqual((devices[-1].backend, devices[-1].budget_bytes), ("host", 128 << 20))
        self.assertEqual(devices[0].backend, BACKEND)
        memory = self.client.memory()
        self.assertEqual(memory.devices[-1].name, HOST)
        for command in (("info",), ("devices",), ("memory",)):
            self.assertIn(HOST, self.command(*command).stdout, command)
        page = urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=10).read().decode()
        self.assertIn(f'octavo_device_healthy{{device="{HOST}",backend="host"}} 1\n', page)
        self.assertRegex(page, rf'octavo_device_memory_bytes{{device="{HOST}",kind="[a-z]+"}}')
        check = self.client.channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes)
        self.assertEqual(check(bytes([0x0A, len(HOST)]) + HOST.encode(), timeout=10), b"\x08\x01")

    def test_recon_runs_where_its_device_says(self):
        made = {}
        for device in (None, "devices/0", "host", HOST, "cpu" if BACKEND == "cuda" else "auto"):
            jobs = []
            made[device] = octavo.recon(self.tomo, self.theta, algorithm="fbp", sinogram_order=False, device=device, client=self.client, progress=jobs.append)
            self.assertEqual(jobs[-1].device == HOST, device in ("host", HOST, "cpu"), device)
        for device, slices in made.items():
            np.testing.assert_allclose(slices, made[None], atol=1e-4 * np.abs(made[None]).max(), err_msg=str(device))
        self.assertGreater(made["host"].max(), 0.005)

    def test_projections_and_a_job_by_its_name(self):
        image = octavo.recon(self.tomo, self.theta, algorithm="fbp", device="host", client=self.client)
        here, there = (octavo.project(image, self.theta, device=device, client=self.client) for device in ("devices/0", "host"))
        np.testing.assert_allclose(there, here, atol=1e-4 * np.abs(here).max())
        buffer = self.client.buffers.put(self.tomo)
        try:
            work = octavo.tomography(tomography_pb2.ProjectionArrays(projections=buffer.name), angles=self.theta,
                                     prepare=octavo.preparation(already_sinograms=True))
            for word in ("HOST", "Cpu" if BACKEND == "cuda" else "devices/host"):
                other = self.client.wait_job(self.client.submit_job(work, device=word).name)
                self.assertEqual(other.device, HOST, word)
                self.client.discard(other.volume_names[0])
            with self.assertRaisesRegex(ValueError, "device is 'hosst'; expected gpu, cpu, host, auto or devices/<n>; did you mean 'host'"):
                self.client.submit_job(work, device="hosst")
            job = self.client.wait_job(self.client.submit_job(work, device="host").name)
            self.assertEqual(job.device, HOST)
            volume = self.client.volume(job.volume_names[0])
            self.assertEqual(volume.device, HOST)
            self.client.discard(volume.name)
        finally:
            buffer.destroy()

    def test_scans_and_buffers_are_refused(self):
        numbered = "devices/0" if len(self.numbered()) == 1 else f"devices/0 to devices/{len(self.numbered()) - 1}"
        for submit in (self.client.submit_scan, self.client.plan_scan):
            with self.assertRaises(octavo.OctavoError) as refused:
                submit(octavo.simulated(1, fast=True), octavo.raster(16, 8), samples=64, device="host")
            self.assertIn(f"device: is 'devices/host', which is for tomography and projection jobs, not for scans; allowed are auto, {numbered}",
                          str(refused.exception))
        with self.assertRaises(octavo.OctavoError) as refused:
            self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8), samples=64, spread=scan_pb2.Spread(devices=["devices/0", HOST]))
        self.assertIn("spread.devices: is 'devices/host', which is for", str(refused.exception))
        with self.assertRaises(octavo.OctavoError) as refused:
            self.client.buffers.create((4, 4), devices=[HOST])
        self.assertIn(f"placement.devices[0]: is 'devices/host', which has no buffers; allowed are {numbered}", str(refused.exception))
        buffer = self.client.buffers.create((4, 4))
        self.assertEqual([one.device for one in buffer.replicas], self.numbered())
        buffer.destroy()
        done = self.command("scan", "submit", "--source", "simulated", "--samples", "64", "--ascans", "16", "--bscans", "8", "--device", "host", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("device: is 'devices/host', which is for tomography and projection jobs", done.stderr)
        self.assertEqual(self.client.scans(), [])

    def test_the_command_line_names_it(self):
        np.save(os.path.join(self.daemon.root, "scan.npy"), self.tomo)
        np.save(os.path.join(self.daemon.root, "theta.npy"), np.rad2deg(self.theta))
        made = []
        for device, name in (("0", "devices/0"), ("host", HOST), ("HOST", HOST)):
            self.command("recon", "scan.npy", "--angles-file", "theta.npy", "--sinograms", "--center", "middle", "--device", device, "-o", f"made_{device}.npy")
            self.assertEqual(self.client.jobs()[0].device, name)
            made.append(np.load(os.path.join(self.daemon.root, f"made_{device}.npy")))
        for other in made[1:]:
            np.testing.assert_allclose(other, made[0], atol=1e-4 * np.abs(made[0]).max())


if __name__ == "__main__":
    unittest.main()
