// The jobs that pages look at: one WatchJob for each, whatever the number of pages. Steps and log lines
// are kept as they come, since the daemon tells the last 256 alone; a page gets those that it has not had.
import type { ClientReadableStream, ServiceError } from "@grpc/grpc-js";

import type { JobDetails, JobLine, JobMessage, JobStep } from "../wire/protocol";
import { duration } from "./convert";
import { type Daemon, DaemonError, type Message } from "./daemon";
import { jobDetails, jobResults, jobStep } from "./job_rows";
import { TELL_MS, type Viewer } from "./viewer";

const MOST_STEPS = 4096;
const MOST_LINES = 1024;
const RETRY_MS = [200, 500, 1000, 2000];

/** The newest of a list of which the daemon tells the end again and again. */
class Tail<T> {
  taken = 0; // elements so far
  private total = 0; // of the daemon's list
  private kept: T[] = [];
  constructor(private readonly most: number) {}

  /** `last` are the last ones of `total`. Those between them and the ones before, if any, nobody has told. */
  take(total: number, last: T[]): void {
    const added = Math.min(Math.max(0, total - this.total), last.length);
    if (added > 0) this.kept = [...this.kept, ...last.slice(last.length - added)].slice(-this.most);
    this.total = total;
    this.taken += added;
  }
  /** Those after the first `told`; null if some of these are no longer kept. */
  after(told: number): T[] | null {
    const count = this.taken - told;
    return count > this.kept.length ? null : this.kept.slice(this.kept.length - count);
  }
  get all(): T[] {
    return this.kept;
  }
}

interface Told {
  steps: number;
  lines: number;
  results: string;
  job: string;
  any: boolean;
}

class Watch {
  readonly viewers = new Map<Viewer, Told>();
  private call: ClientReadableStream<Message> | null = null;
  private timer: NodeJS.Timeout | null = null;
  private teller: NodeJS.Timeout | null = null;
  private failures = 0;
  private details: JobDetails | null = null;
  private results = "";
  private gone = "";
  private readonly steps = new Tail<JobStep>(MOST_STEPS);
  private readonly lines = new Tail<JobLine>(MOST_LINES);

  constructor(
    private readonly daemon: Daemon,
    private readonly name: string,
  ) {
    this.watch();
  }

  private watch(): void {
    this.timer = null;
    const call = this.daemon.stream("JobService", "WatchJob", { name: this.name });
    this.call = call;
    call.on("data", ({ job }: Message) => {
      if (this.call !== call) return;
      this.failures = 0;
      this.gone = "";
      this.details = jobDetails(job);
      this.results = JSON.stringify(jobResults(job));
      this.steps.take(this.details.step_count, job.history.map(jobStep));
      this.lines.take(this.details.line_count, job.log_lines.map((line: Message) => ({ ms: duration(line.elapsed) ?? 0, text: line.text })));
      this.tell();
    });
    call.on("error", (error: ServiceError) => {
      if (this.call === call) this.failed(this.daemon.explained(error));
    });
    call.on("end", () => {}); // after the final state; an error is told by itself
  }

  private failed(error: DaemonError): void {
    this.call = null;
    // The daemon is away, or too busy: ask again. What else is wrong stays wrong.
    if (error.away || error.reason === "BUSY") this.timer = setTimeout(() => this.watch(), RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)]);
    else {
      this.gone = error.message;
      this.tell();
      if (error.reason === "QUOTA") this.timer = setTimeout(() => this.watch(), RETRY_MS.at(-1)); // until there is room
    }
  }

  join(viewer: Viewer): void {
    this.viewers.set(viewer, { steps: 0, lines: 0, results: "", job: "", any: false });
    this.tell();
  }

  private tell(): void {
    this.teller ??= setTimeout(() => this.tellAll(), this.viewers.size > 0 && [...this.viewers.values()].every((told) => !told.any) ? 0 : TELL_MS);
  }

  private tellAll(): void {
    this.teller = null;
    let again = false;
    for (const [viewer, told] of this.viewers) {
      if (viewer.isBehind) again = true;
      else this.tellOne(viewer, told);
    }
    if (again) this.tell();
  }

  private tellOne(viewer: Viewer, told: Told): void {
    if (this.gone) told.any = false; // if it comes back, all of it is told again
    if (this.gone) return viewer.say({ type: "job", name: this.name, gone: this.gone } satisfies JobMessage);
    if (!this.details) return;
    const steps = told.any ? this.steps.after(told.steps) : null;
    const lines = told.any ? this.lines.after(told.lines) : null;
    const fresh = steps === null || lines === null;
    const job = JSON.stringify(this.details);
    if (!fresh && job === told.job && this.results === told.results && steps.length === 0 && lines.length === 0) return;
    const message: JobMessage = { type: "job", name: this.name, gone: "", job: this.details, fresh, steps: fresh ? this.steps.all : steps, lines: fresh ? this.lines.all : lines };
    if (this.results !== told.results) message.results = JSON.parse(this.results) as JobMessage["results"];
    viewer.say(message);
    Object.assign(told, { steps: this.steps.taken, lines: this.lines.taken, results: this.results, job, any: true });
  }

  /** The daemon answers again: it may be another one, which does not have the job. */
  again(): void {
    if (this.timer) clearTimeout(this.timer);
    this.call?.cancel();
    this.watch();
  }

  stop(): void {
    const call = this.call;
    this.call = null;
    if (this.timer) clearTimeout(this.timer);
    if (this.teller) clearTimeout(this.teller);
    call?.cancel();
  }
}

export class JobWatches {
  private readonly watches = new Map<string, Watch>();
  private readonly looking = new Map<Viewer, string>();

  constructor(private readonly daemon: Daemon) {}

  /** The viewer looks at this job from now on; empty: at none. */
  look(viewer: Viewer, name: string): void {
    const before = this.looking.get(viewer) ?? "";
    if (before === name) return;
    this.looking.delete(viewer);
    const left = this.watches.get(before);
    left?.viewers.delete(viewer);
    if (left?.viewers.size === 0) {
      left.stop();
      this.watches.delete(before);
    }
    if (name === "") return;
    let watch = this.watches.get(name);
    if (!watch) this.watches.set(name, (watch = new Watch(this.daemon, name)));
    this.looking.set(viewer, name);
    watch.join(viewer);
  }

  again(): void {
    for (const watch of this.watches.values()) watch.again();
  }

  get count(): number {
    return this.watches.size;
  }

  stop(): void {
    for (const watch of this.watches.values()) watch.stop();
    this.watches.clear();
  }
}
