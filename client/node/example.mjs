// A scan, live pictures of it, one volume committed, the rest discarded.   node example.mjs [ADDRESS] [DIRECTORY for pictures]
import { writeFileSync } from "node:fs";
import path from "node:path";

import { connect } from "./octavo.mjs";

const [address, directory = "."] = process.argv.slice(2);
const octavo = connect(address);
const say = (what) => console.log(JSON.stringify(what));

const { scan } = await octavo.scans.submitScan({
  spec: {
    title: "node",
    simulated: { seed: 1 },
    acquisition: { samples_per_record: 512, record_rate_hz: 20000 },
    pattern: { raster: { ascans_per_bscan: 64, bscans_per_volume: 32, volumes: 3 } },
  },
});
for await (const frame of octavo.subscribe({ parent: scan.name, products: ["PRODUCT_MIP"], encoding: "ENCODING_PNG", image: { colour_map: "COLOUR_MAP_VIRIDIS" } })) {
  const file = path.join(directory, `mip_${frame.sequence}.png`);
  writeFileSync(file, frame.data);
  say({ frame: frame.sequence, dropped: frame.dropped_before, complete: frame.complete, shape: frame.shape, file });
}
const ended = await octavo.wait(scan.name);
say({ scan: ended.name, state: ended.state, volumes: ended.volumes_done });

const volumes = [];
for await (const volume of octavo.list(octavo.volumes.listVolumes, { parent: scan.name, filter: "complete = true", order_by: "index" })) volumes.push(volume);
// Operations on the device, in sequence: here one, the en face MIP. With `wait` 0 the call returns when the work is planned.
const { operation, volume: derived } = await octavo.volumes.deriveVolume({ name: volumes[0].name, operations: [{ array: { mip: { axis: 2 } } }], wait: {} });
await octavo.follow(operation);
const mip = await octavo.read(derived.name);
say({ mip: derived.name, shape: mip.shape, sum: mip.array.reduce((a, b) => a + b, 0) });
await octavo.volumes.discardVolume({ name: derived.name });
const { shape, array } = await octavo.read(volumes[0].name);
say({ volume: volumes[0].name, shape, brightest: array.reduce((a, b) => Math.max(a, b)), sum: array.reduce((a, b) => a + b, 0) });
const result = await octavo.commit(volumes[0].name, { destination: "{title}_{index:05}", format: "FORMAT_NPY" });
say({ committed: result.path, checksum: result.checksum });
for (const volume of volumes.slice(1)) await octavo.volumes.discardVolume({ name: volume.name });

try {
  await octavo.read(volumes[1].name);
} catch (error) {
  say({ error: error.code, reason: error.reason, message: error.details });
}
octavo.close();
