// Trials of rotation axes: how spread the edges of a slice are. The least is the sharpest, and the axis is
// most likely that one's. The same figure as that of `octavo recon --try-centers`.

/** Means over `width` neighbours along rows, which become columns: twice is a mean over squares. */
function meansTurned(values: ArrayLike<number>, rows: number, columns: number, width: number): Float64Array {
  const kept = columns - width + 1;
  const out = new Float64Array(rows * kept);
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < kept; column++) {
      let sum = 0;
      for (let i = 0; i < width; i++) sum += values[row * columns + column + i];
      out[column * rows + row] = sum / width;
    }
  return out;
}

/** The mean length of the gradient over its root mean square, of the slice smoothed over 5 x 5 pixels within the circle. */
export function edgeSpread(values: ArrayLike<number>, rows: number, columns: number): number {
  const width = Math.min(5, rows - 1, columns - 1);
  if (width < 1) return 1;
  const w = columns - width + 1;
  const h = rows - width + 1;
  const smooth = meansTurned(meansTurned(values, rows, columns, width), w, rows, width);
  const [y0, x0] = [(h - 1) / 2, (w - 1) / 2];
  const radius = (0.95 * Math.min(h, w)) / 2;
  let [sum, squares, n] = [0, 0, 0];
  for (let y = 0; y + 1 < h; y++)
    for (let x = 0; x + 1 < w; x++) {
      if (Math.hypot(y - y0, x - x0) > radius) continue;
      const at = y * w + x;
      const length = Math.hypot(smooth[at + w] - smooth[at], smooth[at + 1] - smooth[at]);
      sum += length;
      squares += length * length;
      n++;
    }
  return squares > 0 ? sum / Math.sqrt(n * squares) : 1;
}

export interface Tile {
  side: number[]; // [rows, columns]
  values: Float32Array;
}

/** The slice shrunk to at most `most` pixels a side, by the mean of squares of pixels. */
export function shrunk(values: ArrayLike<number>, rows: number, columns: number, most: number): Tile {
  const factor = Math.max(1, Math.ceil(Math.max(rows, columns) / most));
  const [h, w] = [Math.floor(rows / factor), Math.floor(columns / factor)];
  const out = new Float32Array(h * w);
  for (let y = 0; y < h; y++)
    for (let x = 0; x < w; x++) {
      let sum = 0;
      for (let i = 0; i < factor; i++) for (let k = 0; k < factor; k++) sum += values[(y * factor + i) * columns + x * factor + k];
      out[y * w + x] = sum / (factor * factor);
    }
  return { side: [h, w], values: out };
}

const MOST_SORTED = 200_000;

/** The contrast of all tiles together: 0.2 to 99.8 % of their pixels, or of every k-th where they are many. */
export function contrastOf(tiles: Tile[]): { lo: number; hi: number } {
  const every = Math.max(1, Math.ceil(tiles.reduce((sum, tile) => sum + tile.values.length, 0) / MOST_SORTED));
  const all = Float32Array.from(tiles.flatMap((tile) => Array.from({ length: Math.ceil(tile.values.length / every) }, (_, i) => tile.values[i * every]).filter(Number.isFinite))).sort();
  if (all.length === 0) return { lo: 0, hi: 1 };
  const at = (part: number) => all[Math.floor(part * (all.length - 1) + 0.5)];
  const [lo, hi] = [at(0.002), at(0.998)];
  return hi > lo ? { lo, hi } : { lo, hi: lo + 1 };
}
