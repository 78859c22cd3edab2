"""Mistakes of users with octavo from Node; protobuf would silently ignore most of them. Row: the
call (`o` is connected, `v` names a held volume) and the words that its error must have. The code is
gRPC's INVALID_ARGUMENT unless the row names another one."""

import json
import os
import subprocess
import unittest

import node_client
from harness import SOURCE, DaemonTest, octavo

MISTAKES = [
    # -- fields that do not exist
    ("o.scans.submitScan({ spec: { simulatd: {} } })", ["spec.simulatd is no field of ScanSpec", "simulated, replay, push", "did you mean simulated"]),
    ("o.scans.submitScan({ spec: { simulated: { sed: 1 } } })", ["spec.simulated.sed is no field of Simulated", "seed"]),
    ("o.scans.submitScan({ simulated: {} })", ["simulated is no field of SubmitScanRequest", "spec, request_id, session_secret"]),
    ("o.scans.submitScan({ spec: { acquisition: { samplesPerRecord: 512 } } })", ["samplesPerRecord is no field", "samples_per_record"]),
    ("o.scans.submitScan({ spec: { source: { simulated: {} } } })", ["spec.source is", "simulated, replay, push, camera, ring"]),
    ("o.subscribe({ product: ['MIP'] }).next()", ["product is no field of SubscribeRequest", "did you mean products"]),
    ("o.subscribe({ products: ['MIP'], image: { colormap: 'VIRIDIS' } }).next()", ["image.colormap is no field", "colour_map"]),
    ("o.commit(v, { destination: 'x', formt: 'NPY' })", ["options.formt is no field of CommitOptions", "did you mean format"]),
    ("o.volumes.listVolumes({ state: ['HELD'] })", ["state is no field", "states"]),
    ("o.volumes.deriveVolume({ name: v, operations: [{ mip: { axis: 2 } }] })", ["operations[0].mip is no field of VolumeOperation", "cartesian, angiography"]),
    # -- names of enum values
    ("o.scans.submitScan({ spec: { processing: { window: 'HANNING' } } })", ['spec.processing.window is "HANNING"', "RECT, HANN, HAMMING"]),
    ("o.scans.submitScan({ spec: { acquisition: { raw_type: 'UINT16' } } })", ["raw_type", "U8, U16"]),
    ("o.subscribe({ products: ['MIPP'] }).next()", ['products[0] is "MIPP"', "MIP, AIP, BSCAN", "did you mean MIP"]),
    ("o.subscribe({ products: ['MIP'], encoding: 'JPG' }).next()", ['encoding is "JPG"', "RAW, PNG, JPEG"]),
    ("o.volumes.listVolumes({ states: ['KEPT'] })", ['states[0] is "KEPT"', "ACQUIRING, HELD"]),
    ("o.volumes.spillVolume({ name: v, tier: 'RAM' })", ['tier is "RAM"', "DEVICE, HOST, DISK"]),
    ("o.volumes.spillVolume({ name: v, tier: 77 })", ["tier is 77", "DEVICE, HOST, DISK"]),
    ("o.commit(v, { destination: 'x', format: 'DICOM' })", ['format is "DICOM"', "OME_ZARR_05, NPY"]),
    # -- values
    ("o.scans.submitScan({ spec: { simulated: { seed: -1 } } })", ["spec.simulated.seed is -1", "a whole number from 0 to 18446744073709551615"]),
    ("o.scans.submitScan({ spec: { simulated: { seed: 1.5 } } })", ["seed is 1.5", "a whole number"]),
    ("o.scans.submitScan({ spec: { title: 5 } })", ["spec.title is 5", "text"]),
    ("o.scans.submitScan({ spec: { simulated: { as_fast_as_possible: 'no' } } })", ['as_fast_as_possible is "no"', "true or false"]),
    ("o.scans.submitScan({ spec: { simulated: { noise_counts: '2' } } })", ['noise_counts is "2"', "a number"]),
    ("o.scans.submitScan({ spec: { simulated: {}, replay: { path: 'x' } } })", ["simulated and replay are both given", "one of simulated, replay"]),
    ("o.scans.submitScan(5)", ["the request is 5", "spec, request_id, session_secret"]),
    ("o.scans.submitScan({ spec: 'simulated' })", ['spec is "simulated"', "an object with the fields of ScanSpec"]),
    ("o.volumes.listVolumes({ states: 'HELD' })", ['states is "HELD"', "an array"]),
    ("o.read(v, 3)", ["start is 3", "an array"]),
    ("o.read(v, ['a'])", ['start[0] is "a"', "a whole number"]),
    ("o.read(7)", ["name is 7", "text"]),
    ("o.scans.submitScn({})", ["the service has no submitScn", "submitScan, planScan", "did you mean submitScan"]),
    ("connect('localhost')", ['address is "localhost"', "host:port", "unix:/path"]),
    ("connect('http://localhost:50051')", ['address is "http://localhost:50051"', "host:port"]),
    ("connect('127.0.0.1:99999')", ['address is "127.0.0.1:99999"; allowed host:port with port 1 to 65535, or unix:/path']),
    ("connect('127.0.0.1:abc')", ['address is "127.0.0.1:abc"', "port 1 to 65535"]),
    ("connect('127.0.0.1:1 ')", ['address is "127.0.0.1:1 "', "port 1 to 65535"]),
    ("connect('unix:')", ['address is "unix:"', "unix:/path"]),
    # -- errors from the server
    ("o.volumes.getVolume({ name: 'volumes/none' })", ["no volume volumes/none"], 5),
]
SCRIPT = """
import { readFileSync } from "node:fs";
import { connect } from "./octavo.mjs";
const { address, v, calls } = JSON.parse(readFileSync(0));
const o = connect(address);
const said = [];
for (const call of calls) {
  try {
    await eval(`(async () => ${call})()`);
    said.push({});
  } catch (error) {
    said.push({ message: error.message, code: error.code });
  }
}
o.close();
console.log(JSON.stringify(said));
"""
# These must pass unchanged: names in small letters, big numbers, empty values, messages of the
# server.
RIGHT = """
import { readFileSync } from "node:fs";
import { connect } from "./octavo.mjs";
const { address, v } = JSON.parse(readFileSync(0));
const o = connect(address);
const { volume } = await o.volumes.getVolume({ name: v });
const { scan } = await o.scans.getScan({ name: volume.parent });
const planned = await o.scans.planScan({ spec: { ...scan.spec, title: "again" } });
const again = await o.scans.planScan({ spec: { simulated: { seed: 2n ** 63n }, acquisition: { samples_per_record: 256, raw_type: "u16" },
  pattern: { raster: { ascans_per_bscan: 16, bscans_per_volume: 8, volumes: 1 } }, processing: { window_values: new Float32Array(256).fill(1) } } });
const { shape } = await o.read(volume);
const jobs = await o.jobs.listJobs({});
o.close();
console.log(JSON.stringify({ admitted: [planned.report.admitted, again.report.admitted], shape, jobs: jobs.jobs.length }));
"""


