// Octavo from Node with @grpc/grpc-js: it loads the protos at run time, without generated code.
//
//   const octavo = connect("127.0.0.1:50051");
//   const { scan } = await octavo.scans.submitScan({ spec: { simulated: { seed: 1 }, pattern: { raster: { ascans_per_bscan: 512, ... } } } });
//   for await (const frame of octavo.subscribe({ parent: scan.name, products: ["PRODUCT_MIP"], encoding: "ENCODING_PNG" })) show(frame.data);
//   const { shape, array } = await octavo.read("volumes/...");     // [y, x, z], C order
//
// Field names are those of the protos, enums are their names as text, with or without the name of the enum: ENCODING_PNG or PNG; answers have the whole name. Unary calls return promises; calls that stream return
// grpc-js' readable streams, which are async iterables. A call that fails throws an Error with code (gRPC's number), reason,
// field and numbers. A request with an unknown field, enum text or value is refused before it is sent; the error lists the known ones.
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

import { checked, wrong } from "./checked.mjs";

// The loader's own protobufjs, for data outside of messages: error details.
const protobuf = createRequire(createRequire(import.meta.url).resolve("@grpc/proto-loader"))("protobufjs");

const PROTOS = process.env.OCTAVO_PROTOS ?? path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../proto");
const FILES = ["scan", "volume", "stream", "system", "buffer", "export", "ingest", "job", "operation", "session", "mosaic", "access"].map((name) => `octavo/v1/${name}.proto`);
// Times since the epoch in ns need 64 bits; everything else that is an int64 fits a Number.
const OPTIONS = { includeDirs: [PROTOS], keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true };

const { v1 } = grpc.loadPackageDefinition(protoLoader.loadSync(FILES, OPTIONS)).octavo;
const root = new protobuf.Root();
root.resolvePath = (origin, target) => (target.startsWith("google/protobuf/") ? protobuf.util.path.resolve(origin, target) : path.join(PROTOS, target));
root.loadSync([...FILES, "octavo/v1/types.proto", "google/rpc/status.proto", "google/rpc/error_details.proto"], OPTIONS);
root.resolveAll();

/** Adds reason, field and numbers of google.rpc.ErrorInfo to a grpc-js error. */
function withDetail(error) {
  for (const bytes of error.metadata?.get("grpc-status-details-bin") ?? []) withInfo(error, root.lookupType("google.rpc.Status").decode(bytes).details);
  return error;
}

/** The same from the details of a google.rpc.Status. */
function withInfo(error, details) {
  for (const any of details) {
    const name = (any.type_url ?? any.typeUrl).split("/").pop();
    if (name === "google.rpc.ErrorInfo") {
      const { reason, metadata } = root.lookupType(name).decode(any.value);
      const { field = "", ...numbers } = metadata;
      Object.assign(error, { reason, field, numbers });
    }
  }
  return error;
}

/** The operation if it has succeeded; else throws its error, as a failed call does. */
function succeeded(operation) {
  if (!operation.error) return operation;
  const { code, message, details } = operation.error;
  throw withInfo(Object.assign(new Error(message), { code, details: message }), details);
}

/** A service whose unary calls return promises, and whose requests are checked. */
function promised(client, seconds) {
  const methods = Object.values(Object.getPrototypeOf(client)).filter((method) => method?.path !== undefined);
  const names = [...new Set(methods.map((method) => method.originalName ?? method.path.split("/").pop()))];
  return new Proxy(client, {
    get(target, name) {
      const method = target[name];
      if (method === undefined && typeof name === "string" && name !== "then") throw wrong("", `the service has no ${name}`, names, name);
      if (typeof method !== "function" || method.path === undefined) return typeof method === "function" ? method.bind(target) : method;
      const [, service, call] = method.path.split("/");
      const type = root.lookupService(service).methods[call].resolvedRequestType;
      if (method.requestStream) return method.bind(target);
      if (method.responseStream) return (request = {}) => method.call(target, checked(type, request));
      return (request = {}) =>
        new Promise((resolve, reject) => {
          const deadline = new Date(Date.now() + 1000 * seconds);
          method.call(target, checked(type, request), { deadline }, (error, answer) => (error ? reject(withDetail(error)) : resolve(answer)));
        });
    },
  });
}

/** Whether a text is host:port. */
function isHostAndPort(one, v6) {
  const found = /^([^\s/]+):([0-9]{1,5})$/.exec(one);
  if (!found || Number(found[2]) < 1 || Number(found[2]) > 65535) return false;
  return !found[1].includes(":") || v6 || /^\[.+\]$/.test(found[1]);
}

