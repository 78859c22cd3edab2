// Writes Zarr v3 arrays with zarrita, for zarrita_test.py: `npm install zarrita@0.7.5 @zarrita/storage`, then
// `node zarrita_writer.mjs FOLDER`; pack the folder as zarrita.tar.xz. Voxel i, in C order, is (i * 7919 + 13) % modulus.
import FileSystemStore from "@zarrita/storage/fs";
import * as zarr from "zarrita";

const bytes = (endian) => ({ name: "bytes", configuration: { endian } });
const chains = {
  raw: [bytes("little")],
  big: [bytes("big")],
  zstd: [bytes("little"), { name: "zstd", configuration: { level: 3, checksum: false } }],
  blosc: [bytes("little"), { name: "blosc", configuration: { cname: "lz4", clevel: 5, shuffle: "shuffle", typesize: 2, blocksize: 0 } }],
  transpose: [{ name: "transpose", configuration: { order: [2, 0, 1] } }, bytes("little")],
};
const types = { uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array, float32: Float32Array, float64: Float64Array };
const moduli = { uint8: 251, int8: 127, uint16: 65521, int16: 32749, float32: 65521, float64: 65521 };
const shape = [5, 14, 9], chunkShape = [2, 5, 4];
const size = shape.reduce((a, b) => a * b);

const written = [];
for (const [dtype, Type] of Object.entries(types)) {
  for (const [chain, codecs] of Object.entries(chains)) {
    if (chain === "blosc" && dtype !== "uint16") continue;
    const name = `${dtype}_${chain}`;
    const array = await zarr.create(zarr.root(new FileSystemStore(`${process.argv[2]}/${name}`)), {
      shape, chunkShape, dtype, codecs, dimensionNames: ["z", "y", "x"], chunkSeparator: chain === "raw" ? "." : "/", fillValue: 0,
    });
    const data = Type.from({ length: size }, (_, i) => (i * 7919 + 13) % moduli[dtype]);
    await zarr.set(array, null, { data, shape, stride: [shape[1] * shape[2], shape[2], 1] });
    written.push(name);
  }
}
console.log(written.join("\n"));
