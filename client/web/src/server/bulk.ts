// Pictures and voxels of held volumes by HTTP: GET /api/volumes/<id>/picture and …/voxels. The voxels
// go through as they come, at the pace of the reader, and can be asked for in byte ranges.
//
// ETags. A held volume never changes, so a tag is made of what tells its voxels and of the query. Voxels:
// the daemon's digest of them, asked for each time; the tag changes when the name leads to other voxels,
// or with any field of the query. Pictures: the name and the query; these have a tag only if the page puts
// the digest into the query (`digest`), which makes the address itself one of these very voxels, to be kept
// for a day without asking. No tag changes with the release: another way to draw is seen a day later.
import type { IncomingMessage, ServerResponse } from "node:http";

import type { ClientReadableStream } from "@grpc/grpc-js";

import { SAMPLE_BYTES } from "../wire/dtypes";
import { type Daemon, DaemonError, type Message } from "./daemon";
import { Refusal } from "./guard";

const MOST_PICTURE_BYTES = 32 << 20;
const RENDERINGS: Record<string, string> = { plane: "PLANE", max: "MAX", mean: "MEAN", min: "MIN" };

function wrong(field: string, value: string, allowed: string): never {
  throw new Refusal(400, "BAD_QUERY", `${field} is "${value.slice(0, 60)}"; allowed: ${allowed}`);
}
function whole(query: URLSearchParams, field: string, otherwise: number, lo: number, hi: number): number {
  const text = query.get(field);
  if (text === null) return otherwise;
  const value = Number(text);
  if (!/^-?\d{1,12}$/.test(text) || value < lo || value > hi) wrong(field, text, `whole numbers ${lo} ... ${hi}`);
  return value;
}
function checkFields(query: URLSearchParams, allowed: string[]): void {
  for (const key of query.keys()) if (!allowed.includes(key)) wrong(key, query.get(key)!, `only the fields ${allowed.join(", ")}`);
}

/** Waits until the reader has taken what waits for it; false if it is gone. */
function drained(response: ServerResponse): Promise<boolean> {
  if (response.destroyed) return Promise.resolve(false);
  return new Promise((resolve) => {
    const done = () => {
      response.off("drain", done);
      response.off("close", done);
      resolve(!response.destroyed);
    };
    response.on("drain", done);
    response.on("close", done);
  });
}

async function* parts(daemon: Daemon, call: ClientReadableStream<Message>): AsyncGenerator<Message> {
  try {
    for await (const part of call) yield part;
  } catch (error) {
    throw error instanceof DaemonError ? error : daemon.explained(error as never);
  } finally {
    call.cancel();
  }
}

/** A picture (PNG) of a held volume: ?rendering=max&axis=z&size=160&index=… */
export async function picture(daemon: Daemon, name: string, query: URLSearchParams, request: IncomingMessage, response: ServerResponse): Promise<void> {
  checkFields(query, ["rendering", "axis", "size", "index", "begin", "end", "digest"]);
  const rendering = query.get("rendering") ?? "max";
  if (!Object.hasOwn(RENDERINGS, rendering)) wrong("rendering", rendering, Object.keys(RENDERINGS).join(", "));
  const axis = query.get("axis") ?? "z";
  if (!/^[xyz]$/.test(axis)) wrong("axis", axis, "x, y, z");
  const size = whole(query, "size", 512, 16, 4096);
  // With the digest the address is one of these very voxels.
  const tag = `"${name}?${query}"`;
  const lasting: Record<string, string> = query.get("digest") ? { ETag: tag, "Cache-Control": "private, max-age=86400, immutable" } : { "Cache-Control": "no-store" };
  if (query.get("digest") && request.headers["if-none-match"] === tag) {
    response.writeHead(304, lasting).end();
    return;
  }
  const wanted: Message = {
    name,
    rendering: `RENDERING_${RENDERINGS[rendering]}`,
    axis: `AXIS_${axis.toUpperCase()}`,
    encoding: "ENCODING_PNG",
    image: { max_width: size, max_height: size, depth_down: true },
  };
  if (rendering === "plane") wanted.index = whole(query, "index", -1, -1, 2 ** 31);
  else Object.assign(wanted, { begin: whole(query, "begin", 0, 0, 2 ** 31), end: whole(query, "end", 0, 0, 2 ** 31) });
  const chunks: Buffer[] = [];
  let bytes = 0;
  const call = daemon.stream("VolumeService", "RenderVolume", wanted);
  response.on("close", () => call.cancel());
  for await (const part of parts(daemon, call)) {
    chunks.push(part.data);
    if ((bytes += part.data.length) > MOST_PICTURE_BYTES) throw new Refusal(400, "TOO_LARGE", "the picture is too large: ask for a smaller size");
  }
  response.writeHead(200, { "Content-Type": "image/png", "Content-Length": bytes, ...lasting }).end(Buffer.concat(chunks));
}

