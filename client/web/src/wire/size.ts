const BINARY = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Bytes as people read them. */
export function bytes(value: number): string {
  let unit = 0;
  while (value >= 1000 && unit < BINARY.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${unit === 0 ? value : value.toPrecision(3)} ${BINARY[unit]}`;
}