class NodeMistakes(DaemonTest):
    def run_script(self, script, **given):
        node, work = node_client.install(self)
        scan = self.client.wait(self.client.submit_scan(octavo.simulated(seed=1, fast=True), octavo.raster(16, 8, volumes=1), samples=256))
        given = dict(address=self.daemon.address, v=scan.volume_names[0], **given)
        done = subprocess.run([node, "--input-type=module", "-e", script], input=json.dumps(given), capture_output=True, text=True, timeout=120, cwd=work,
                              env={**os.environ, "OCTAVO_PROTOS": os.path.join(SOURCE, "proto")})
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_each_is_named_and_says_what_is_allowed(self):
        said = self.run_script(SCRIPT, calls=[row[0] for row in MISTAKES])
        for (call, words, *code), answer in zip(MISTAKES, said):
            with self.subTest(call):
                self.assertIn("message", answer, "nothing was said")
                self.assertEqual(answer.get("code"), code[0] if code else 3, answer)
                for word in words:
                    self.assertIn(word, answer["message"])
        self.assertEqual(len(self.client.scans()), 1)

    def test_what_is_right_goes_through(self):
        said = self.run_script(RIGHT)
        self.assertEqual(said, dict(admitted=[True, True], shape=said["shape"], jobs=0))
        self.assertEqual(said["shape"][:2], [8, 16])


if __name__ == "__main__":
    unittest.main()
