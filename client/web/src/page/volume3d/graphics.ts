// The graphics device of the browser: its context, programs, and the textures of the levels. Pictures are drawn into a canvas of
// its own, and copied from there into those of the page.
import type { Interval } from "../../wire/protocol";
import { type ColourMap, table } from "../live/colour_maps";
import type { Method } from "./bulk_read";
import type { Geometry } from "./geometry";
import { type RayKind, rays, SLICE, VERTEX } from "./shaders";
import type { Vec3 } from "./vectors";
import { type Coding, sameCoding } from "./voxels";

/** `cut` is shaded, up to the slice planes; `slices` has nothing but them. */
export type Mode = "maximum" | "average" | "shaded" | "cut" | "slices";
const KINDS: Record<Mode, RayKind> = { maximum: "MAXIMUM", average: "AVERAGE", shaded: "SHADED", cut: "SHADED", slices: "SLICES" };

/** A level in the memory of the device. */
export interface Level {
  factor: number;
  method: Method;
  coding: Coding;
  shape: number[]; // as the volume's, slowest axis first
  bytes: number;
  complete: boolean;
  texture: WebGLTexture;
}

export interface Rays {
  mode: Mode;
  corner: Vec3;
  right: Vec3;
  up: Vec3;
  into: Vec3;
  lo: Vec3;
  hi: Vec3;
  rate: number;
  planes: number[]; // normal and distance of each, four numbers
  light: Vec3;
  density: number;
}
export interface Slice {
  corner: Vec3;
  across: Vec3;
  down: Vec3;
  exact: boolean;
}

const voxelsAlong = (level: Level, geometry: Geometry) => geometry.shape.map((n) => n / level.factor);

export class NoGraphics extends Error {}
export class OutOfMemory extends Error {}

/** A picture that is drawn, before it is copied. It never shrinks: small pictures use a part of it. */
interface Target {
  buffer: WebGLFramebuffer;
  picture: WebGLRenderbuffer;
  size: [number, number];
}
type Program = { program: WebGLProgram; at: (name: string) => WebGLUniformLocation | null };

export class Graphics {
  readonly canvas = document.createElement("canvas");
  readonly mostSide: number;
  readonly levels: Level[] = [];
  private readonly gl: WebGL2RenderingContext;
  private readonly rays = new Map<RayKind, Program>(); // made when they are needed
  private readonly slices: Program;
  private readonly colours: WebGLTexture;
  private readonly view: Target; // keeps a picture of the rays while it is drawn piece by piece
  private readonly flat: Target;
  private colourMap: ColourMap | null = null;
  private freed = false;

  /** Throws NoGraphics, in words. */
  constructor(lost: () => void, restored: () => void) {
    const gl = this.canvas.getContext("webgl2", { alpha: true, antialias: false, depth: false, stencil: false, powerPreference: "high-performance" });
    if (!gl) throw new NoGraphics("this browser offers no WebGL 2, or it is switched off");
    this.gl = gl;
    this.canvas.addEventListener("webglcontextlost", (event) => {
      event.preventDefault(); // without this it would never come back
      if (!this.freed) lost();
    });
    this.canvas.addEventListener("webglcontextrestored", () => !this.freed && restored());
    if (gl.isContextLost()) throw new NoGraphics("this browser has lost its graphics device");
    this.mostSide = gl.getParameter(gl.MAX_3D_TEXTURE_SIZE) as number;
    this.slices = this.link(SLICE);
    this.colours = gl.createTexture()!;
    gl.activeTexture(gl.TEXTURE1);
    gl.bindTexture(gl.TEXTURE_2D, this.colours);
    gl.texStorage2D(gl.TEXTURE_2D, 1, gl.RGBA8, 256, 1);
    for (const end of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, end, gl.NEAREST);
    gl.activeTexture(gl.TEXTURE0);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    const target = (): Target => ({ buffer: gl.createFramebuffer()!, picture: gl.createRenderbuffer()!, size: [0, 0] });
    [this.view, this.flat] = [target(), target()];
  }

