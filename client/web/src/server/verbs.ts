// The calls that pages may make: POST /api/<Service>/<Method> with the request as JSON, fields as the
// protos name them. Everything else of the contract is out of their reach.
import * as grpc from "@grpc/grpc-js";

import { type Daemon, DaemonError, type Message, type Service } from "./daemon";
import { Refusal } from "./guard";

interface Verb {
  service: Service;
  changes: boolean; // refused with --read-only
  seconds?: number;
  mostBytes?: number; // of the request
}

const MOST_BODY_BYTES = 256 << 10;
const MOST_SPEC_BYTES = 4 << 20; // jobs have angles, one for each projection

const VERBS: Record<string, Verb> = {
  "VolumeService/GetVolume": { service: "VolumeService", changes: false },
  "VolumeService/CommitVolume": { service: "VolumeService", changes: true },
  "VolumeService/DiscardVolume": { service: "VolumeService", changes: true },
  "VolumeService/HoldVolume": { service: "VolumeService", changes: true },
  "VolumeService/ReleaseVolume": { service: "VolumeService", changes: true },
  "VolumeService/SpillVolume": { service: "VolumeService", changes: true },
  "VolumeService/RestoreVolume": { service: "VolumeService", changes: true },
  "OperationService/CancelOperation": { service: "OperationService", changes: true },
  "ScanService/GetScan": { service: "ScanService", changes: false },
  "ScanService/PlanScan": { service: "ScanService", changes: false },
  "ScanService/PlotWaveform": { service: "ScanService", changes: false },
  "ScanService/UpdateScan": { service: "ScanService", changes: true },
  "ScanService/SubmitScan": { service: "ScanService", changes: true },
  "ScanService/StopScan": { service: "ScanService", changes: true },
  "ScanService/CancelScan": { service: "ScanService", changes: true },
  "JobService/GetJob": { service: "JobService", changes: false },
  "JobService/PlanJob": { service: "JobService", changes: false, mostBytes: MOST_SPEC_BYTES },
  "JobService/SubmitJob": { service: "JobService", changes: true, mostBytes: MOST_SPEC_BYTES },
  "JobService/CancelJob": { service: "JobService", changes: true },
};

const HTTP: Partial<Record<number, number>> = {
  [grpc.status.INVALID_ARGUMENT]: 400,
  [grpc.status.OUT_OF_RANGE]: 400,
  [grpc.status.NOT_FOUND]: 404,
  [grpc.status.PERMISSION_DENIED]: 403,
  [grpc.status.UNAUTHENTICATED]: 403, // the viewer's, not the page's
  [grpc.status.ALREADY_EXISTS]: 409,
  [grpc.status.ABORTED]: 409,
  [grpc.status.FAILED_PRECONDITION]: 409,
  [grpc.status.RESOURCE_EXHAUSTED]: 429,
  [grpc.status.UNIMPLEMENTED]: 501,
  [grpc.status.UNAVAILABLE]: 503,
  [grpc.status.DEADLINE_EXCEEDED]: 504,
};

/** Status and body of the answer to a call that failed. */
export function failure(error: unknown): { status: number; body: Message } {
  if (error instanceof Refusal) return { status: error.status, body: { error: { reason: error.reason, field: error.field, message: error.message } } };
  if (error instanceof DaemonError) {
    // Without a reason it is the library's text for a connection that failed, which does not say to what.
    const message = error.away && !error.reason ? `octavod does not answer: ${error.message}` : error.message;
    return { status: HTTP[error.code] ?? 500, body: { error: { reason: error.reason || grpc.status[error.code], field: error.field, message } } };
  }
  return { status: 500, body: { error: { reason: "INTERNAL", field: "", message: error instanceof Error ? error.message : String(error) } } };
}

/** The answer with bytes as base64, as JSON has them in protobuf's own mapping. */
function plain(value: unknown): unknown {
  if (Buffer.isBuffer(value)) return value.toString("base64");
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value === "object" && value !== null) return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, plain(entry)]));
  return value;
}

/** The most bytes that the body of a call may have. */
export const mostBytes = (name: string) => (Object.hasOwn(VERBS, name) ? VERBS[name].mostBytes : undefined) ?? MOST_BODY_BYTES;

export async function callVerb(daemon: Daemon, readOnly: boolean, name: string, text: string): Promise<Message> {
  const verb = Object.hasOwn(VERBS, name) ? VERBS[name] : undefined;
  if (!verb) throw new Refusal(404, "NO_CALL", `there is no call ${name.slice(0, 80)}; there are ${Object.keys(VERBS).join(", ")}`);
  if (verb.changes && readOnly) throw new Refusal(403, "READ_ONLY", "this viewer was started with --read-only: it changes nothing");
  let request: unknown;
  try {
    request = JSON.parse(text || "{}");
  } catch {
    throw new Refusal(400, "BAD_JSON", "the body is no JSON");
  }
  if (typeof request !== "object" || request === null || Array.isArray(request)) throw new Refusal(400, "BAD_JSON", "the body is no JSON object");
  daemon.contract.check(verb.service, name.split("/")[1], request);
  try {
    return plain(await daemon.call(verb.service, name.split("/")[1], request, verb.seconds));
  } catch (error) {
    if (error instanceof DaemonError) throw error;
    // The encoder's own words for a value that does not fit its field.
    throw new Refusal(400, "BAD_REQUEST", (error as Error).message);
  }
}