/** first and last byte of `Range: bytes=…`, null for all; one range only. */
function rangeOf(header: string | undefined, total: number): [number, number] | null {
  if (header === undefined) return null;
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header);
  if (!match || (match[1] === "" && match[2] === "")) return null; // to be ignored, as RFC 9110 says
  const first = match[1] === "" ? Math.max(0, total - Number(match[2])) : Number(match[1]);
  const last = match[1] === "" || match[2] === "" ? total - 1 : Math.min(total - 1, Number(match[2]));
  if (first > last || first >= total) throw new Refusal(416, "BAD_RANGE", `the data have ${total} bytes`);
  return [first, last];
}

/**
 * Voxels in C order, little endian: ?downsample=4&method=max&lo=…&hi=… (coarser, and as one byte for
 * each), or of one plane along the first axis (`plane`, which is not made coarser along it). X-Shape and
 * X-Dtype say what follows. `Range` works: whole planes along the first axis are read, and of the first
 * and the last one what was asked for.
 */
export async function voxels(daemon: Daemon, name: string, query: URLSearchParams, request: IncomingMessage, response: ServerResponse): Promise<void> {
  checkFields(query, ["downsample", "method", "lo", "hi", "plane"]);
  const downsample = whole(query, "downsample", 1, 1, 64);
  if ((downsample & (downsample - 1)) !== 0) wrong("downsample", String(downsample), "powers of two, 1 ... 64");
  const method = query.get("method") ?? "max";
  if (method !== "max" && method !== "mean") wrong("method", method, "max, mean");
  const bounds = ["lo", "hi"].map((field) => query.get(field));
  const [lo, hi] = bounds.map(Number);
  const window = bounds[0] !== null || bounds[1] !== null;
  if (window && !(Number.isFinite(lo) && Number.isFinite(hi) && lo < hi && bounds[0] !== null && bounds[1] !== null)) wrong("lo, hi", bounds.join(", "), "two finite numbers, lo < hi");

  const { volume } = await daemon.call("VolumeService", "GetVolume", { name });
  if (response.destroyed) return;
  const source: number[] = volume.shape.map(Number);
  const only = query.has("plane") ? whole(query, "plane", 0, 0, source[0] - 1) : null;
  const shape = source.map((n, axis) => (only !== null && axis === 0 ? 1 : Math.ceil(n / downsample)));
  let dtype = volume.dtype.replace("DTYPE_", "");
  if (window) dtype = "U8";
  else if (downsample > 1 && (method === "mean" || /^C/.test(dtype))) dtype = "F32";
  const plane = shape.slice(1).reduce((a, b) => a * b, 1) * SAMPLE_BYTES[dtype];
  const total = plane * shape[0];
  const tag = `"${volume.digest}?${query}"`;
  const conditional = request.headers["if-range"] === undefined || request.headers["if-range"] === tag;
  const range = conditional ? rangeOf(request.headers.range, total) : null;
  if (!range && request.headers["if-none-match"] === tag) {
    response.writeHead(304, { ETag: tag }).end();
    return;
  }
  const [first, last] = range ?? [0, total - 1];
  const begin = Math.floor(first / plane);
  const end = Math.floor(last / plane) + 1;
  const wanted: Message = {
    name,
    start: [only ?? begin * downsample, 0, 0].slice(0, source.length),
    count: [only !== null ? 1 : Math.min(source[0], end * downsample) - begin * downsample, 0, 0].slice(0, source.length),
    chunk_bytes: 1 << 20,
  };
  if (downsample > 1) Object.assign(wanted, { downsample, downsampling: `DOWNSAMPLING_${method.toUpperCase()}` });
  if (window) wanted.window = { lo, hi };

  let skip = first - begin * plane;
  let left = last - first + 1;
  const call = daemon.stream("VolumeService", "ReadVolume", wanted);
  response.on("close", () => call.cancel());
  for await (const part of parts(daemon, call)) {
    if (part.volume) {
      if (Number(part.total_bytes) !== plane * (end - begin))
        throw new Refusal(501, "NO_COARSE_READ", "this octavod does not read coarsely or as bytes (ReadVolume.downsample, window): use the octavod of this release");
      response.writeHead(range ? 206 : 200, {
        "Content-Type": "application/octet-stream",
        "Content-Length": left,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        ETag: tag,
        "X-Shape": shape.join(","),
        "X-Dtype": dtype,
        ...(range ? { "Content-Range": `bytes ${first}-${last}/${total}` } : {}),
      });
    }
    const data: Buffer = part.data.subarray(Math.min(skip, part.data.length), Math.min(part.data.length, skip + left));
    skip = Math.max(0, skip - part.data.length);
    left -= data.length;
    if (data.length > 0 && !response.write(data) && !(await drained(response))) return;
    if (left === 0) break;
  }
  if (left > 0) return void response.destroy(); // fewer bytes than were announced
  response.end();
}
