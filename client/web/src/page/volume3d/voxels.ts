// Voxels as the server sends them, as numbers, and as the one or two bytes of a texture.
import type { Interval } from "../../wire/protocol";

export type Numbers = Uint8Array | Int8Array | Uint16Array | Int16Array | Uint32Array | Int32Array | Float32Array | Float64Array;
export type Bits = 8 | 16;

/** How the numbers of a texture follow from values: 0 at `lo`, all bits set at `hi`, rounded, and held at the ends. */
export interface Coding extends Interval {
  bits: Bits;
}

/** Types whose every number has a code of its own. */
const WHOLE: Record<string, Coding> = {
  U8: { bits: 8, lo: 0, hi: 255 }, I8: { bits: 8, lo: -128, hi: 127 }, U16: { bits: 16, lo: 0, hi: 65535 }, I16: { bits: 16, lo: -32768, hi: 32767 },
};
export const exactBits = (dtype: string): Bits => (WHOLE[dtype]?.bits === 8 ? 8 : 16);

let halves: Float32Array | null = null;
/** The numbers that the 65536 halves stand for. */
function halfTable(): Float32Array {
  halves ??= Float32Array.from({ length: 65536 }, (_, bits) => {
    const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
    const size = exponent === 31 ? (fraction ? NaN : Infinity) : exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
    return bits & 0x8000 ? -size : size;
  });
  return halves;
}

function magnitudes(pairs: Float32Array | Float64Array): Float32Array {
  return Float32Array.from({ length: pairs.length / 2 }, (_, i) => Math.hypot(pairs[2 * i], pairs[2 * i + 1]));
}

/** Numbers of little-endian bytes; of complex numbers their magnitude. */
export function decode(dtype: string, data: ArrayBuffer): Numbers {
  switch (dtype) {
    case "U8": return new Uint8Array(data);
    case "I8": return new Int8Array(data);
    case "U16": return new Uint16Array(data);
    case "I16": return new Int16Array(data);
    case "U32": return new Uint32Array(data);
    case "I32": return new Int32Array(data);
    case "F32": return new Float32Array(data);
    case "F64": return new Float64Array(data);
    case "U64": return Float64Array.from(new BigUint64Array(data), Number);
    case "I64": return Float64Array.from(new BigInt64Array(data), Number);
    case "F16": {
      const table = halfTable();
      return Float32Array.from(new Uint16Array(data), (bits) => table[bits]);
    }
    case "C32": {
      const table = halfTable();
      return magnitudes(Float32Array.from(new Uint16Array(data), (bits) => table[bits]));
    }
    case "C64": return magnitudes(new Float32Array(data));
    case "C128": return magnitudes(new Float64Array(data));
    default: throw new Error(`this page does not show voxels of type ${dtype}`);
  }
}

/** The bytes of a texture: R, or R and G with the higher byte in G. NaN becomes 0, as the server has it. */
export function encode(values: Numbers, coding: Coding): Uint8Array {
  const top = coding.bits === 8 ? 255 : 65535;
  const codes = coding.bits === 8 ? new Uint8Array(values.length) : new Uint16Array(values.length);
  const factor = top / (coding.hi - coding.lo);
  for (let i = 0; i < codes.length; i++) {
    const code = (values[i] - coding.lo) * factor + 0.5;
    codes[i] = code >= top ? top : code > 0 ? code : 0;
  }
  return new Uint8Array(codes.buffer);
}

/** The value that a code, 0 ... 1, stands for. */
export const valueOf = (coding: Coding, code: number) => coding.lo + code * (coding.hi - coding.lo);

// A window shows this many steps at least, or the voxels are coded anew around it.
const LEAST_PART: Record<Bits, number> = { 8: 1 / 4, 16: 1 / 64 };
const MARGIN: Record<Bits, number> = { 8: 0.5, 16: 8 };

/** Whether the codes tell enough values of the window apart. */
export function suits(coding: Coding, bits: Bits, dtype: string, window: Interval, range: Interval): boolean {
  const whole = WHOLE[dtype];
  if (whole && whole.bits <= bits) return coding.lo === whole.lo && coding.hi === whole.hi && coding.bits === whole.bits;
  const outside = (window.lo < coding.lo && coding.lo > range.lo) || (window.hi > coding.hi && coding.hi < range.hi);
  return coding.bits === bits && !outside && window.hi - window.lo >= LEAST_PART[bits] * (coding.hi - coding.lo);
}

/** The coding for a window: of all numbers of the type, of the range of the values, or of the window with some margin. */
export function codingFor(bits: Bits, dtype: string, window: Interval, range: Interval): Coding {
  const whole = WHOLE[dtype];
  if (whole && whole.bits <= bits) return whole;
  const all: Coding = { bits, lo: Math.fround(range.lo), hi: Math.fround(range.hi) };
  if (suits(all, bits, dtype, window, range)) return all;
  const margin = MARGIN[bits] * (window.hi - window.lo);
  return { bits, lo: Math.fround(Math.max(range.lo, window.lo - margin)), hi: Math.fround(Math.min(range.hi, window.hi + margin)) };
}
export const sameCoding = (a: Coding, b: Coding) => a.bits === b.bits && a.lo === b.lo && a.hi === b.hi;
