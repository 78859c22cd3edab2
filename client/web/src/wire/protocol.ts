// The protocol between octavo-web and its page: one web socket, `/socket`.
//
// Text messages are JSON objects with a `type`. Binary messages are frames, from the server only.
//
//   server: hello                                  version, limits, read_only, the daemon's address
//   server: daemon, state                          whether octavod answers; scans, volumes, operations, jobs, leases
//   page:   open {view, topic, encoding, rate_hz, resume}
//   server: schema {view, topic, number, …}        before the first frame, and whenever it changes
//   server: frame                                  binary: header of 32 bytes, then the payload
//   page:   ack {view, sequence, painted_ms}       the frame is on the screen: gives its credit back
//   page:   close {view}
//   server: end {view, topic, …}                   no frame follows, and why; the view is closed
//   page:   look {job, server}                     which job's details it shows, and whether it shows the server
//   server: job, server, events                    what it looks at, at once and as it changes
//
// Credits. At most IN_FLIGHT frames of a view are on their way. The next one leaves when the page
// has acknowledged one, and it is the newest that there is then (latest wins). A slow page gets fewer
// frames, but none that is older. The server queues nothing: its memory does not depend on readers.
// A view that is closed, or opened anew, may leave frames on their way. The views that are opened after
// it begin when these have arrived, which a pong tells; their credits are their own. So a page that opens
// a view over and over gets IN_FLIGHT frames a round trip. A page acknowledges no frame of a view that it
// has closed or opened anew since.
//
// Counting. The sequence numbers of a topic have no gaps when the daemon publishes them. A header's
// `dropped` is the number of frames between this one and the one that the view got before, whoever
// left them out. So the shown and the dropped frames together are all frames.
//
// Resume. A page whose connection broke opens its view again with `resume`, the last sequence that it
// showed. The server leaves out what the page has, and counts what it missed as dropped. A scan
// whose numbers begin anew (the daemon was restarted) begins with dropped = 0.
//
// Encoding. RAW sends the samples as they are (the schema names their type), JPEG one byte of grey
// for each: value = display.lo + grey / 255 * (display.hi - display.lo); without a display
// the grey levels have no values. AUTO, the default, sends RAW where the connection was measured to
// carry it, else JPEG. Colours and contrast are the page's.
//
// Header of a frame, little endian:
//    0 u8  view
//    1 u8  flags: 1 = of a completed volume, 2 = JPEG
//    2 u16 number of the schema, modulo 65536
//    4 u32 dropped
//    8 u64 sequence
//   16 u32 index of the volume; 0xffffffff = none
//   20 u32 us from the last record of the frame until octavod published it; 0xffffffff = not known
//   24 u32 us from its arrival in octavo-web until it was given to the socket
//   28 u32 bytes of the payload
//
// The server pings every PING_MS and ends a connection that has not answered for SILENCE_MS. A text
// that is not as described here ends the connection (1008), as does one that is too long (1009), a
// binary message (1003) and one that is not UTF-8 (1007).

export const VERSION = 2;
export const HEADER_BYTES = 32;
export const IN_FLIGHT = 2;
export const MOST_VIEWS = 6;
export const MOST_TEXT_BYTES = 8192;
export const MOST_RATE_HZ = 60;
export const PING_MS = 5000;
export const SILENCE_MS = 15000;
export const NONE = 0xffffffff;

export const PRODUCTS = ["MIP", "AIP", "BSCAN", "ANGIOGRAM", "SPECTRUM", "CORRECTED", "ASCAN"] as const;
export const AXES = ["X", "Y", "Z"] as const;
export const ENCODINGS = ["AUTO", "RAW", "JPEG"] as const;
/** SPECTRUM is a record as the source delivered it, CORRECTED one as the transform gets it. */
export type Product = (typeof PRODUCTS)[number];
export type Axis = (typeof AXES)[number];
export type Encoding = (typeof ENCODINGS)[number];

/** What a view shows. Views of one topic and encoding share one subscription. */
export interface Topic {
  parent: string; // scans/<id> or jobs/<id>
  product: Product;
  axis: Axis; // projected along, or cut across
  index: number; // BSCAN: the plane; of records and A-scans: the column; -1 = the middle, or any
  slab: [number, number] | null; // MIP along Z of scans: only the depths from the first on, up to the second, of complete volumes
  width: number; // most columns and rows, 16 ... 4096: the server shrinks larger pictures. Of records and A-scans without effect
}