/** host:port or unix:/path; throws for an address that gRPC would misunderstand. `whence` gave it. */
function checkedAddress(address, whence) {
  const bad = (allowed) => {
    const text = `${whence} is ${JSON.stringify(address)}; ${allowed}`;
    return Object.assign(new Error(text), { code: grpc.status.INVALID_ARGUMENT, field: "address" });
  };
  if (typeof address !== "string" || !address.includes(":") || /^https?:\/\//.test(address)) {
    throw bad("allowed are host:port (octavod listens on 50051) and unix:/path");
  }
  const good = (text) => {
    if (text !== text.trim()) return false;
    if (/^unix(-abstract)?:/.test(text)) return !/^unix(-abstract)?:(\/\/)?$/.test(text);
    const [, scheme, rest] = /^(dns:\/\/[^/]*\/|dns:|ipv4:|ipv6:|)(.*)$/s.exec(text);
    const several = scheme === "ipv4:" || scheme === "ipv6:" ? rest.split(",") : [rest];
    return several.every((one) => isHostAndPort(one, scheme === "ipv6:"));
  };
  if (!good(address)) throw bad("allowed host:port with port 1 to 65535, or unix:/path");
  return address;
}

const TYPED = {
  DTYPE_U8: Uint8Array, DTYPE_I8: Int8Array, DTYPE_U16: Uint16Array, DTYPE_I16: Int16Array, DTYPE_U32: Uint32Array, DTYPE_I32: Int32Array, DTYPE_F32: Float32Array,
  DTYPE_F64: Float64Array,
};

/** The bytes as the typed array of a Dtype (Uint8Array for types that JavaScript does not have). */
function typed(dtype, bytes) {
  const Type = TYPED[dtype] ?? Uint8Array;
  return new Type(bytes.buffer, bytes.byteOffset, bytes.byteLength / Type.BYTES_PER_ELEMENT);
}

/** @param address "host:port" or "unix:/path"; default $OCTAVO_ADDRESS or 127.0.0.1:50051
 *  @param seconds how long short calls may take */
export function connect(address, seconds = 30) {
  const whence = address == null ? "OCTAVO_ADDRESS" : "address";
  const target = checkedAddress(address ?? (process.env.OCTAVO_ADDRESS || "127.0.0.1:50051"), whence);
  const credentials = grpc.credentials.createInsecure();
  const options = { "grpc.max_receive_message_length": 64 << 20 };
  const open = (Service) => promised(new Service(target, credentials, options), seconds);
  const services = [v1.ScanService, v1.VolumeService, v1.StreamService, v1.SystemService, v1.BufferService, v1.JobService, v1.OperationService, v1.SessionService, v1.ExportService, v1.IngestService, v1.MosaicService, v1.AccessService].map(open);
  const [scans, volumes, streams, system, buffers, jobs, operations, sessions, exports, ingest, mosaics, access] = services;

  /** Frames as they arrive: the header's fields, `data` (a Buffer) and, for RAW, `array`. Ends with the scan; leaving the loop cancels. */
  async function* subscribe(request) {
    const call = streams.subscribe(request);
    let head, data;
    try {
      for await (const part of call) {
        if (part.frame) [head, data] = [part.frame, Buffer.alloc(part.total_bytes)];
        part.data.copy(data, part.offset);
        if (part.offset + part.data.length < part.total_bytes) continue;
        yield { ...head, data, array: head.encoding === "ENCODING_RAW" ? typed(head.dtype, data) : undefined };
      }
    } catch (error) {
      throw withDetail(error);
    } finally {
      call.cancel();
    }
  }

  /** The voxels of a volume, or of the box at `start` of extent `count`: { volume, shape, array }. */
  async function read(name, start = [], count = []) {
    let head, data;
    try {
      for await (const part of volumes.readVolume({ name, start, count })) {
        if (part.volume) [head, data] = [part, Buffer.alloc(part.total_bytes)];
        part.data.copy(data, part.offset);
      }
    } catch (error) {
      throw withDetail(error);
    }
    return { volume: head.volume, shape: head.shape, array: typed(head.volume.dtype, data) };
  }

  /** Follows long work to its end; calls `progress` along the way. Returns the operation, or throws its error. `operation`: of an answer. */
  async function follow(operation, progress = () => {}) {
    let last = operation;
    try {
      if (!last.done) for await (const step of operations.watchOperation({ name: operation.name })) progress((last = step.operation));
    } catch (error) {
      throw withDetail(error);
    }
    return succeeded(last);
  }

  /** Writes a held volume to storage and frees its memory; calls `progress` with the operation along the way. Returns the CommitResult. */
  async function commit(name, options, progress = () => {}) {
    return (await follow((await volumes.commitVolume({ name, options, wait: {} })).operation, progress)).commit;
  }

  /** The entries of a list, page by page: `for await (const volume of octavo.list(octavo.volumes.listVolumes, { filter: "state = HELD" }))`. */
  async function* list(call, request = {}) {
    let token = "";
    do {
      const page = await call({ page_size: 1000, ...request, page_token: token });
      yield* Object.values(page).find(Array.isArray);
      token = page.next_page_token;
    } while (token !== "");
  }

  /** Waits for the end of a scan. */
  async function wait(name) {
    let last;
    for await (const answer of scans.watchScan({ name })) last = answer.scan;
    return last;
  }

  return { scans, volumes, streams, system, buffers, jobs, operations, sessions, exports, ingest, mosaics, access, subscribe, read, follow, commit, list, wait, close: () => services.forEach((s) => s.close()) };
}
