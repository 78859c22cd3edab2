// What stored numbers mean: value = offset + stored * step, in its unit.
import type { VolumeRow } from "../../wire/protocol";
import { call } from "../connection";

export interface Meaning {
  offset: number;
  step: number;
  unit: string; // empty = stored units, or none
}
export const STORED: Meaning = { offset: 0, step: 1, unit: "" };

const ENDS: Record<string, [number, number]> = { U8: [0, 255], I8: [-128, 127], U16: [0, 65535], I16: [-32768, 32767], U32: [0, 2 ** 32 - 1], I32: [-(2 ** 31), 2 ** 31 - 1], F16: [0, 1], F32: [0, 1] };

export async function meaningOf(row: VolumeRow): Promise<Meaning> {
  const { volume } = await call("VolumeService/GetVolume", { name: row.name });
  const ends = ENDS[row.dtype];
  const unit = volume.value === "VALUE_DB" ? "dB" : "";
  if (!volume.levels || !ends) return { ...STORED, unit };
  const step = (volume.levels.hi - volume.levels.lo) / (ends[1] - ends[0]);
  return { offset: volume.levels.lo - ends[0] * step, step, unit };
}

/** With as many digits as tell values of the volume apart. */
export function valueText(meaning: Meaning, stored: number): string {
  return `${Number((meaning.offset + stored * meaning.step).toPrecision(6))}${meaning.unit ? ` ${meaning.unit}` : ""}`;
}