export interface Open {
  type: "open";
  view: number; // 0 ... 255, chosen by the page
  topic: Topic;
  encoding: Encoding;
  rate_hz: number; // most frames a second, above 0 and at most MOST_RATE_HZ
  resume: number | null; // the last sequence that the page has shown
}
export interface Ack {
  type: "ack";
  view: number;
  sequence: number;
  painted_ms: number; // from the arrival of the frame until it was painted
}
export interface Close {
  type: "close";
  view: number;
}
/** What the page shows beside pictures. The last one holds. */
export interface Look {
  type: "look";
  job: string; // jobs/<id> whose details it shows; empty = none
  server: boolean; // whether it shows memory, devices and events
}
export type FromPage = Open | Ack | Close | Look;

export interface Interval {
  lo: number;
  hi: number;
}

/** What the frames of a view are, until the next schema. */
export interface Schema {
  product: Product;
  axis: Axis | "";
  shape: number[]; // [rows, columns]; of records their own
  axes: string[];
  spacing_um: number[]; // of each axis; empty = not known
  dtype: string; // of the samples, without DTYPE_: U8, U16, F32 …
  encoding: "RAW" | "JPEG";
  unit: string; // of values = offset + stored * step
  offset: number;
  step: number;
  display: Interval | null; // stored units to show as black and white
  saturation: { lo: number | null; hi: number | null } | null; // SPECTRUM: samples at most lo, or at least hi, are saturated
}

export interface Hello {
  type: "hello";
  version: number;
  read_only: boolean;
  most_views: number;
  daemon: string; // its address
}
export interface DaemonMessage {
  type: "daemon";
  up: boolean;
  refused: boolean; // it answers, and a quota keeps octavo web from hearing of the volumes
  message: string; // why it does not answer, or refuses
  server_id: string;
  daemon_version: string;
  caller: Caller | null; // as octavod sees octavo web, and so all its pages; null = not told yet
}
export interface Caller {
  name: string;
  role: string; // NONE, VIEWER, OPERATOR, ADMIN
  project: string; // may be empty
}
/** Whose a thing is. */
export interface Owned {
  owner: string; // empty = nobody's: every operator may change it
  project: string; // of the owner; empty = none
}
/** Changes of what there is: by name, null = gone. Times are ms since 1970. */
export interface State {
  type: "state";
  fresh?: boolean; // all that there is: forget what was before
  scans?: Record<string, ScanRow | null>;
  volumes?: Record<string, VolumeRow | null>;
  operations?: Record<string, OperationRow | null>;
  jobs?: Record<string, JobRow | null>;
  leases?: Record<string, LeaseRow[] | null>; // by the name of what is leased
}
export interface SchemaMessage extends Schema {
  type: "schema";
  view: number;
  topic: Topic; // of the view: the page may have given its number to another one meanwhile
  number: number;
}
export interface End {
  type: "end";
  view: number;
  topic: Topic; // as in SchemaMessage
  reason: string; // FINISHED, or the daemon's reason (NO_SCAN, NOTHING_KEPT …)
  message: string;
}
export interface Link {
  type: "link";
  rtt_ms: number;
  mbit_s: number; // measured; 0 = not yet
}
/** The job that the page looks at. */
export interface JobMessage {
  type: "job";
  name: string;
  gone: string; // why there is no such job; the other fields are left out then
  job?: JobDetails;
  results?: JobResults; // when they have changed
  fresh?: boolean; // steps and lines are all that are kept; else those after the ones that were told
  steps?: JobStep[];
  lines?: JobLine[];
}
/** Memory, devices and versions; what has changed since the message before. */
export interface ServerMessage {
  type: "server";
  memory?: MemoryState;
  info?: ServerInfo;
  viewer?: ViewerStatus;
}
/** The last events, the newest first. */
export interface EventsMessage {
  type: "events";
  events: EventRow[];
  left_out: number; // that octavod dropped, because they came faster than they were taken
}
export type FromServer = Hello | DaemonMessage | State | SchemaMessage | End | Link | JobMessage | ServerMessage | EventsMessage;

