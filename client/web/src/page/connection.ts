// The socket to octavo-web: connects again by itself, resumes the views, and keeps what there is.
import {
  type DaemonMessage, type EventsMessage, type FrameHeader, type FromPage, type FromServer, type Hello, type JobDetails, type JobLine, type JobMessage, type JobResults, type JobRow, type JobStep,
  type LeaseRow, type Link, type OperationRow, readHeader, type ScanRow, type Schema, type ServerMessage, type Topic, VERSION, type Encoding, type VolumeRow,
} from "../wire/protocol";
import { Store } from "./store";

const MOST_STEPS = 4096;
const MOST_LINES = 1024;
const RETRY_MS = [300, 600, 1200, 2500];

export type Phase =
  | { name: "connecting" }
  | { name: "open" }
  | { name: "lost"; message: string } // tries again by itself
  | { name: "outside"; message: string }; // no session: only the address with a token helps

export interface ViewEvents {
  schema(schema: Schema): void;
  frame(header: FrameHeader, payload: Uint8Array<ArrayBuffer>, received: number): void;
  ended(reason: string, message: string): void;
}

/** The job that is looked at. */
export interface SeenJob {
  name: string;
  gone: string; // why there is no such job; empty = there is
  job: JobDetails | null; // null: not told yet
  results: JobResults | null;
  steps: JobStep[];
  lines: JobLine[];
}

/** One open view. `acknowledge` says that the frame is on the screen. */
export class ViewHandle {
  resume: number | null = null;
  constructor(
    private readonly connection: Connection,
    readonly view: number,
    readonly topic: Topic,
    readonly encoding: Encoding,
    readonly rateHz: number,
    readonly events: ViewEvents,
  ) {}

  acknowledge(sequence: number, paintedMs: number): void {
    if (!this.connection.has(this)) return; // its number may be that of another view by now
    this.resume = sequence;
    this.connection.send({ type: "ack", view: this.view, sequence, painted_ms: Math.max(0, Math.min(3.6e6, paintedMs)) });
  }
  close(): void {
    this.connection.close(this);
  }
}

export class Connection {
  readonly phase = new Store<Phase>({ name: "connecting" });
  readonly hello = new Store<Hello | null>(null);
  readonly daemon = new Store<DaemonMessage>({ type: "daemon", up: false, refused: false, message: "", server_id: "", daemon_version: "", caller: null });
  readonly link = new Store<Link>({ type: "link", rtt_ms: 0, mbit_s: 0 });
  readonly scans = new Store<ReadonlyMap<string, ScanRow>>(new Map());
  readonly volumes = new Store<ReadonlyMap<string, VolumeRow>>(new Map());
  readonly operations = new Store<ReadonlyMap<string, OperationRow>>(new Map());
  readonly jobs = new Store<ReadonlyMap<string, JobRow>>(new Map());
  readonly leases = new Store<ReadonlyMap<string, LeaseRow[]>>(new Map());
  readonly job = new Store<SeenJob | null>(null);
  readonly server = new Store<Omit<ServerMessage, "type">>({});
  readonly events = new Store<Omit<EventsMessage, "type">>({ events: [], left_out: 0 });

  private socket: WebSocket | null = null;
  private readonly views = new Map<number, ViewHandle>();
  private failures = 0;
  private look = { job: "", server: false };

