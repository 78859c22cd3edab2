// Numbers as people read them, always with their unit.
export { bytes } from "../wire/size";

export function count(value: number): string {
  if (value < 1000) return String(Math.round(value));
  if (value < 1e6) return `${(value / 1e3).toPrecision(3)} k`;
  return `${(value / 1e6).toPrecision(3)} M`;
}

/** "45 s", "3 min 05 s", "2 h 10 min". */
export function span(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${String(Math.floor((seconds % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export function length(um: number): string {
  if (um >= 1000) return `${Number((um / 1000).toPrecision(3))} mm`;
  return `${Number(um.toPrecision(3))} µm`;
}

/** The part of volumes/<server>-<random> that tells one from another. */
export const shortName = (name: string) => name.slice(Math.max(name.indexOf("/"), name.indexOf("-")) + 1).slice(0, 8);
export const inWords = (text: string) => text.toLowerCase().replaceAll("_", " ");
