// The programs of the graphics device: rays through the volume, slices, and the number of one voxel.

export const VERTEX = `#version 300 es
void main() { gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0, 0.0, 1.0); }`;

// Places are fractions of the volume along x, y and z; "order" makes those of the texture of them.
const COMMON = `#version 300 es
precision highp float;
precision highp int;
precision highp sampler3D;
uniform sampler3D voxels;
uniform sampler2D colours;
uniform mat3 order;
uniform vec3 count;    // voxels of this level along x, y, z
uniform vec2 weights;  // of the bytes in a code of 0 ... 1: the higher byte is linear in it, so interpolation is exact
uniform vec2 shown;    // codes that are darkest, and 1 / (brightest - darkest)
out vec4 colour;
float codeAt(vec3 place) { return dot(texture(voxels, order * place).rg, weights); }
float levelOf(float code) { return (code - shown.x) * shown.y; }
vec3 painted(float level) { return texelFetch(colours, ivec2(int(clamp(level, 0.0, 1.0) * 255.0 + 0.5), 0), 0).rgb; }
`;

/** How a ray makes a colour. The program of a mode has nothing of the others: it is small, and soon ready. */
export type RayKind = "MAXIMUM" | "AVERAGE" | "SHADED" | "SLICES";

// Where a ray begins and ends in the box; "cut" is where the first slice plane ends it, whose colour is "behind".
export const rays = (kind: RayKind) => `${COMMON}
#define ${kind}
uniform vec3 corner, right, up, into;  // of the pixels' rays: the first pixel's corner, a pixel to the right, one up, and their direction
uniform vec3 lo, hi;                   // the box that is shown
uniform float rate;                    // samples a voxel
uniform vec4 planes[4];                // normal and distance
uniform int planeCount;
uniform vec3 step1;                    // a voxel, as fractions
uniform vec3 slope;                    // 1 / spacing of voxels, the finest 1: for slopes in true proportions
uniform vec3 light;                    // towards it, in the scene
uniform float density;                 // opacity of the brightest over the length that "into" has
float noise(vec2 at) { return fract(52.9829189 * fract(dot(at, vec2(0.06711056, 0.00583715)))); }
void main() {
  colour = vec4(0.0, 0.0, 0.0, 1.0);
  vec3 origin = corner + right * gl_FragCoord.x + up * gl_FragCoord.y;
  vec3 way = mix(into, vec3(1e-7), lessThan(abs(into), vec3(1e-7)));
  vec3 a = (lo - origin) / way, b = (hi - origin) / way;
  vec3 nearer = min(a, b), farther = max(a, b);
  float begin = max(nearer.x, max(nearer.y, nearer.z)), end = min(farther.x, min(farther.y, farther.z));
  if (begin >= end) return;
  float cut = end;
#if defined SHADED || defined SLICES
  vec3 behind = vec3(0.0);
  for (int i = 0; i < planeCount; i++) {
    float slant = dot(planes[i].xyz, into);
    float at = (planes[i].w - dot(planes[i].xyz, origin)) / slant;
    if (abs(slant) < 1e-6 || at < begin || at > cut) continue;
    cut = at;
    behind = painted(levelOf(codeAt(origin + into * at)));
  }
#endif
#ifdef SLICES
  colour.rgb = behind;
#else
  vec3 voxelsPassed = abs(into) * count;
  float passed = (cut - begin) * max(voxelsPassed.x, max(voxelsPassed.y, voxelsPassed.z)) * rate;
  int samples = clamp(int(ceil(passed - 0.01)), 1, 8192);  // the middle of each voxel along an axis, exactly
  float pace = (cut - begin) / float(samples);
#endif
#ifdef MAXIMUM
  float most = 0.0, enough = shown.x + 1.0 / shown.y, at = begin + 0.5 * pace;
  for (int i = 0; i < samples && most < enough; i++, at += pace) most = max(most, codeAt(origin + into * at));
  colour.rgb = painted(levelOf(most));
#endif
#ifdef AVERAGE
  float sum = 0.0, at = begin + 0.5 * pace;
  for (int i = 0; i < samples; i++, at += pace) sum += codeAt(origin + into * at);
  colour.rgb = painted(levelOf(sum / float(samples)));
#endif
#ifdef SHADED
  vec3 seen = vec3(0.0);
  float left = 1.0, at = begin + noise(gl_FragCoord.xy) * pace;  // no rings where steps end
  for (int i = 0; i < samples && left > 0.02; i++, at += pace) {
    vec3 place = origin + into * at;
    float level = clamp(levelOf(codeAt(place)), 0.0, 1.0);
    float opacity = 1.0 - exp(-density * level * level * pace);
    if (opacity < 0.002) continue;
    vec3 before = vec3(codeAt(place - vec3(step1.x, 0.0, 0.0)), codeAt(place - vec3(0.0, step1.y, 0.0)), codeAt(place - vec3(0.0, 0.0, step1.z)));
    vec3 after = vec3(codeAt(place + vec3(step1.x, 0.0, 0.0)), codeAt(place + vec3(0.0, step1.y, 0.0)), codeAt(place + vec3(0.0, 0.0, step1.z)));
    vec3 normal = (after - before) * slope;
    float size = length(normal);
    float facing = size > 1e-6 ? abs(dot(normal, light)) / size : 0.7;
    seen += left * opacity * (painted(level) * (0.3 + 0.7 * facing) + 0.15 * pow(facing, 24.0));
    left *= 1.0 - opacity;
  }
  colour.rgb = seen + left * behind;
#endif
}`;

/** A plane, a pixel for each step of "across" and "down": the voxel itself, or interpolated. */
export const SLICE = `${COMMON}
uniform vec3 corner, across, down;
uniform bool exact;
uniform bool raw;  // the bytes of the voxel instead of its colour
uniform float rows;
void main() {
  vec3 place = corner + across * gl_FragCoord.x + down * (rows - gl_FragCoord.y);
  // The middle of a level's last voxel may lie beside the volume, that of a pixel of an oblique slice may lie anywhere.
  if (!exact && (any(lessThan(place, vec3(0.0))) || any(greaterThan(place, vec3(1.0))))) { colour = vec4(0.0); return; }
  ivec3 most = textureSize(voxels, 0) - 1;
  vec2 found = texelFetch(voxels, clamp(ivec3(floor(order * place * vec3(most + 1))), ivec3(0), most), 0).rg;
  if (raw) colour = vec4(found, 0.0, 1.0);
  else colour = vec4(painted(levelOf(exact ? dot(found, weights) : codeAt(place))), 1.0);
}`;
