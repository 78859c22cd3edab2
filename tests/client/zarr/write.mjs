// Writes a Zarr v3 array with zarrita: FOLDER, then JSON {shape, chunk_shape, data_type, codecs, dimension_names, data (a file with its bytes)}.
import { readFileSync } from "node:fs";
import * as zarr from "zarrita";
import FileSystemStore from "@zarrita/storage/fs";

const [path, text] = process.argv.slice(2);
const { shape, chunk_shape, data_type, codecs, dimension_names, data } = JSON.parse(text);
const array = await zarr.create(new FileSystemStore(path),
  { shape, chunkShape: chunk_shape, dtype: data_type, codecs, dimensionNames: dimension_names, fillValue: 0 });
const bytes = readFileSync(data);
const Values = { uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array, uint32: Uint32Array, int32: Int32Array, float32: Float32Array, float64: Float64Array }[data_type];
const values = new Values(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
const stride = shape.map((_, d) => shape.slice(d + 1).reduce((a, b) => a * b, 1));
await zarr.set(array, null, { data: values, shape, stride });
