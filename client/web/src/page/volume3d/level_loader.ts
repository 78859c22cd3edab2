// Brings the levels of a volume into the graphics memory, the coarsest first. One read at a time; a new plan ends the one before.
import type { VolumeRow } from "../../wire/protocol";
import { type Method, readSlabs, readValues } from "./bulk_read";
import { type Graphics, type Level, OutOfMemory } from "./graphics";
import { coarser, levelBytes, planLevels } from "./levels";
import { type Survey, surveyOf } from "./survey";
import { type Bits, type Coding, encode, sameCoding } from "./voxels";

const MOST_BYTES = 1 << 30; // of all levels
const FRAME_MS = 100; // the longest wait for a frame: pages in the background get none

export interface Load {
  volume: VolumeRow;
  method: Method;
  bits: Bits;
  wantedSide: number; // of the finest level; 0 = the volume's own
}
export interface Events {
  /** Once the coarsest level was read: chooses how the voxels are coded. */
  surveyed(survey: Survey): Coding;
  progress(factor: number, part: number): void;
  shown(level: Level): void;
  /** All levels are there; `limit` says why there is no finer one. */
  done(limit: string): void;
  failed(message: string): void;
}

const nextFrame = () =>
  new Promise<void>((resolve) => {
    const frame = requestAnimationFrame(() => go());
    const timer = setTimeout(() => go(), FRAME_MS);
    const go = () => {
      cancelAnimationFrame(frame);
      clearTimeout(timer);
      resolve();
    };
  });

export class LevelLoader {
  private run: AbortController | null = null;
  private surveys = new Map<Method, Survey>();
  private surveyed = ""; // the volume whose they are

  stop(): void {
    this.run?.abort();
    this.run = null;
  }

  start(load: Load, graphics: Graphics, events: Events): void {
    this.stop();
    const run = new AbortController();
    this.run = run;
    this.levels(load, graphics, events, run.signal).catch((error: Error) => {
      if (!run.signal.aborted) events.failed(error.message);
    });
  }

  private async levels({ volume, method, bits, wantedSide }: Load, graphics: Graphics, events: Events, signal: AbortSignal): Promise<void> {
    const plan = planLevels(volume.shape, bits, graphics.mostSide, MOST_BYTES, wantedSide);
    let { limit } = plan;
    if (plan.factors.length === 0) throw new Error(`even the coarsest picture of it is too large: ${limit}`);
    events.progress(plan.factors[0], 0);
    const identity = `${volume.name} ${volume.digest}`;
    if (identity !== this.surveyed) this.surveys.clear();
    this.surveyed = identity;
    let survey = this.surveys.get(method);
    if (!survey) {
      survey = surveyOf(await readValues(volume, plan.factors[0], method, signal), coarser(volume.shape, plan.factors[0]), volume.dtype);
      signal.throwIfAborted();
      this.surveys.set(method, survey);
    }
    const coding = events.surveyed(survey);
    const current = (level: Level) => sameCoding(level.coding, coding) && (level.factor === 1 || level.method === method);
    for (const factor of plan.factors) {
      if (graphics.find(factor, method, coding)) continue;
      const shape = coarser(volume.shape, factor);
      const needed = levelBytes(volume.shape, factor, coding.bits);
      // What is shown stays until its better is there, unless both have no room.
      for (const old of [...graphics.levels]) if (!current(old) && graphics.bytes + needed > MOST_BYTES) graphics.drop(old);
      let level: Level;
      try {
        level = graphics.begin(factor, method, coding, shape);
      } catch (error) {
        if (!(error instanceof OutOfMemory)) throw error;
        limit = error.message;
        if (factor === plan.factors[0]) throw error;
        break;
      }
      try {
        if (factor === plan.factors[0]) graphics.fill(level, 0, shape[0], encode(survey.values, coding));
        else
          for await (const slab of readSlabs(volume, factor, method, coding, signal)) {
            await nextFrame(); // a slab a frame: the page stays responsive
            signal.throwIfAborted();
            graphics.fill(level, slab.plane, slab.planes, slab.data);
            events.progress(factor, (slab.plane + slab.planes) / shape[0]);
          }
      } catch (error) {
        graphics.drop(level);
        throw error;
      }
      level.complete = true;
      for (const old of [...graphics.levels]) if (old !== level && old.factor === factor) graphics.drop(old);
      events.shown(level);
    }
    for (const old of [...graphics.levels]) if (!current(old) || old.factor < plan.factors.at(-1)!) graphics.drop(old);
    events.done(limit);
  }
}