  private link(fragment: string): Program {
    const { gl } = this;
    const program = gl.createProgram()!;
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, fragment]] as const) {
      const shader = gl.createShader(kind)!;
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost()) throw new NoGraphics(`this browser's graphics refuse the program: ${gl.getShaderInfoLog(shader)}`);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) throw new NoGraphics(`this browser's graphics refuse the program: ${gl.getProgramInfoLog(program)}`);
    const places = new Map<string, WebGLUniformLocation | null>();
    return {
      program,
      at: (name) => {
        if (!places.has(name)) places.set(name, gl.getUniformLocation(program, name));
        return places.get(name)!;
      },
    };
  }

  get bytes(): number {
    return this.levels.reduce((sum, level) => sum + level.bytes, 0);
  }
  find(factor: number, method: Method, coding: Coding): Level | undefined {
    return this.levels.find((level) => level.complete && level.factor === factor && (factor === 1 || level.method === method) && sameCoding(level.coding, coding));
  }

  /** An empty level. Throws OutOfMemory if the device has no room for it. */
  begin(factor: number, method: Method, coding: Coding, shape: number[]): Level {
    const { gl } = this;
    while (gl.getError() !== gl.NO_ERROR && !gl.isContextLost()); // of earlier calls
    const texture = gl.createTexture()!;
    gl.bindTexture(gl.TEXTURE_3D, texture);
    gl.texStorage3D(gl.TEXTURE_3D, 1, coding.bits === 8 ? gl.R8 : gl.RG8, shape[2], shape[1], shape[0]);
    for (const end of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_3D, end, gl.LINEAR);
    for (const axis of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T, gl.TEXTURE_WRAP_R]) gl.texParameteri(gl.TEXTURE_3D, axis, gl.CLAMP_TO_EDGE);
    if (gl.getError() === gl.OUT_OF_MEMORY) {
      gl.deleteTexture(texture);
      throw new OutOfMemory("the graphics memory is full");
    }
    const level = { factor, method, coding, shape, bytes: shape.reduce((a, b) => a * b, coding.bits / 8), complete: false, texture };
    this.levels.push(level);
    return level;
  }

  fill(level: Level, plane: number, planes: number, data: Uint8Array): void {
    const { gl } = this;
    gl.bindTexture(gl.TEXTURE_3D, level.texture);
    gl.texSubImage3D(gl.TEXTURE_3D, 0, 0, 0, plane, level.shape[2], level.shape[1], planes, level.coding.bits === 8 ? gl.RED : gl.RG, gl.UNSIGNED_BYTE, data);
  }

  drop(level: Level): void {
    const at = this.levels.indexOf(level);
    if (at < 0) return;
    this.levels.splice(at, 1);
    this.gl.deleteTexture(level.texture);
  }

  private drawTo(target: Target, width: number, height: number): void {
    const { gl, canvas } = this;
    gl.bindFramebuffer(gl.FRAMEBUFFER, target.buffer);
    if (width <= target.size[0] && height <= target.size[1]) return;
    target.size = [Math.max(width, target.size[0]), Math.max(height, target.size[1])];
    gl.bindRenderbuffer(gl.RENDERBUFFER, target.picture);
    gl.renderbufferStorage(gl.RENDERBUFFER, gl.RGBA8, ...target.size);
    gl.framebufferRenderbuffer(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.RENDERBUFFER, target.picture);
    if (width > canvas.width) canvas.width = width;
    if (height > canvas.height) canvas.height = height;
  }

  private use({ program, at }: Program, level: Level, geometry: Geometry, window: Interval, map: ColourMap): void {
    const { gl } = this;
    gl.useProgram(program);
    if (map !== this.colourMap) {
      gl.activeTexture(gl.TEXTURE1);
      gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, 256, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(table(map).buffer));
      gl.activeTexture(gl.TEXTURE0);
      this.colourMap = map;
    }
    gl.bindTexture(gl.TEXTURE_3D, level.texture);
    gl.uniform1i(at("voxels"), 0);
    gl.uniform1i(at("colours"), 1);
    // The texture's first coordinate runs along the volume's last axis.
    // The last voxels of a level may stand for fewer than the others: then the texture reaches beyond the volume.
    const count = voxelsAlong(level, geometry);
    const order = new Float32Array(9);
    geometry.position.forEach((position, axis) => (order[3 * axis + 2 - position] = count[axis] / level.shape[position]));
    gl.uniformMatrix3fv(at("order"), false, order);
    gl.uniform3fv(at("count"), count);
    gl.uniform2f(at("weights"), ...(level.coding.bits === 8 ? ([1, 0] as const) : ([255 / 65535, 65280 / 65535] as const)));
    const span = level.coding.hi - level.coding.lo;
    gl.uniform2f(at("shown"), (window.lo - level.coding.lo) / span, span / (window.hi - window.lo));
  }

  /** Draws rows `from` to `to`, counted from below, of a picture with this many pixels. */
  drawRays(level: Level, geometry: Geometry, window: Interval, map: ColourMap, wanted: Rays, width: number, height: number, from = 0, to = height): void {
    const { gl } = this;
    const kind = KINDS[wanted.mode];
    const program = this.rays.get(kind) ?? this.link(rays(kind));
    this.rays.set(kind, program);
    this.drawTo(this.view, width, height);
    this.use(program, level, geometry, window, map);
    const { at } = program;
    for (const name of ["corner", "right", "up", "into", "lo", "hi", "light"] as const) gl.uniform3fv(at(name), wanted[name]);
    gl.uniform1f(at("rate"), wanted.rate);
    gl.uniform1f(at("density"), wanted.density);
    if (wanted.planes.length > 0) gl.uniform4fv(at("planes"), wanted.planes);
    gl.uniform1i(at("planeCount"), wanted.planes.length / 4);
    gl.uniform3fv(at("step1"), voxelsAlong(level, geometry).map((n) => 1 / n));
    const least = Math.min(...geometry.spacing);
    gl.uniform3fv(at("slope"), geometry.spacing.map((spacing) => least / spacing));
    gl.viewport(0, 0, width, height);
    gl.enable(gl.SCISSOR_TEST);
    gl.scissor(0, from, width, to - from);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    gl.disable(gl.SCISSOR_TEST);
  }

  drawSlice(level: Level, geometry: Geometry, window: Interval, map: ColourMap, slice: Slice, width: number, height: number, raw = false): void {
    const { gl } = this;
    this.drawTo(this.flat, width, height);
    this.use(this.slices, level, geometry, window, map);
    const { at } = this.slices;
    for (const name of ["corner", "across", "down"] as const) gl.uniform3fv(at(name), slice[name]);
    gl.uniform1i(at("exact"), Number(slice.exact));
    gl.uniform1i(at("raw"), Number(raw));
    gl.uniform1f(at("rows"), height);
    gl.viewport(0, 0, width, height);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
  }

  /** The code, 0 ... 1, of the voxel at a place (fractions). */
  codeAt(level: Level, geometry: Geometry, place: Vec3): number {
    const { gl } = this;
    this.drawSlice(level, geometry, { lo: 0, hi: 1 }, this.colourMap ?? "gray", { corner: place, across: [0, 0, 0], down: [0, 0, 0], exact: true }, 1, 1, true);
    const bytes = new Uint8Array(4);
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
    return level.coding.bits === 8 ? bytes[0] / 255 : (bytes[0] + 256 * bytes[1]) / 65535;
  }

  /** Copies the picture of the rays, or of the slice, that was drawn into a canvas of the page. */
  present(what: "view" | "flat", canvas: HTMLCanvasElement, width: number, height: number): void {
    const { gl } = this;
    gl.bindFramebuffer(gl.READ_FRAMEBUFFER, this[what].buffer);
    gl.bindFramebuffer(gl.DRAW_FRAMEBUFFER, null);
    gl.blitFramebuffer(0, 0, width, height, 0, 0, width, height, gl.COLOR_BUFFER_BIT, gl.NEAREST);
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const context = canvas.getContext("2d")!;
    context.globalCompositeOperation = "copy";
    context.drawImage(this.canvas, 0, this.canvas.height - height, width, height, 0, 0, width, height);
  }

  /** Says later whether the device has done all that it was given. */
  fence(): { done: () => boolean } {
    const { gl } = this;
    const sync = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    gl.flush();
    let over = sync === null;
    return {
      done: () => {
        if (over || gl.isContextLost()) return true;
        over = gl.getSyncParameter(sync!, gl.SYNC_STATUS) === gl.SIGNALED;
        if (over) gl.deleteSync(sync);
        return over;
      },
    };
  }

  /** Gives all memory of the device back. The context goes, too: browsers allow a page few of them. */
  free(): void {
    this.freed = true;
    for (const level of [...this.levels]) this.drop(level);
    this.gl.getExtension("WEBGL_lose_context")?.loseContext();
    [this.canvas.width, this.canvas.height] = [1, 1];
  }
}
