// The last events of all scans and jobs: one subscription, whatever the number of viewers. It begins when the catalogue hears of
// the volumes, and gives way to them where a quota has no room for both. Alike events of one scan are one row with a count, so that
// a fast scan does not push out what happened to the others.
import type { ClientReadableStream, ServiceError } from "@grpc/grpc-js";

import type { EventRow, JobRow, ScanRow } from "../wire/protocol";
import { ms, without } from "./convert";
import type { Daemon, Message } from "./daemon";

const MOST_EVENTS = 200;
const QUEUE = 1024;
const RETRY_MS = 1000;
// Each of these is told by itself: they are few.
const SINGLE = ["STATE", "STARTED", "FINISHED", "INTERRUPTED", "JOB", "LOST"];
const BAD = ["INTERRUPTED", "GAP", "VOLUME_DROPPED", "EXPIRING"];

function isBad(kind: string, event: Message): boolean {
  return BAD.includes(kind) || event.scan_state === "SCAN_STATE_FAILED" || event.volume_state === "VOLUME_STATE_FAILED";
}

function textOf(kind: string, event: Message): string {
  const volume = Number(event.volume_index);
  const parts = [event.text || kind.toLowerCase().replaceAll("_", " ")];
  if (kind === "MARKER" && event.marker) parts.push(`marker ${event.marker}`);
  if (kind === "GAP" && Number(event.count) > 0) parts.push(`${event.count} records lost before record ${event.record}`);
  if (volume >= 0 && !parts[0].includes(`volume ${volume}`)) parts.push(`volume ${volume}`);
  return parts.join("; ");
}

export class Events {
  version = 0; // of the list: it grows with each change
  leftOut = 0;
  private readonly rows = new Map<string, EventRow>(); // in the order of their last event
  private singles = 0;
  private call: ClientReadableStream<Message> | null = null;
  private timer: NodeJS.Timeout | null = null;
  private stopped = false;

  refusal = ""; // why the daemon tells no events although it answers

  constructor(private readonly daemon: Daemon) {}

  private subscribe(): void {
    this.timer = null;
    if (this.stopped) return;
    const call = this.daemon.stream("StreamService", "Subscribe", { products: ["PRODUCT_EVENT"], delivery: "DELIVERY_DROP_OLDEST", queue_length: QUEUE });
    this.call = call;
    const again = () => {
      if (this.call !== call) return;
      this.call = null;
      this.timer = setTimeout(() => this.subscribe(), RETRY_MS);
    };
    call.on("metadata", () => {
      if (this.call === call) this.refusal = "";
    });
    call.on("data", ({ frame }: Message) => {
      if (this.call === call && frame?.event) this.take(frame);
    });
    call.on("error", (error: ServiceError) => {
      const explained = this.daemon.explained(error);
      if (this.call === call) this.refusal = explained.away ? "" : explained.message; // the catalogue tells that the daemon is away
      again();
    });
    call.on("end", () => setImmediate(again));
  }

  /** The daemon answers again: what happens from now on is not to be missed. */
  again(): void {
    if (this.call) return;
    if (this.timer) clearTimeout(this.timer);
    this.subscribe();
  }

  /** Leaves its place in the quota to another stream, until `again`. */
  giveWay(): void {
    const call = this.call;
    this.call = null;
    this.refusal = "";
    if (this.timer) clearTimeout(this.timer);
    this.timer = null;
    call?.cancel();
  }

  private take(frame: Message): void {
    const { event, parent } = frame;
    const kind = without(event.kind, "KIND_");
    this.leftOut += Number(frame.dropped_before);
    const row: EventRow = { time: ms(event.event_time), parent, volume: frame.volume, kind, text: textOf(kind, event), count: 1, bad: isBad(kind, event) };
    this.put(SINGLE.includes(kind) ? "" : [parent, kind, event.volume_state, event.marker].join(" "), row);
  }

  /** A job that has changed its state: the daemon has no events of these. */
  job(job: JobRow): void {
    const time = job.ended || job.started || job.created;
    const words = { QUEUED: "job is queued", RUNNING: "job runs", CANCELLING: "job is being cancelled", DONE: "job is done", FAILED: "job has failed", CANCELLED: "job was cancelled" }[job.state] ?? job.state;
    const reason = ["QUEUED", "FAILED", "CANCELLED"].includes(job.state) && job.reason ? `: ${job.reason}` : "";
    this.put("", { time, parent: job.name, volume: "", kind: "JOB", text: words + reason, count: 1, bad: job.state === "FAILED" });
  }

  /** A scan or job that was lost when the daemon died. The event has the time of the next start: nobody knows when it was lost. */
  lost(row: ScanRow | JobRow): void {
    const what = row.name.startsWith("jobs/") ? "job" : "scan";
    this.put("", { time: Date.now(), parent: row.name, volume: "", kind: "LOST", text: `${what} was lost with the server: ${row.reason.replace(/\b[A-Z]{4,}\b/g, (word) => word.toLowerCase())}`, count: 1, bad: true });
  }

  private put(alike: string, row: EventRow): void {
    const key = alike || `#${++this.singles}`;
    const before = this.rows.get(key);
    if (before) row.count = before.count + 1;
    this.rows.delete(key);
    this.rows.set(key, row);
    if (this.rows.size > MOST_EVENTS) this.rows.delete(this.rows.keys().next().value!);
    this.version++;
  }

  /** The newest first. */
  list(): EventRow[] {
    return [...this.rows.values()].reverse();
  }

  stop(): void {
    this.stopped = true;
    this.giveWay();
  }
}