export interface ScanRow extends Owned {
  name: string;
  title: string;
  state: string; // without SCAN_STATE_; LOST: an earlier process of octavod died before its end
  reason: string;
  earlier_run: boolean; // submitted to an earlier process of octavod: of what is below, only title, source, times, counts, warnings and owner are known
  source: string; // the field of ScanSpec.source that is set: simulated, replay, push, camera, ring
  created: number;
  shape: number[]; // of its volumes [y, x], as the pattern says; empty = not known
  volumes_done: number;
  volumes_held: number;
  records_per_second: number;
  volumes_per_second: number;
  ring: number;
  fraction: number;
  current_volume: number;
  blocks_dropped: number;
  missing_ascans: number;
  warnings: string[];
  waits_for: string;
  aip: boolean;
  angiogram: boolean;
  device: string;
}
export interface VolumeRow extends Owned {
  name: string;
  parent: string;
  index: number;
  title: string;
  state: string; // without VOLUME_STATE_
  reason: string;
  shape: number[];
  axes: string[];
  dtype: string;
  spacing_um: number[];
  lengths: boolean[]; // of each axis: whether spacing_um is a length; else it counts samples
  bytes: number;
  held: number; // since when; 0 = it is not
  expires: number; // 0 = never
  tier: string; // DEVICE, HOST, DISK; empty
  moving: string; // SPILLING, RESTORING, RELOCATING; empty
  marked: boolean; // held by a client, so that nothing discards it
  leases: number;
  raw: boolean;
  complete: boolean;
  missing: number;
  digest: string;
  last_error: string;
  path: string; // of its files, once committed
  device: string;
}
export interface OperationRow {
  name: string;
  kind: string; // COMMIT, SPILL, RESTORE, DERIVE, JOB
  state: string; // RUNNING, CANCELLING, SUCCEEDED, FAILED, CANCELLED
  done: boolean;
  target: string;
  stage: string;
  fraction: number;
  done_bytes: number;
  total_bytes: number;
  created: number;
  error: string;
  lost: boolean; // FAILED, because an earlier process of octavod died before its end
  path: string;
}

export interface LeaseRow {
  holder: string; // as it calls itself
  client: string; // name of its session's client; empty = of none
  mode: string; // SHARED, EXCLUSIVE
  expires: number; // 0 = with its session, or with the call that took it
}
export interface JobRow extends Owned {
  name: string;
  title: string;
  kind: string; // REPROCESS, DISPERSION_AUTOFOCUS, K_CALIBRATION, TOMOGRAPHY, IMPORT
  state: string; // QUEUED, RUNNING, CANCELLING, DONE, FAILED, CANCELLED, LOST (an earlier process of octavod died before its end)
  reason: string; // why it waits, failed, was cancelled or lost
  reason_code: string;
  created: number;
  started: number; // 0 = not yet, or never
  ended: number; // 0 = not yet; LOST: when it was found to be
  earlier_run: boolean; // submitted to an earlier process of octavod: its settings, steps, log lines and findings are not known
  device: string;
  queue_position: number; // 1 = next; 0 = it is in no queue
  memory_bytes: number;
  stage: string; // RECONSTRUCT, SWEEP …; empty = none yet
  fraction: number;
  step: number;
  steps: number; // 0 = not known
  eta_ms: number | null;
  warnings: string[];
  volumes: string[];
  session: string;
}
/** Volumes of a window of projections each, which slides over the scan. */
export interface Series {
  projections: number; // of a volume
  step: number; // projections from the first of a volume to the first of the next one
}
/** A job as it is now, with what the list does not show. */
export interface JobDetails extends JobRow {
  plan: string;
  labels: Record<string, string>;
  group: string;
  priority: number;
  work: string; // the field of JobSpec.work that is set; empty: the server does not have it (any more)
  trial: boolean; // tomography: one row with many axes (try_centers)
  pushed: boolean; // tomography: the projections come from a client that pushes them
  series: Series | null; // tomography: it makes several volumes
  step_count: number;
  line_count: number;
}
export interface JobStep {
  stage: string;
  step: number;
  value: number | null; // iterative methods: the residual's norm; searches: what they maximise
}
export interface JobLine {
  ms: number; // since the job was queued
  text: string;
}
export interface JobResults {
  buffer: string;
  dispersion: { a2: number; a3: number; sharpness: number; sharpness_before: number; evaluations: number } | null;
  k_linearisation: { polynomial: number[]; residual_rms_rad: number; peak_bin: number; nonlinearity_samples: number } | null;
  tomography: TomographyFindings | null;
}
/** TomographyReport without what is long: at most MOST_CENTERS axes. Not known is null. */
export interface TomographyFindings {
  algorithm: string; // what made the slices (AUTO is told as what it chose): FBP, SIRT, MLEM, CGLS, FOURIER, TV; UNSPECIFIED = not known yet
  centers: number[];
  center_count: number;
  center_source: string; // GIVEN, FILE, MIDDLE, OVERLAP, VO …
  tried: number[];
  scores: number[];
  at_edge: boolean;
  check: number | null;
  check_method: string;
  uncertainty: number | null;
  iterations: number;
  stop: string;
  residual_norm: number | null;
  relative_residual: number | null;
  series_volumes: number; // that are held so far
  series_planned: number; // 0 = the job makes no series
  overlap: number;
  outliers: number;
  not_finite: number;
  floored: number;
  unlit: number;
}
export const MOST_CENTERS = 1024;