  start(): void {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/socket`);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onmessage = (event) => (typeof event.data === "string" ? this.text(JSON.parse(event.data) as FromServer) : this.frame(event.data as ArrayBuffer));
    socket.onclose = (event) => void this.closed(event);
  }

  private async closed(event: CloseEvent): Promise<void> {
    this.socket = null;
    let message = event.reason || "the connection broke";
    // Browsers do not tell why an upgrade was refused; a plain request does.
    try {
      const answer = await fetch("api/status");
      if (answer.status === 401) {
        this.phase.set({ name: "outside", message: (await answer.json()).error.message });
        return;
      }
      if (!answer.ok) message = (await answer.json()).error.message;
    } catch {
      message = "octavo web does not answer";
    }
    this.phase.set({ name: "lost", message });
    setTimeout(() => this.start(), RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)]);
  }

  private text(message: FromServer): void {
    switch (message.type) {
      case "hello":
        if (message.version !== VERSION) return location.reload(); // octavo-web was replaced
        this.failures = 0;
        this.hello.set(message);
        this.phase.set({ name: "open" });
        for (const view of this.views.values()) this.open(view);
        if (this.look.job || this.look.server) this.send({ type: "look", ...this.look });
        return;
      case "daemon":
        return this.daemon.set(message);
      case "link":
        return this.link.set(message);
      case "state":
        merge(this.scans, message.scans, message.fresh);
        merge(this.volumes, message.volumes, message.fresh);
        merge(this.operations, message.operations, message.fresh);
        merge(this.jobs, message.jobs, message.fresh);
        merge(this.leases, message.leases, message.fresh);
        return;
      case "job":
        return this.takeJob(message);
      case "server": {
        const { type: _, ...parts } = message;
        return this.server.set({ ...this.server.value, ...parts });
      }
      case "events":
        return this.events.set(message);
      case "schema":
        return this.viewOf(message)?.events.schema(message);
      case "end": {
        const view = this.viewOf(message);
        if (view) this.views.delete(message.view);
        return view?.events.ended(message.reason, message.message);
      }
    }
  }

  private takeJob(told: JobMessage): void {
    if (told.name !== this.look.job) return;
    const before = this.job.value?.name === told.name ? this.job.value : null;
    const { job = null, steps = [], lines = [] } = told;
    this.job.set({
      name: told.name,
      gone: told.gone,
      job: job ?? before?.job ?? null,
      results: told.results ?? before?.results ?? null,
      steps: told.fresh ? steps : [...(before?.steps ?? []), ...steps].slice(-MOST_STEPS),
      lines: told.fresh ? lines : [...(before?.lines ?? []), ...lines].slice(-MOST_LINES),
    });
  }

  /** What the page shows beside pictures: a job (empty = none), the server. */
  lookAt(change: Partial<{ job: string; server: boolean }>): void {
    const before = this.look;
    this.look = { ...before, ...change };
    if (before.job !== this.look.job) this.job.set(null);
    if (before.job !== this.look.job || before.server !== this.look.server) this.send({ type: "look", ...this.look });
  }

  /** The view that a message is of; null if it is of one that had this number before: the message was on its way already. */
  private viewOf(message: { view: number; topic: Topic }): ViewHandle | null {
    const view = this.views.get(message.view);
    const fields = ["parent", "product", "axis", "index", "width"] as const;
    const same = view && fields.every((field) => view.topic[field] === message.topic[field]) && String(view.topic.slab) === String(message.topic.slab);
    return same ? view : null;
  }

  private frame(data: ArrayBuffer): void {
    const received = performance.now();
    const header = readHeader(data);
    this.views.get(header.view)?.events.frame(header, new Uint8Array(data, data.byteLength - header.length), received);
  }

  send(message: FromPage): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  private open(view: ViewHandle): void {
    this.send({ type: "open", view: view.view, topic: view.topic, encoding: view.encoding, rate_hz: view.rateHz, resume: view.resume });
  }

  /** Shows a topic as the view of this number; another one of the number is closed. */
  show(number: number, topic: Topic, encoding: Encoding, rateHz: number, events: ViewEvents): ViewHandle {
    const view = new ViewHandle(this, number, topic, encoding, rateHz, events);
    this.views.set(number, view);
    this.open(view);
    return view;
  }

  has(view: ViewHandle): boolean {
    return this.views.get(view.view) === view;
  }

  close(view: ViewHandle): void {
    if (!this.has(view)) return;
    this.views.delete(view.view);
    this.send({ type: "close", view: view.view });
  }
}

function merge<T>(store: Store<ReadonlyMap<string, T>>, changes: Record<string, T | null> | undefined, fresh: boolean | undefined): void {
  if (!changes && !fresh) return;
  const next = new Map(fresh ? [] : store.value);
  for (const [name, row] of Object.entries(changes ?? {})) {
    if (row === null) next.delete(name);
    else next.set(name, row);
  }
  store.set(next);
}

export const connection = new Connection();

/** A call that failed: reason and field of the daemon's answer. */
export class CallError extends Error {
  constructor(
    readonly reason: string,
    readonly field: string,
    message: string,
  ) {
    super(message);
  }
}

async function post(path: string, body: unknown): Promise<unknown> {
  let answer: Response;
  try {
    answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  } catch {
    throw new CallError("AWAY", "", "octavo web does not answer");
  }
  let told;
  try {
    told = await answer.json();
  } catch {
    throw new CallError("NO_JSON", "", `the answer is no JSON (HTTP status ${answer.status}): does something stand between this page and octavo web?`);
  }
  if (!answer.ok) throw new CallError(told?.error?.reason ?? "", told?.error?.field ?? "", told?.error?.message ?? `HTTP status ${answer.status}`);
  return told;
}

/** A call of the contract, fields as the protos name them. */
export function call(name: string, request: object): Promise<any> {
  return post(`api/${name}`, request);
}

export const enter = (token: string) => post("session", { token });
export const invite = async () => ((await post("session/invitation", {})) as { url: string }).url;
