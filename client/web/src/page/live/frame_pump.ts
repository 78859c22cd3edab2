// Takes the frames of one view, hands the newest on before the next screen, gives credits back, counts.
import { type Encoding, type FrameHeader, MOST_RATE_HZ, type Schema, type Topic } from "../../wire/protocol";
import { connection, type ViewHandle } from "../connection";
import { Store } from "../store";

const COUNT_MS = 500;
const RATE_SPAN_MS = 2000;

export interface Counters {
  shown: number;
  dropped: number;
  fps: number;
  latencyMs: number | null; // from the last record to the painted pixel
  encoding: string;
  bytes: number; // of the last frame
}
const NOTHING: Counters = { shown: 0, dropped: 0, fps: 0, latencyMs: null, encoding: "", bytes: 0 };

export interface Frame {
  topic: Topic;
  header: FrameHeader;
  schema: Schema;
  payload: Uint8Array<ArrayBuffer>;
}

export class FramePump {
  readonly counters = new Store<Counters>(NOTHING);
  readonly ended = new Store<{ reason: string; message: string } | null>(null);
  readonly problem = new Store("");

  private view: ViewHandle | null = null;
  private schema: Schema | null = null;
  private waiting: (Frame & { received: number }) | null = null;
  private painting = false;
  private frozen = false;
  private paintTimes: number[] = [];
  private now = { ...NOTHING };
  private lastCount = 0;

  /**
   * @param paint shows a frame; what it throws is told as the problem of the view
   * @param forget takes away what is shown: another parent, product or axis is followed from now on
   */
  constructor(
    readonly number: number,
    private readonly paint: (frame: Frame) => Promise<void> | void,
    private readonly forget: () => void,
  ) {}

  /** Whether this is the parent, the product and the axis that is followed. */
  follows(topic: Topic | null): boolean {
    const now = this.view?.topic ?? null;
    return topic?.parent === now?.parent && topic?.product === now?.product && topic?.axis === now?.axis;
  }

  /** Shows a topic from now on; null: none. */
  follow(topic: Topic | null, encoding: Encoding): void {
    const other = !this.follows(topic);
    this.view?.close();
    this.view = null;
    this.schema = null;
    this.waiting = null;
    this.ended.set(null);
    if (other) {
      this.paintTimes = [];
      this.now = { ...NOTHING };
      this.count(true);
      this.problem.set("");
      this.forget();
    }
    if (!topic) return;
    this.view = connection.show(this.number, topic, encoding, MOST_RATE_HZ, {
      schema: (schema) => (this.schema = schema),
      frame: (header, payload, received) => {
        if (!this.schema) return;
        this.now.dropped += header.dropped + (this.waiting ? 1 : 0); // one that waits is never painted
        this.waiting = { topic, header, schema: this.schema, payload, received };
        this.schedule();
      },
      ended: (reason, message) => this.ended.set({ reason, message }),
    });
  }

  /** Frozen, nothing is painted and no credit given back: two frames at most come. */
  freeze(frozen: boolean): void {
    this.frozen = frozen;
    if (!frozen) this.schedule();
  }

  private schedule(): void {
    if (this.painting || this.frozen || !this.waiting) return;
    this.painting = true;
    requestAnimationFrame(() => void this.next());
  }

  private async next(): Promise<void> {
    const frame = this.waiting;
    const view = this.view;
    try {
      if (!frame || !view || this.frozen) return;
      this.waiting = null;
      this.problem.set("");
      await this.paint(frame);
      if (!this.follows(frame.topic)) return;
      const painted = performance.now();
      this.now.shown++;
      this.now.bytes = frame.payload.length;
      this.now.encoding = frame.schema.encoding;
      this.paintTimes.push(painted);
      if (frame.header.server_us !== null) {
        const ms = (frame.header.server_us + frame.header.bridge_us) / 1000 + connection.link.value.rtt_ms / 2 + (painted - frame.received);
        this.now.latencyMs = this.now.latencyMs === null ? ms : 0.8 * this.now.latencyMs + 0.2 * ms;
      }
    } catch (error) {
      if (!frame || this.follows(frame.topic)) this.problem.set((error as Error).message);
    } finally {
      if (frame && this.waiting !== frame) view?.acknowledge(frame.header.sequence, performance.now() - frame.received);
      this.painting = false;
      this.count(false);
      this.schedule();
    }
  }

  /** Brings the counters up to date, also where no frames come. */
  count(now: boolean): void {
    const time = performance.now();
    if (!now && time - this.lastCount < COUNT_MS) return;
    this.lastCount = time;
    this.paintTimes = this.paintTimes.filter((at) => time - at <= RATE_SPAN_MS);
    const span = this.paintTimes.length > 1 ? time - this.paintTimes[0] : 0;
    this.counters.set({ ...this.now, fps: span > 0 ? ((this.paintTimes.length - 1) / span) * 1000 : 0 });
  }
}