export interface DeviceRow {
  name: string;
  backend: string;
  model: string;
  uuid: string;
  healthy: boolean;
  reason: string;
  total: number; // bytes, all of these
  budget: number;
  reserved: number;
  held: number;
  buffers: number;
  cached: number;
  detached: number;
  free: number;
  peak: number;
  imported: number;
  running_scans: number;
  running_jobs: number;
}
export interface HolderRow {
  name: string; // empty: cached memory
  kind: string; // RUNNING_SCAN, RUNNING_JOB, HELD_VOLUME, CLIENT_BUFFER, CACHED, DETACHED
  device: string;
  bytes: number;
  title: string;
  session: string;
}
export interface TierRow {
  tier: string; // HOST, DISK
  quota: number; // 0 = off
  used: number;
  volumes: number;
  path: string;
  disk_free: number;
  spilled: number;
  restored: number;
  failures: number;
}
export interface MemoryState {
  devices: DeviceRow[];
  holders: HolderRow[];
  tiers: TierRow[];
  host: { total: number; available: number; machine: number; limited_by: string } | null;
}
export interface RootRow {
  path: string;
  use: string; // COMMIT, REPLAY
  mode: string; // READ_WRITE, READ_ONLY, MISSING, NO_ACCESS
  free: number;
  quarantine_entries: number;
  quarantine_bytes: number;
  way: string; // BUFFERED, DIRECT, CUFILE; empty = not measured
  way_reason: string;
  cufile: string; // why it is not used
  rates: { way: string; bytes_per_s: number }[]; // that were measured
  measured: number; // when; 0 = never
}
/** What the caller uses of one thing that octavod counts, and may use. */
export interface QuotaRow {
  kind: string; // as in quotas.ts
  used: number;
  allowed: number; // 0 = no limit
}
export interface ServerInfo {
  version: string;
  build: string;
  server_id: string;
  started: number;
  draining: boolean;
  listening: string[];
  insecure_listening: string[];
  recovered: string[];
  backends: { name: string; available: boolean; chosen: boolean; reason: string; devices: number }[];
  sources: { name: string; available: boolean; reason: string }[];
  storage: RootRow[];
  quotas: QuotaRow[]; // of octavo web, and so of all its pages together
  storage_roots: string[]; // that its commits and imports may name; empty = all
}
export interface ViewerStatus {
  version: string; // of octavo web
  node: string;
  viewers: number;
  views: number;
  buffered_bytes: number;
  resident_bytes: number;
  subscriptions: { parent: string; product: string; axis: string; index: number; slab: [number, number] | null; width: number; encoding: string; views: number; frames: number }[];
}
export interface EventRow {
  time: number; // ms since 1970, by the clock of octavod
  parent: string; // scans/<id> or jobs/<id>
  volume: string; // the last one that it is about; empty = none
  kind: string; // STATE, STARTED, VOLUME_DONE …; JOB of jobs
  text: string;
  count: number; // alike ones that this row stands for; it is the last of them
  bad: boolean; // something was lost, or failed
}

/** An error that says which field is wrong and what is allowed. */
export class ProtocolError extends Error {}

function fail(field: string, value: unknown, allowed: string): never {
  const text = JSON.stringify(value) ?? "nothing";
  throw new ProtocolError(`${field} is ${text.length > 60 ? text.slice(0, 60) + "…" : text}; allowed: ${allowed}`);
}

type Fields = Record<string, unknown>;

function fields(value: unknown, name: string, allowed: readonly string[]): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) fail(name, value, "an object");
  for (const key of Object.keys(value)) if (!allowed.includes(key)) fail(name ? `${name}.${key}` : key, (value as Fields)[key], `only ${allowed.join(", ")}`);
  return value as Fields;
}
function number(value: unknown, field: string, lo: number, hi: number): number {
  if (typeof value !== "number" || !(value >= lo && value <= hi)) fail(field, value, `${lo} ... ${hi}`);
  return value;
}
function whole(value: unknown, field: string, lo: number, hi: number): number {
  if (!Number.isSafeInteger(value)) fail(field, value, `whole numbers ${lo} ... ${hi}`);
  return number(value, field, lo, hi);
}
function one<T extends string>(value: unknown, field: string, allowed: readonly T[]): T {
  if (!allowed.includes(value as T)) fail(field, value, allowed.join(", "));
  return value as T;
}

function slabOf(value: unknown): [number, number] | null {
  if (value === undefined || value === null) return null;
  if (!Array.isArray(value) || value.length !== 2) fail("topic.slab", value, "null, or [begin, end]");
  const begin = whole(value[0], "topic.slab[0]", 0, 2 ** 31);
  return [begin, whole(value[1], "topic.slab[1]", begin + 1, 2 ** 31)];
}

