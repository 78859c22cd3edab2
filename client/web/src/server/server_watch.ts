// What the page Server shows: asked for once while anybody looks, and told to all who do.
import type { EventsMessage, MemoryState, ServerInfo, ServerMessage, ViewerStatus } from "../wire/protocol";
import { type Daemon, DaemonError } from "./daemon";
import type { Events } from "./events";
import { memoryState, serverInfo } from "./server_rows";
import type { Viewer } from "./viewer";

const POLL_MS = 1000;
const INFO_EVERY = 5; // polls: free space and recovered files change slowly

type Parts = { memory: MemoryState | undefined; info: ServerInfo | undefined; viewer: ViewerStatus | undefined };

/** What a viewer was told, as text. */
interface Told {
  memory: string;
  info: string;
  viewer: string;
  events: number; // the version of the list
}

export class ServerWatch {
  private readonly viewers = new Map<Viewer, Told>();
  private readonly parts: Parts = { memory: undefined, info: undefined, viewer: undefined };
  private timer: NodeJS.Timeout | null = null;
  private polls = 0;
  private polling = false; // one at a time, however often somebody begins to look
  private stopped = false;

  constructor(
    private readonly daemon: Daemon,
    private readonly events: Events,
    private readonly status: () => ViewerStatus,
  ) {}

  /** Whether the viewer shows the server. */
  look(viewer: Viewer, looks: boolean): void {
    if (!looks) return void this.viewers.delete(viewer);
    if (this.viewers.has(viewer)) return;
    this.viewers.set(viewer, { memory: "", info: "", viewer: "", events: -1 });
    this.tell(); // what is known; it is asked for again soon
    if (this.viewers.size > 1 || this.stopped) return;
    this.polls = 0;
    if (this.polling) return;
    if (this.timer) clearTimeout(this.timer);
    void this.poll();
  }

  private async poll(): Promise<void> {
    this.timer = null;
    this.polling = true;
    try {
      const [memory, info] = await Promise.all([
        this.daemon.call("SystemService", "GetMemory", {}, 10),
        this.polls % INFO_EVERY === 0 ? this.daemon.call("SystemService", "GetInfo", {}, 10) : null,
      ]);
      this.parts.memory = memoryState(memory);
      if (info) this.parts.info = serverInfo(info);
      this.polls++;
    } catch (error) {
      if (!(error instanceof DaemonError)) throw error;
      this.polls = 0; // it may be another daemon that answers next; pages know that this one is away
    } finally {
      this.polling = false;
    }
    if (this.stopped) return;
    this.tell();
    if (this.viewers.size > 0 && !this.timer) this.timer = setTimeout(() => void this.poll(), POLL_MS);
  }

  private tell(): void {
    this.parts.viewer = this.status();
    const texts = Object.fromEntries(Object.entries(this.parts).map(([part, value]) => [part, JSON.stringify(value) ?? ""])) as Record<keyof Parts, string>;
    for (const [viewer, told] of this.viewers) {
      if (viewer.isBehind) continue; // it gets the next one
      const message: ServerMessage = { type: "server" };
      for (const part of Object.keys(texts) as (keyof Parts)[]) {
        if (texts[part] === "" || texts[part] === told[part]) continue;
        told[part] = texts[part];
        Object.assign(message, { [part]: this.parts[part] });
      }
      if (Object.keys(message).length > 1) viewer.say(message);
      if (told.events === this.events.version) continue;
      told.events = this.events.version;
      viewer.say({ type: "events", events: this.events.list(), left_out: this.events.leftOut } satisfies EventsMessage);
    }
  }

  stop(): void {
    this.stopped = true;
    if (this.timer) clearTimeout(this.timer);
  }
}
