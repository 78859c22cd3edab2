// Reads voxels of a volume from octavo-web, as they come. One read at a time: the caller aborts the one before.
import { SAMPLE_BYTES } from "../../wire/dtypes";
import type { VolumeRow } from "../../wire/protocol";
import { CallError } from "../connection";
import { coarser } from "./levels";
import { type Coding, decode, encode, type Numbers } from "./voxels";

export type Method = "max" | "mean";
const SLAB_BYTES = 2 << 20;

/** What is read of a volume: `window` = as U8 between two values, made by the server. */
interface Wanted {
  volume: VolumeRow;
  factor: number;
  method: Method;
  window: { lo: number; hi: number } | null;
}

async function open(wanted: Wanted, signal: AbortSignal): Promise<{ dtype: string; total: number; body: ReadableStreamDefaultReader<Uint8Array> }> {
  const query = new URLSearchParams({ downsample: String(wanted.factor), method: wanted.method });
  if (wanted.window) for (const end of ["lo", "hi"] as const) query.set(end, String(wanted.window[end]));
  let answer: Response;
  try {
    answer = await fetch(`api/${wanted.volume.name}/voxels?${query}`, { signal, cache: "no-store" });
  } catch (error) {
    signal.throwIfAborted();
    throw new CallError("AWAY", "", "octavo web does not answer");
  }
  if (!answer.ok) {
    const told = (await answer.json()).error;
    throw new CallError(told.reason, told.field, told.message);
  }
  const shape = answer.headers.get("X-Shape")!.split(",").map(Number);
  const dtype = answer.headers.get("X-Dtype")!;
  const expected = coarser(wanted.volume.shape, wanted.factor);
  if (shape.join() !== expected.join() || !(dtype in SAMPLE_BYTES)) throw new CallError("UNEXPECTED", "", `voxels of ${shape.join(" × ")} ${dtype} came where ${expected.join(" × ")} were asked for`);
  return { dtype, total: shape.reduce((a, b) => a * b, SAMPLE_BYTES[dtype]), body: answer.body!.getReader() };
}

/** The bytes of a read in pieces of these sizes; throws if they end early. */
async function* pieces(reader: ReadableStreamDefaultReader<Uint8Array>, total: number, size: number, signal: AbortSignal): AsyncGenerator<ArrayBuffer> {
  let [done, filled] = [0, 0];
  let piece = new Uint8Array(Math.min(size, total));
  try {
    while (done < total) {
      const { value, done: ended } = await reader.read();
      signal.throwIfAborted();
      if (ended) throw new CallError("CUT_OFF", "", `the voxels ended after ${done + filled} of ${total} bytes`);
      for (let at = 0; at < value.length; ) {
        const part = value.subarray(at, at + piece.length - filled);
        piece.set(part, filled);
        at += part.length;
        filled += part.length;
        if (filled < piece.length) continue;
        yield piece.buffer;
        signal.throwIfAborted();
        done += filled;
        filled = 0;
        piece = new Uint8Array(Math.min(size, total - done));
        if (done === total) break;
      }
    }
  } catch (error) {
    signal.throwIfAborted(); // its own words for that differ between browsers
    throw error instanceof TypeError ? new CallError("CUT_OFF", "", `the connection to octavo web broke after ${done + filled} of ${total} bytes`) : error;
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** All values of a level, uncoded: for small ones. */
export async function readValues(volume: VolumeRow, factor: number, method: Method, signal: AbortSignal): Promise<Numbers> {
  const { dtype, total, body } = await open({ volume, factor, method, window: null }, signal);
  for await (const all of pieces(body, total, total, signal)) return decode(dtype, all);
  throw new CallError("CUT_OFF", "", "no voxels came");
}

/** A level in slabs of whole planes, coded as a texture has them: about 2 MiB each. */
export async function* readSlabs(volume: VolumeRow, factor: number, method: Method, coding: Coding, signal: AbortSignal): AsyncGenerator<{ plane: number; planes: number; data: Uint8Array }> {
  const whole = factor === 1 || method === "max"; // the server sends the volume's own type
  const plain = whole && ((volume.dtype === "U8" && coding.bits === 8) || (volume.dtype === "U16" && coding.bits === 16 && coding.lo === 0 && coding.hi === 65535));
  const { dtype, total, body } = await open({ volume, factor, method, window: coding.bits === 8 && !plain ? coding : null }, signal);
  const shape = coarser(volume.shape, factor);
  const planeBytes = shape[1] * shape[2] * SAMPLE_BYTES[dtype];
  const planes = Math.max(1, Math.floor(SLAB_BYTES / (shape[1] * shape[2] * (coding.bits / 8))));
  let plane = 0;
  for await (const piece of pieces(body, total, planes * planeBytes, signal)) {
    const count = piece.byteLength / planeBytes;
    yield { plane, planes: count, data: plain || dtype === "U8" ? new Uint8Array(piece) : encode(decode(dtype, piece), coding) };
    plane += count;
  }
}