const JOB = /^jobs\/[0-9A-Za-z_-]{1,64}$/;
const PARENT = /^(scans|jobs)\/[0-9A-Za-z_-]{1,64}$/;

function topicOf(value: unknown): Topic {
  const given = fields(value, "topic", ["parent", "product", "axis", "index", "slab", "width"]);
  if (typeof given.parent !== "string" || !PARENT.test(given.parent)) fail("topic.parent", given.parent, "scans/<id> and jobs/<id>");
  return {
    parent: given.parent,
    product: one(given.product, "topic.product", PRODUCTS),
    axis: one(given.axis, "topic.axis", AXES),
    index: whole(given.index, "topic.index", -1, 2 ** 31),
    slab: slabOf(given.slab),
    width: whole(given.width, "topic.width", 16, 4096),
  };
}

/** A message of the page. Throws ProtocolError, which names the field, its value and what is allowed. */
export function parseFromPage(text: string): FromPage {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new ProtocolError("the message is no JSON");
  }
  const given = fields(value, "", ["type", "view", "topic", "encoding", "rate_hz", "resume", "sequence", "painted_ms", "job", "server"]);
  const type = one(given.type, "type", ["open", "ack", "close", "look"] as const);
  if (type === "look") {
    if (typeof given.job !== "string" || (given.job !== "" && !JOB.test(given.job))) fail("job", given.job, "jobs/<id>, and empty");
    if (typeof given.server !== "boolean") fail("server", given.server, "true, false");
    return { type, job: given.job, server: given.server };
  }
  const view = whole(given.view, "view", 0, 255);
  if (type === "close") return { type, view };
  if (type === "ack")
    return { type, view, sequence: whole(given.sequence, "sequence", 0, Number.MAX_SAFE_INTEGER), painted_ms: number(given.painted_ms, "painted_ms", 0, 3.6e6) };
  const rate = number(given.rate_hz ?? 30, "rate_hz", 0.1, MOST_RATE_HZ);
  const resume = given.resume === undefined || given.resume === null ? null : whole(given.resume, "resume", 0, Number.MAX_SAFE_INTEGER);
  return { type, view, topic: topicOf(given.topic), encoding: one(given.encoding ?? "AUTO", "encoding", ENCODINGS), rate_hz: rate, resume };
}

export interface FrameHeader {
  view: number;
  complete: boolean;
  jpeg: boolean;
  schema: number;
  dropped: number;
  sequence: number;
  volume: number; // -1 = none
  server_us: number | null;
  bridge_us: number;
  length: number;
}

const clamp32 = (value: number) => Math.max(0, Math.min(NONE - 1, Math.round(value)));

export function writeHeader(header: FrameHeader): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES);
  const data = new DataView(bytes.buffer);
  data.setUint8(0, header.view);
  data.setUint8(1, (header.complete ? 1 : 0) | (header.jpeg ? 2 : 0));
  data.setUint16(2, header.schema & 0xffff, true);
  data.setUint32(4, clamp32(header.dropped), true);
  data.setBigUint64(8, BigInt(header.sequence), true);
  data.setUint32(16, header.volume < 0 ? NONE : header.volume, true);
  data.setUint32(20, header.server_us === null ? NONE : clamp32(header.server_us), true);
  data.setUint32(24, clamp32(header.bridge_us), true);
  data.setUint32(28, header.length, true);
  return bytes;
}

/** The header of a frame; throws ProtocolError if the bytes are none. */
export function readHeader(bytes: ArrayBuffer): FrameHeader {
  if (bytes.byteLength < HEADER_BYTES) throw new ProtocolError(`a frame of ${bytes.byteLength} bytes has no header`);
  const data = new DataView(bytes);
  const flags = data.getUint8(1);
  const volume = data.getUint32(16, true);
  const server = data.getUint32(20, true);
  const length = data.getUint32(28, true);
  if (length !== bytes.byteLength - HEADER_BYTES) throw new ProtocolError(`a frame says ${length} bytes and has ${bytes.byteLength - HEADER_BYTES}`);
  return {
    view: data.getUint8(0),
    complete: (flags & 1) !== 0,
    jpeg: (flags & 2) !== 0,
    schema: data.getUint16(2, true),
    dropped: data.getUint32(4, true),
    sequence: Number(data.getBigUint64(8, true)),
    volume: volume === NONE ? -1 : volume,
    server_us: server === NONE ? null : server,
    bridge_us: data.getUint32(24, true),
    length,
  };
}
