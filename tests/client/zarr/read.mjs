// Reads the array "0" of an OME-Zarr with zarrita, which shares nothing with Octavo: writes its bytes, prints its metadata.
import { writeFileSync } from "node:fs";
import * as zarr from "zarrita";
import FileSystemStore from "@zarrita/storage/fs";

const [path, out] = process.argv.slice(2);
const group = await zarr.open(new FileSystemStore(path), { kind: "group" });
const array = await zarr.open(group.resolve("0"), { kind: "array" });
const { data, shape } = await zarr.get(array);
writeFileSync(out, Buffer.from(data.buffer, data.byteOffset, data.byteLength));
console.log(JSON.stringify({ shape, attributes: group.attrs, dimension_names: array.dimensionNames ?? array.dimension_names }));
