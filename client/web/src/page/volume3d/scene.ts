// The scene: a volume, how it is looked at, and when which picture of it is drawn: a coarse one while something moves, a fine one,
// piece by piece, when all is still.
import type { Interval, VolumeRow } from "../../wire/protocol";
import type { ColourMap } from "../live/colour_maps";
import type { Histogram } from "../live/samples";
import { Store } from "../store";
import { type Camera, STANDARD, unitsPerPixel } from "./camera";
import { type Geometry, geometryOf } from "./geometry";
import { Graphics, type Level, type Mode, NoGraphics, type Rays } from "./graphics";
import { type Load, LevelLoader } from "./level_loader";
import { OBLIQUE, type Planes, type Which } from "./planes";
import { raysOf } from "./rays";
import { placeInSlice, shapeOfSlice, sliceOf, type SliceShape } from "./slices";
import { automatic, histogramOf, type Survey, union } from "./survey";
import { map3, rowsOf, type Vec3 } from "./vectors";
import { type Bits, type Coding, codingFor, exactBits, suits, valueOf } from "./voxels";

const SETTLE_MS = 200; // without a move: all is still
const RECODE_MS = 400; // after the last change of the window
const MOVING_SCALE = 0.5; // of the still picture's pixels a side, at most
const LEAST_SCALE = 0.12;
const SLOW_MS = 60; // of a picture while something moves
const SLOW_PIECE_MS = 120; // of a piece of a still one: then the next ones are smaller
const SLOW_PICTURE_MS = 1000; // a still one: then it is told how much of it is done
const LEAST_ROWS = 24;
const MOST_PIXELS = 2.5e6;

export interface Settings {
  mode: Mode;
  window: Interval | null; // null = as fits the mode
  colourMap: ColourMap;
  opacity: number; // 0 ... 1, of shaded pictures
  clip: { lo: Vec3; hi: Vec3 }; // voxels along x, y, z; hi is the first one that is left out
  planes: Planes;
  bits: Bits;
  mostSide: number; // of the finest level, voxels; 0 = all
}
export interface Status {
  level: { factor: number; shape: number[] } | null; // the finest one that is shown
  loading: { factor: number; part: number } | null;
  limit: string; // why there is no finer level
  error: string;
}
export type Device = { state: "ready" } | { state: "missing" | "lost"; message: string };

const NOTHING: Status = { level: null, loading: null, limit: "", error: "" };

function middle(geometry: Geometry): Pick<Settings, "clip" | "planes"> {
  return { clip: { lo: [0, 0, 0], hi: [...geometry.shape] }, planes: { at: map3((i) => Math.floor(geometry.shape[i] / 2)), turn: 45, tilt: 0, offset: 0, shown: [true, true, true, false] } };
}

export class Scene {
  readonly settings: Store<Settings>;
  readonly camera = new Store<Camera>(STANDARD);
  readonly status = new Store<Status>(NOTHING);
  readonly drawn = new Store(1); // the part of the fine picture that is done, where it takes long; 1 = all, or it comes at once
  readonly device = new Store<Device>({ state: "ready" });
  readonly geometry = new Store<Geometry | null>(null);
  readonly histogram = new Store<Histogram | null>(null);
  readonly window = new Store<Interval | null>(null); // that is shown
  volume: VolumeRow | null = null;

  private graphics: Graphics | null = null;
  private readonly loader = new LevelLoader();
  private survey: Survey | null = null;
  private coding: Coding | null = null;
  private recode: ReturnType<typeof setTimeout> | undefined;
  private canvas: HTMLCanvasElement | null = null;
  private room: [number, number] = [0, 0]; // for the picture, CSS pixels
  private readonly slices = new Map<Which, HTMLCanvasElement>();

  private frame = 0;
  private settle: ReturnType<typeof setTimeout> | undefined;
  private moving = false;
  private viewDue = false;
  private slicesDue = false;
  private fine: { width: number; height: number; row: number; begun: number } | null = null; // rows that are drawn, from below
  private pieceRows = 96;
  private movingScale = MOVING_SCALE;
  private fence: { done: () => boolean; begun: number; told: (ms: number) => void } | null = null;

  constructor() {
    const nowhere = { names: ["x", "y", "z"], position: [2, 1, 0], shape: [1, 1, 1], spacing: [1, 1, 1], size: [1, 1, 1], lengths: false, guessed: [] } satisfies Geometry;
    this.settings = new Store<Settings>({ mode: "maximum", window: null, colourMap: "gray", opacity: 0.6, bits: 8, mostSide: 0, ...middle(nowhere) });
    this.makeDevice();
  }

