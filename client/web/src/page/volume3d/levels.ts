// Levels of detail: the whole volume with 1, 2, 4 … voxels along each axis as one. The coarsest has at most 64 of them a side.
import { bytes } from "../format";
import type { Bits } from "./voxels";

const FIRST_SIDE = 64;
const MOST_FACTOR = 64; // of ReadVolume.downsample

export interface LevelPlan {
  factors: number[]; // from the coarsest to the finest one that is shown
  limit: string; // why the finest one is not the volume itself; empty = it is
}

export const coarser = (shape: readonly number[], factor: number) => shape.map((n) => Math.ceil(n / factor));
export const levelBytes = (shape: readonly number[], factor: number, bits: Bits) => coarser(shape, factor).reduce((a, b) => a * b, bits / 8);

/** The levels of a volume that fit: `mostSide` of a texture, `mostBytes` of all of them, `wantedSide` by choice (0 = all). */
export function planLevels(shape: readonly number[], bits: Bits, mostSide: number, mostBytes: number, wantedSide: number): LevelPlan {
  const longest = Math.max(...shape);
  let factor = 1;
  while (factor < MOST_FACTOR && longest / factor > FIRST_SIDE) factor *= 2;
  const factors: number[] = [];
  let limit = "";
  let sum = 0;
  for (; factor >= 1; factor /= 2) {
    const side = Math.ceil(longest / factor);
    sum += levelBytes(shape, factor, bits);
    if (side > mostSide) limit = `this browser's graphics take at most ${mostSide} voxels a side`;
    else if (sum > mostBytes) limit = `this page takes at most ${bytes(mostBytes)} of graphics memory`;
    else if (wantedSide > 0 && side > wantedSide && factors.length > 0) limit = "as chosen";
    else {
      factors.push(factor);
      continue;
    }
    break;
  }
  return { factors, limit };
}
