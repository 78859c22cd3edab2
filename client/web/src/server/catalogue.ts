// What the daemon has: whether it answers, its scans, volumes, operations, jobs and leases. Each change
// goes to all viewers.
import type { ClientReadableStream, ServiceError } from "@grpc/grpc-js";

import type { Caller, DaemonMessage, JobRow, LeaseRow, OperationRow, ScanRow, VolumeRow } from "../wire/protocol";
import { ms, without } from "./convert";
import { type Daemon, DaemonError, type Message } from "./daemon";
import type { Events } from "./events";
import { jobRow } from "./job_rows";
import { type Kind, KINDS, type Viewer } from "./viewer";

const POLL_MS = 500;
const RETRY_MS = 500;
const MOST_SCANS = 30;
const MOST_OPERATIONS = 100;
const MOST_JOBS = 100;
const MOST_LEASES = 1000;
const ALL_JOBS_EVERY = 30; // polls
const AT_WORK = "state = QUEUED OR state = RUNNING OR state = CANCELLING";
const WORKING = ["QUEUED", "RUNNING", "DRAINING", "CANCELLING"];

type Row = ScanRow | VolumeRow | OperationRow | JobRow | LeaseRow[];

function patternShape(pattern: Message): number[] {
  const raster = pattern?.raster ?? pattern?.repeated_raster?.raster;
  return raster ? [Number(raster.bscans_per_volume), Number(raster.ascans_per_bscan)] : [];
}

function scanRow(scan: Message): ScanRow {
  const spec = scan.spec ?? {};
  return {
    name: scan.name,
    title: spec.title ?? "",
    state: without(scan.state, "SCAN_STATE_"),
    reason: scan.reason,
    earlier_run: scan.earlier_run,
    source: spec.source ?? "",
    created: ms(scan.create_time),
    shape: patternShape(spec.pattern),
    volumes_done: Number(scan.volumes_done),
    volumes_held: Number(scan.volumes_held),
    records_per_second: scan.records_per_second,
    volumes_per_second: scan.volumes_per_second,
    ring: scan.ring_occupancy,
    fraction: scan.current_fraction,
    current_volume: Number(scan.current_volume),
    blocks_dropped: Number(scan.blocks_dropped),
    missing_ascans: Number(scan.missing_ascans),
    warnings: scan.warnings,
    waits_for: scan.waits_for,
    aip: spec.products?.aip ?? false,
    angiogram: (spec.products?.angiography ?? "").endsWith("VARIANCE") || (spec.products?.angiography ?? "").endsWith("DECORRELATION"),
    device: scan.device,
    owner: scan.owner,
    project: scan.project,
  };
}

function volumeRow(volume: Message): VolumeRow {
  return {
    name: volume.name,
    parent: volume.parent,
    index: Number(volume.index),
    title: volume.title,
    state: without(volume.state, "VOLUME_STATE_"),
    reason: volume.reason,
    shape: volume.shape.map(Number),
    axes: volume.axes,
    dtype: without(volume.dtype, "DTYPE_"),
    spacing_um: volume.spacing_um,
    lengths: volume.spacing_units.map((unit: string) => unit === "SPACING_UNIT_MICROMETRE"),
    bytes: Number(volume.bytes),
    held: ms(volume.hold_time),
    expires: ms(volume.expire_time),
    tier: without(volume.tier, "TIER_"),
    moving: without(volume.moving, "VOLUME_MOVE_"),
    marked: volume.marked,
    leases: volume.shared_leases,
    raw: volume.raw,
    complete: volume.complete,
    missing: Number(volume.missing_ascans),
    digest: volume.digest,
    last_error: volume.last_error,
    path: volume.commit?.path ?? "",
    device: volume.device,
    owner: volume.owner,
    project: volume.project,
  };
}

function operationRow(daemon: Daemon, operation: Message): OperationRow {
  const progress = operation.progress ?? {};
  const error = daemon.statusError(operation.error);
  return {
    name: operation.name,
    kind: without(operation.kind, "OPERATION_KIND_"),
    state: without(operation.state, "OPERATION_STATE_"),
    done: operation.done,
    target: operation.target,
    stage: without(progress.stage ?? "", "OPERATION_STAGE_"),
    fraction: progress.fraction ?? 0,
    done_bytes: Number(progress.done_bytes ?? 0),
    total_bytes: Number(progress.total_bytes ?? 0),
    created: ms(operation.create_time),
    error: error?.message ?? "",
    lost: operation.earlier_run && error?.reason === "LOST",
    path: operation.commit?.path ?? "",
  };
}

const callerOf = (caller: Message): Caller | null => caller && { name: caller.name, role: without(caller.role, "ROLE_"), project: caller.project };

/** The rows of leases by what is leased. `clients`: names of the clients of sessions. */
function leaseRows(leases: Message[], clients: Map<string, string>): Map<string, LeaseRow[]> {
  const rows = new Map<string, LeaseRow[]>();
  for (const lease of leases) {
    const row = { holder: lease.holder, client: lease.session ? clients.get(lease.session) || lease.session : "", mode: without(lease.mode, "LEASE_MODE_"), expires: ms(lease.expire_time) };
    rows.set(lease.resource, [...(rows.get(lease.resource) ?? []), row]);
  }
  return rows;
}

