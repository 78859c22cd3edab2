// Vectors of three numbers, and rotations as quaternions [w, x, y, z].
export type Vec3 = [number, number, number];
export type Quaternion = [number, number, number, number];

export const dot = (a: Vec3, b: Vec3) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
export const add = (a: Vec3, b: Vec3): Vec3 => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
export const times = (a: Vec3, by: number): Vec3 => [a[0] * by, a[1] * by, a[2] * by];
export const map3 = <T>(of: (i: 0 | 1 | 2) => T): [T, T, T] => [of(0), of(1), of(2)];

export function multiply(a: Quaternion, b: Quaternion): Quaternion {
  const [aw, ax, ay, az] = a;
  const [bw, bx, by, bz] = b;
  return [aw * bw - ax * bx - ay * by - az * bz, aw * bx + ax * bw + ay * bz - az * by, aw * by - ax * bz + ay * bw + az * bx, aw * bz + ax * by - ay * bx + az * bw];
}

/** Of length 1: products of many rotations would drift away from it. */
export function normalized(q: Quaternion): Quaternion {
  const size = Math.hypot(...q);
  return [q[0] / size, q[1] / size, q[2] / size, q[3] / size];
}

export function rotation(axis: Vec3, radians: number): Quaternion {
  const s = Math.sin(radians / 2) / Math.hypot(...axis);
  return [Math.cos(radians / 2), axis[0] * s, axis[1] * s, axis[2] * s];
}

/** The rows of the rotation's matrix. */
export function rowsOf([w, x, y, z]: Quaternion): [Vec3, Vec3, Vec3] {
  return [
    [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
    [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
    [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
  ];
}

/** The rotation whose matrix has these rows: three directions at right angles, as right, down and into the screen are. */
export function fromRows([[a, b, c], [d, e, f], [g, h, i]]: [Vec3, Vec3, Vec3]): Quaternion {
  const trace = a + e + i;
  if (trace > 0) {
    const s = 2 * Math.sqrt(trace + 1);
    return [s / 4, (h - f) / s, (c - g) / s, (d - b) / s];
  }
  if (a > e && a > i) {
    const s = 2 * Math.sqrt(1 + a - e - i);
    return [(h - f) / s, s / 4, (b + d) / s, (c + g) / s];
  }
  if (e > i) {
    const s = 2 * Math.sqrt(1 + e - a - i);
    return [(c - g) / s, (b + d) / s, s / 4, (f + h) / s];
  }
  const s = 2 * Math.sqrt(1 + i - a - e);
  return [(d - b) / s, (c + g) / s, (f + h) / s, s / 4];
}
