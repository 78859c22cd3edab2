// What the daemon has: whether it answers, its scans, volumes and operations. Each change goes to all viewers.
import type { ClientReadableStream, ServiceError } from "@grpc/grpc-js";

import type { DaemonMessage, OperationRow, ScanRow, VolumeRow } from "../wire/protocol";
import { type Daemon, DaemonError, type Message } from "./daemon";
import type { Viewer } from "./viewer";

const POLL_MS = 500;
const RETRY_MS = 500;
const MOST_SCANS = 30;
const MOST_OPERATIONS = 100;

type Rows = { scans: Map<string, ScanRow>; volumes: Map<string, VolumeRow>; operations: Map<string, OperationRow> };
type Kind = keyof Rows;

const ms = (time: Message) => (time ? Number(time.seconds) * 1000 + Math.floor(time.nanos / 1e6) : 0);
const without = (text: string, prefix: string) => (text.startsWith(prefix) ? text.slice(prefix.length) : text).replace(/^UNSPECIFIED$/, "");

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
  };
}

function operationRow(daemon: Daemon, operation: Message): OperationRow {
  const progress = operation.progress ?? {};
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
    error: daemon.statusError(operation.error)?.message ?? "",
    path: operation.commit?.path ?? "",
  };
}

export class Catalogue {
  private readonly viewers = new Set<Viewer>();
  private readonly rows: Rows = { scans: new Map(), volumes: new Map(), operations: new Map() };
  private readonly texts = new Map<string, string>(); // kind/name: the row as it was told
  private status: DaemonMessage = { type: "daemon", up: false, message: "connecting", server_id: "", daemon_version: "" };
  private watch: ClientReadableStream<Message> | null = null;
  private timer: NodeJS.Timeout | null = null;
  private stopped = false;

  constructor(private readonly daemon: Daemon) {
    void this.connect();
  }

  get up(): boolean {
    return this.status.up;
  }

  private async connect(): Promise<void> {
    if (this.stopped) return;
    try {
      const info = await this.daemon.call("SystemService", "GetInfo", {}, 5);
      if (this.stopped) return;
      // What an earlier daemon had is gone; the watch and the lists tell what there is.
      for (const kind of ["scans", "volumes", "operations"] as Kind[]) for (const name of [...this.rows[kind].keys()]) this.put(kind, name, null);
      this.tellStatus({ up: true, message: info.draining ? "it ends, and takes no new work" : "", server_id: info.server_id, daemon_version: info.version });
      this.watchVolumes();
      await this.poll();
    } catch (error) {
      this.down(error instanceof DaemonError ? error.message : String(error));
    }
  }

  private watchVolumes(): void {
    const watch = this.daemon.stream("VolumeService", "WatchVolumes", {});
    this.watch = watch;
    watch.on("data", (news: Message) => {
      if (this.watch !== watch) return;
      const row = volumeRow(news.volume);
      this.put("volumes", row.name, row);
      // Told once in its last state, so that pages can say what became of it.
      if (news.kind === "KIND_GONE") this.put("volumes", row.name, null);
    });
    watch.on("error", (error: ServiceError) => {
      if (this.watch === watch) this.down(this.daemon.explained(error).message);
    });
    watch.on("end", () => {
      setImmediate(() => {
        if (this.watch === watch) this.down("it has ended the watch of the volumes");
      });
    });
  }

  /** Scans and operations change all the time: they are asked for while somebody looks. */
  private async poll(): Promise<void> {
    this.timer = null;
    if (this.stopped || !this.status.up) return;
    if (this.viewers.size > 0) {
      try {
        const [scans, operations] = await Promise.all([
          this.daemon.call("ScanService", "ListScans", { page_size: MOST_SCANS }, 10),
          this.daemon.call("OperationService", "ListOperations", { page_size: MOST_OPERATIONS }, 10),
        ]);
        this.replace("scans", scans.scans.map(scanRow));
        this.replace("operations", operations.operations.map((operation: Message) => operationRow(this.daemon, operation)));
      } catch (error) {
        if (error instanceof DaemonError && error.away) return this.down(error.message);
      }
    }
    if (!this.stopped && this.status.up) this.timer = setTimeout(() => void this.poll(), POLL_MS);
  }

  private replace<K extends Kind>(kind: K, rows: (ScanRow | OperationRow)[]): void {
    const names = new Set(rows.map((row) => row.name));
    for (const name of [...this.rows[kind].keys()]) if (!names.has(name)) this.put(kind, name, null);
    for (const row of rows) this.put(kind, row.name, row as never);
  }

  private put<K extends Kind>(kind: K, name: string, row: ScanRow | VolumeRow | OperationRow | null): void {
    const key = `${kind}/${name}`;
    if (row === null) {
      if (!this.rows[kind].delete(name)) return;
      this.texts.delete(key);
    } else {
      const text = JSON.stringify(row);
      if (this.texts.get(key) === text) return;
      this.texts.set(key, text);
      (this.rows[kind] as Map<string, unknown>).set(name, row);
    }
    for (const viewer of this.viewers) viewer.change(kind, name, row ?? null);
  }

  private down(message: string): void {
    const watch = this.watch;
    this.watch = null;
    watch?.cancel();
    if (this.timer) clearTimeout(this.timer);
    this.timer = null;
    if (this.stopped) return;
    this.tellStatus({ ...this.status, up: false, message });
    setTimeout(() => void this.connect(), RETRY_MS);
  }

  private tellStatus(status: Omit<DaemonMessage, "type">): void {
    const text = JSON.stringify(this.status);
    this.status = { type: "daemon", ...status };
    if (JSON.stringify(this.status) !== text) for (const viewer of this.viewers) viewer.say(this.status);
  }

  add(viewer: Viewer): void {
    viewer.say(this.status);
    viewer.restart();
    for (const kind of ["scans", "volumes", "operations"] as Kind[]) for (const [name, row] of this.rows[kind]) viewer.change(kind, name, row);
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
    const watch = this.watch;
    this.watch = null;
    watch?.cancel();
  }
}