export class Catalogue {
  private readonly viewers = new Set<Viewer>();
  private readonly rows = Object.fromEntries(KINDS.map((kind) => [kind, new Map()])) as Record<Kind, Map<string, Row>>;
  private readonly texts = new Map<string, string>(); // kind/name: the row as it was told
  private status: DaemonMessage = { type: "daemon", up: false, refused: false, message: "connecting", server_id: "", daemon_version: "", caller: null };
  private watch: ClientReadableStream<Message> | null = null;
  private timer: NodeJS.Timeout | null = null;
  private retry: NodeJS.Timeout | null = null; // to connect; one at a time, however many calls have failed
  private words = ""; // of the daemon, when it began to answer
  private stopped = false;
  private since = Date.now(); // when this daemon began to answer
  private polls = 0;
  private jobsAtWork = ""; // their names and states, and those of the operations of jobs
  private readonly cutOff = new Set<string>(); // scans and jobs that were at work when the daemon before was last heard of

  /** @param back called when the daemon tells of its volumes, and did not before */
  constructor(
    private readonly daemon: Daemon,
    private readonly events: Events,
    private readonly back: () => void,
  ) {
    void this.connect();
  }

  get up(): boolean {
    return this.status.up;
  }

  private async connect(): Promise<void> {
    this.retry = null;
    if (this.stopped) return;
    try {
      const info = await this.daemon.call("SystemService", "GetInfo", {}, 5);
      if (this.stopped) return;
      // What an earlier daemon had is gone; the watch and the lists tell what there is.
      for (const kind of ["scans", "jobs"] as const) for (const [name, row] of this.rows[kind]) if (WORKING.includes((row as ScanRow | JobRow).state)) this.cutOff.add(name);
      for (const kind of KINDS) for (const name of [...this.rows[kind].keys()]) this.put(kind, name, null);
      this.since = Date.now();
      this.polls = 0;
      this.words = info.draining ? "it ends, and takes no new work" : "";
      // A refusal stays told until a watch lasts.
      const { refused } = this.status;
      this.tellStatus({ up: true, refused, message: refused ? this.status.message : this.words, server_id: info.server_id, daemon_version: info.version, caller: callerOf(info.caller) });
      this.watchVolumes();
      await this.poll();
    } catch (error) {
      this.down(error instanceof DaemonError ? error.message : String(error));
    }
  }

  private watchVolumes(): void {
    this.watch?.cancel();
    const watch = this.daemon.stream("VolumeService", "WatchVolumes", {});
    this.watch = watch;
    watch.on("data", (news: Message) => {
      if (this.watch !== watch) return;
      const row = volumeRow(news.volume);
      this.put("volumes", row.name, row);
      // Told once in its last state, so that pages can say what became of it.
      if (news.kind === "KIND_GONE") this.put("volumes", row.name, null);
    });
    // The daemon has taken the watch when it sends its first header. The volumes come first: whatever else this program subscribes to
    // counts in the same quota, and would keep the volumes out for as long as it lasts.
    watch.on("metadata", () => {
      if (this.watch !== watch) return;
      if (this.status.refused) this.tellStatus({ ...this.status, refused: false, message: this.words });
      this.back();
    });
    watch.on("error", (error: ServiceError) => {
      if (this.watch !== watch) return;
      const explained = this.daemon.explained(error);
      this.down(explained.message, explained.reason === "QUOTA");
    });
    watch.on("end", () => {
      setImmediate(() => {
        if (this.watch === watch) this.down("it has ended the watch of the volumes");
      });
    });
  }

  /** What changes all the time is asked for while somebody looks. */
  private async poll(): Promise<void> {
    this.timer = null;
    if (this.stopped || !this.status.up) return;
    if (this.viewers.size > 0) {
      const failed: string[] = [];
      // A list that fails keeps no other one from pages, and is told.
      const take = async (what: string, list: () => Promise<void>) => {
        try {
          await list();
        } catch (error) {
          if (!(error instanceof DaemonError) || error.away) throw error;
          failed.push(`${what}: ${error.message}`);
        }
      };
      try {
        await Promise.all([
          take("scans", async () => {
            const rows: ScanRow[] = (await this.daemon.call("ScanService", "ListScans", { page_size: MOST_SCANS }, 10)).scans.map(scanRow);
            for (const row of rows) if (this.cutOff.delete(row.name) && row.state === "LOST") this.events.lost(row);
            this.replace("scans", rows);
          }),
          take("operations and jobs", async () => {
            const { operations } = await this.daemon.call("OperationService", "ListOperations", { page_size: MOST_OPERATIONS }, 10);
            const rows: OperationRow[] = operations.map((operation: Message) => operationRow(this.daemon, operation));
            this.replace("operations", rows);
            await this.pollJobs(rows.filter((row) => row.kind === "JOB"));
          }),
          take("leases", async () => this.takeLeases((await this.daemon.call("SessionService", "ListLeases", { page_size: MOST_LEASES }, 10)).leases)),
        ]);
        if (this.events.refusal) failed.push(`events: ${this.events.refusal}`);
        if (this.status.up && !this.status.refused) this.tellStatus({ ...this.status, message: failed.length > 0 ? `it does not tell all that there is (${failed.join("; ")})` : this.words });
      } catch (error) {
        if (error instanceof DaemonError && error.away) return this.down(error.message);
        this.tellStatus({ ...this.status, message: `what it answered could not be read (${(error as Error).message})` });
      }
    }
    if (!this.stopped && this.status.up && !this.timer) this.timer = setTimeout(() => void this.poll(), POLL_MS);
  }