  // ---- the device

  private makeDevice(): void {
    this.graphics?.free();
    this.graphics = null;
    try {
      this.graphics = new Graphics(() => this.lost(), () => this.again());
      this.device.set({ state: "ready" });
    } catch (error) {
      if (!(error instanceof NoGraphics)) throw error;
      this.device.set({ state: this.device.value.state === "lost" ? "lost" : "missing", message: error.message });
    }
  }
  private lost(): void {
    this.loader.stop();
    this.fence = this.fine = null;
    this.drawn.set(1);
    this.status.set(NOTHING);
    this.device.set({ state: "lost", message: "the browser has taken the graphics device away (WebGL context lost), as it does when memory is short or a driver fails" });
  }
  /** Takes the device once more, and loads the volume anew. */
  again(): void {
    this.makeDevice();
    this.load();
  }
  close(): void {
    this.loader.stop();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.settle);
    clearTimeout(this.recode);
    this.graphics?.free();
    this.graphics = null;
  }

  // ---- what is shown

  /** Shows a volume from the beginning. */
  show(volume: VolumeRow): void {
    if (this.volume?.name === volume.name && this.volume.digest === volume.digest) return;
    this.volume = volume;
    const geometry = geometryOf(volume);
    this.geometry.set(geometry);
    for (const level of [...(this.graphics?.levels ?? [])]) this.graphics!.drop(level);
    this.survey = this.coding = null;
    this.histogram.set(null);
    this.window.set(null);
    this.camera.set(STANDARD);
    this.settings.set({ ...this.settings.value, window: null, ...middle(geometry) });
    this.status.set(NOTHING);
    // No picture of another volume below the name of this one.
    for (const canvas of [this.canvas, ...this.slices.values()]) {
      if (!canvas) continue;
      canvas.width = 1;
      delete canvas.dataset.volume;
    }
    this.load();
  }
  /** No more of it is read; what is shown stays. */
  stopReading(): void {
    this.loader.stop();
    this.status.set({ ...this.status.value, loading: null, error: "" });
  }

  set(change: Partial<Settings>): void {
    const old = this.settings.value;
    const now = { ...old, ...change };
    this.settings.set(now);
    if (now.bits !== old.bits || now.mostSide !== old.mostSide || methodOf(now.mode) !== methodOf(old.mode)) this.load();
    if (now.mode !== old.mode || now.window !== old.window) this.windowChanged();
    this.moved();
  }
  look(camera: Camera): void {
    this.camera.set(camera);
    this.moved(false);
  }

  // ---- contrast and coding

  private get bits(): Bits {
    return this.volume && exactBits(this.volume.dtype) === 8 ? 8 : this.settings.value.bits;
  }
  private windowNow(): Interval | null {
    const { window, mode } = this.settings.value;
    const range = this.histogram.value?.range;
    if (window || !this.survey || !range) return window;
    return automatic(this.survey, range, mode, this.geometry.value!.position[2]);
  }
  private windowChanged(): void {
    const window = this.windowNow();
    this.window.set(window);
    clearTimeout(this.recode);
    const fits = () => !this.window.value || !this.coding || suits(this.coding, this.bits, this.volume!.dtype, this.window.value, this.histogram.value!.range);
    if (!fits()) this.recode = setTimeout(() => fits() || this.load(), RECODE_MS);
  }

  private surveyed(survey: Survey): Coding {
    const range = this.survey && this.histogram.value ? union(this.histogram.value.range, survey.range) : survey.range;
    this.survey = survey;
    this.histogram.set(histogramOf(survey, range));
    const window = this.windowNow()!;
    this.window.set(window);
    const dtype = this.volume!.dtype;
    if (!this.coding || !suits(this.coding, this.bits, dtype, window, range)) this.coding = codingFor(this.bits, dtype, window, range);
    return this.coding;
  }

  load(): void {
    const { volume, graphics } = this;
    clearTimeout(this.recode);
    if (!volume || !graphics || this.device.value.state !== "ready") return;
    const { mode, mostSide } = this.settings.value;
    const load: Load = { volume, method: methodOf(mode), bits: this.bits, wantedSide: mostSide };
    const tell = (change: Partial<Status>) => this.status.set({ ...this.status.value, ...change });
    tell({ error: "", limit: "", loading: null });
    this.loader.start(load, graphics, {
      surveyed: (survey) => this.surveyed(survey),
      progress: (factor, part) => tell({ loading: { factor, part } }),
      shown: () => {
        this.tellLevel();
        // A slow device would not end a fine picture before the next level begins it anew: a coarse one comes first.
        if (this.canvas?.dataset.volume !== volume.name) this.moved();
        else this.redraw();
      },
      done: (limit) => {
        tell({ loading: null, limit });
        this.tellLevel();
        this.redraw();
      },
      failed: (error) => tell({ loading: null, error }),
    });
  }
  private tellLevel(): void {
    const level = this.levelFor(false);
    const old = this.status.value.level;
    if (level?.factor !== old?.factor || level?.shape !== old?.shape) this.status.set({ ...this.status.value, level: level && { factor: level.factor, shape: level.shape } });
  }

  // ---- drawing

  attach(canvas: HTMLCanvasElement | null): void {
    this.canvas = canvas;
    if (canvas) this.redraw();
  }
  attachSlice(which: Which, canvas: HTMLCanvasElement | null): void {
    if (canvas) this.slices.set(which, canvas);
    else this.slices.delete(which);
    this.redraw();
  }
  /** Draws a fine picture of what came. */
  redraw(): void {
    this.viewDue = this.slicesDue = true;
    this.fine = null;
    this.request();
  }
  /** The room for the picture has changed. */
  resized(width: number, height: number): void {
    this.room = [width, height];
    this.moved();
  }
  /** Draws coarse pictures until nothing has moved for a while. */
  private moved(slices = true): void {
    this.moving = this.viewDue = true;
    if (this.drawn.value < 1) this.drawn.set(1);
    if (slices) this.slicesDue = true;
    this.fine = null;
    clearTimeout(this.settle);
    this.settle = setTimeout(() => {
      this.moving = false;
      this.viewDue = true;
      this.request();
    }, SETTLE_MS);
    this.request();
  }
  private request(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      try {
        this.draw();
      } catch (error) {
        if (!(error instanceof NoGraphics)) throw error;
        this.device.set({ state: "missing", message: error.message });
      }
    });
  }

  /** The level to draw: the finest, or the next coarser one while something moves. */
  private levelFor(moving: boolean): Level | null {
    const method = methodOf(this.settings.value.mode);
    const complete = this.graphics?.levels.filter((level) => level.complete) ?? [];
    const right = complete.filter((level) => level.factor === 1 || level.method === method);
    const levels = (right.length > 0 ? right : complete).sort((a, b) => a.factor - b.factor);
    const finest = levels[0] ?? null;
    return (moving && levels.find((level) => level.factor === 2 * finest!.factor && level.coding === finest!.coding)) || finest;
  }

  private draw(): void {
    const { graphics, canvas } = this;
    const geometry = this.geometry.value;
    const window = this.window.value;
    if (!graphics || this.device.value.state !== "ready" || !geometry || !window) return;
    if (this.fence) {
      if (!this.fence.done()) return this.request();
      this.fence.told(performance.now() - this.fence.begun);
      this.fence = null;
    }
    const level = this.levelFor(false);
    if (!level) return;
    if (this.slicesDue) {
      this.slicesDue = false;
      for (const [which, picture] of this.slices) this.drawSlice(graphics, level, geometry, window, which, picture);
    }
    if (!canvas || this.room[0] < 1 || this.room[1] < 1) return;
    if (this.moving) {
      if (!this.viewDue) return;
      this.viewDue = false;
      const coarse = this.levelFor(true)!;
      const [width, height] = this.pixels(this.movingScale);
      graphics.drawRays(coarse, geometry, window, this.settings.value.colourMap, this.rays(geometry, width, height, coarse === level ? 0.5 : 1), width, height);
      this.present(graphics, canvas, coarse, width, height, "moving");
      this.await(graphics, (ms) => {
        if (ms > SLOW_MS) this.movingScale = Math.max(LEAST_SCALE, this.movingScale * 0.75);
        else if (ms < SLOW_MS / 3) this.movingScale = Math.min(MOVING_SCALE, this.movingScale * 1.2);
      });
    } else if (this.viewDue || this.fine) {
      if (!this.fine) {
        const [width, height] = this.pixels(1);
        this.fine = { width, height, row: 0, begun: performance.now() };
        this.viewDue = false;
      }
      const { width, height, row, begun } = this.fine;
      const to = Math.min(height, row + this.pieceRows);
      graphics.drawRays(level, geometry, window, this.settings.value.colourMap, this.rays(geometry, width, height, this.stillRate()), width, height, row, to);
      this.fine.row = to;
      if (to === height) {
        this.fine = null;
        this.present(graphics, canvas, level, width, height, "still");
      }
      if (to === height) this.drawn.set(1);
      else if (performance.now() - begun > SLOW_PICTURE_MS) this.drawn.set(to / height);
      this.await(graphics, (ms) => {
        if (ms > SLOW_PIECE_MS) this.pieceRows = Math.max(LEAST_ROWS, Math.floor(this.pieceRows / 2));
        else if (ms < SLOW_PIECE_MS / 3) this.pieceRows = Math.min(4096, this.pieceRows * 2);
      });
    }
    if (this.viewDue || this.slicesDue || this.fine || this.fence) this.request();
  }
  private rays(geometry: Geometry, width: number, height: number, rate: number): Rays {
    return raysOf(geometry, this.settings.value, this.camera.value, this.room, width, height, rate);
  }
  /** Samples a voxel of still pictures. Along an axis one hits the middle of each; aslant thin layers would get a grain with one. */
  private stillRate(): number {
    const aligned = rowsOf(this.camera.value.turn)[2].filter((part) => Math.abs(part) > 1e-6).length === 1;
    return aligned && /^(maximum|average)$/.test(this.settings.value.mode) ? 1 : 2;
  }
  /** The next picture is drawn when this one is done: commands do not queue up. */
  private await(graphics: Graphics, told: (ms: number) => void): void {
    this.fence = { ...graphics.fence(), begun: performance.now(), told };
  }
  private present(graphics: Graphics, canvas: HTMLCanvasElement, level: Level, width: number, height: number, quality: string): void {
    graphics.present("view", canvas, width, height);
    Object.assign(canvas.dataset, { quality, factor: level.factor, volume: this.volume!.name, drawn: 1 + Number(canvas.dataset.drawn ?? 0) });
  }

  /** Scene units of a pixel of the picture that is shown. */
  unitOfPixel(): number {
    return (unitsPerPixel(this.camera.value, this.geometry.value!, ...this.room) * this.room[0]) / this.canvas!.width;
  }
  private pixels(scale: number): [number, number] {
    const [width, height] = this.room;
    const by = scale * Math.min(devicePixelRatio, Math.sqrt(MOST_PIXELS / (width * height)));
    return [Math.max(1, Math.round(width * by)), Math.max(1, Math.round(height * by))];
  }

  // ---- slices

  /** Columns and rows of the picture of a plane, and how wide it is for its height. */
  sliceShape(which: Which): SliceShape | null {
    const [geometry, level] = [this.geometry.value, this.levelFor(false)];
    return geometry && level ? shapeOfSlice(geometry, this.settings.value.planes, which, level) : null;
  }

  private drawSlice(graphics: Graphics, level: Level, geometry: Geometry, window: Interval, which: Which, canvas: HTMLCanvasElement): void {
    const { planes, colourMap } = this.settings.value;
    const { columns, rows } = shapeOfSlice(geometry, planes, which, level);
    graphics.drawSlice(level, geometry, window, colourMap, sliceOf(geometry, planes, which, level, columns, rows), columns, rows);
    graphics.present("flat", canvas, columns, rows);
    Object.assign(canvas.dataset, { factor: level.factor, volume: this.volume!.name, at: which === OBLIQUE ? "" : planes.at[which] });
  }

  /** The place (fractions of the volume) at a place of a slice's picture, 0 ... 1 to the right and down; null beside the volume. */
  placeIn(which: Which, right: number, down: number): Vec3 | null {
    const [geometry, level] = [this.geometry.value, this.levelFor(false)];
    return geometry && level ? placeInSlice(geometry, this.settings.value.planes, which, level, right, down) : null;
  }
  /** The value of the finest level that is there, in stored units. `held`: beyond it, the codes do not tell values apart. */
  valueAt(place: Vec3): { value: number; factor: number; held: "≤" | "≥" | "" } | null {
    const [graphics, geometry, level] = [this.graphics, this.geometry.value, this.levelFor(false)];
    if (!graphics || !geometry || !level || this.device.value.state !== "ready") return null;
    const code = graphics.codeAt(level, geometry, place);
    const range = this.histogram.value!.range;
    return { value: valueOf(level.coding, code), factor: level.factor, held: code === 0 && level.coding.lo > range.lo ? "≤" : code === 1 && level.coding.hi < range.hi ? "≥" : "" };
  }
}

export const methodOf = (mode: Mode) => (mode === "maximum" ? ("max" as const) : ("mean" as const));