  /** The jobs at work each time; all of them, with their specs, only if one has begun or ended, and now and then. */
  private async pollJobs(operations: OperationRow[]): Promise<void> {
    const { jobs } = await this.daemon.call("JobService", "ListJobs", { page_size: MOST_JOBS, filter: AT_WORK }, 10);
    const rows: JobRow[] = jobs.map(jobRow);
    const atWork = [...rows, ...operations].map((row) => `${row.name} ${row.state}`).join();
    if (atWork === this.jobsAtWork && this.polls++ % ALL_JOBS_EVERY !== 0) return rows.forEach((row) => this.putJob(row));
    const all = await this.daemon.call("JobService", "ListJobs", { page_size: MOST_JOBS }, 10);
    // Those that wait or run stay in the list, however many have ended since they were queued.
    const every = new Map<string, JobRow>([...rows, ...(all.jobs.map(jobRow) as JobRow[])].map((row) => [row.name, row]));
    for (const name of [...this.rows.jobs.keys()]) if (!every.has(name)) this.put("jobs", name, null);
    for (const row of [...every.values()].reverse()) this.putJob(row);
    this.jobsAtWork = atWork;
  }

  private putJob(row: JobRow): void {
    const before = this.rows.jobs.get(row.name) as JobRow | undefined;
    if (this.cutOff.delete(row.name) && row.state === "LOST") this.events.lost(row);
    else if (before ? before.state !== row.state : row.created >= this.since) this.events.job(row);
    this.put("jobs", row.name, row);
  }

  private async takeLeases(leases: Message[]): Promise<void> {
    const clients = new Map<string, string>();
    if (leases.some((lease) => lease.session)) {
      const { sessions } = await this.daemon.call("SessionService", "ListSessions", { page_size: MOST_LEASES }, 10);
      for (const session of sessions) clients.set(session.name, session.client);
    }
    const rows = leaseRows(leases, clients);
    for (const name of [...this.rows.leases.keys()]) if (!rows.has(name)) this.put("leases", name, null);
    for (const [name, row] of rows) this.put("leases", name, row);
  }

  private replace(kind: Kind, rows: { name: string }[]): void {
    const names = new Set(rows.map((row) => row.name));
    for (const name of [...this.rows[kind].keys()]) if (!names.has(name)) this.put(kind, name, null);
    for (const row of rows) this.put(kind, row.name, row as Row);
  }

  private put(kind: Kind, name: string, row: Row | null): void {
    const key = `${kind}/${name}`;
    if (row === null) {
      if (!this.rows[kind].delete(name)) return;
      this.texts.delete(key);
    } else {
      const text = JSON.stringify(row);
      if (this.texts.get(key) === text) return;
      this.texts.set(key, text);
      this.rows[kind].set(name, row);
    }
    for (const viewer of this.viewers) viewer.change(kind, name, row);
  }

  /** `refused`: octavod answers, and a quota keeps this program from hearing of the volumes. */
  private down(message: string, refused = false): void {
    const watch = this.watch;
    this.watch = null;
    watch?.cancel();
    if (this.timer) clearTimeout(this.timer);
    this.timer = null;
    if (this.stopped || this.retry) return;
    if (refused) this.events.giveWay();
    this.tellStatus({ ...this.status, up: false, refused, message });
    this.retry = setTimeout(() => void this.connect(), RETRY_MS);
  }

  private tellStatus(status: Omit<DaemonMessage, "type">): void {
    const text = JSON.stringify(this.status);
    this.status = { type: "daemon", ...status };
    if (JSON.stringify(this.status) !== text) for (const viewer of this.viewers) viewer.say(this.status);
  }

  add(viewer: Viewer): void {
    viewer.say(this.status);
    viewer.restart();
    for (const kind of KINDS) for (const [name, row] of this.rows[kind]) viewer.change(kind, name, row);
    this.viewers.add(viewer);
    if (this.viewers.size === 1 && this.timer) {
      clearTimeout(this.timer);
      void this.poll();
    }
  }

  remove(viewer: Viewer): void {
    this.viewers.delete(viewer);
  }

  stop(): void {
    this.stopped = true;
    if (this.timer) clearTimeout(this.timer);
    if (this.retry) clearTimeout(this.retry);
    const watch = this.watch;
    this.watch = null;
    watch?.cancel();
  }
}
