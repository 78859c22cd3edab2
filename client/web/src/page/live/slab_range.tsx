// The range of depth of an en face slab, in samples; the end is behind the last one.
import { length } from "../format";
import { tell } from "../parts/toasts";

/** The slab within the depth; the middle third where none was asked for, or where nothing of it is left. */
export function slabWithin(asked: [number, number], depth: number): [number, number] {
  const [begin, end] = [Math.max(0, asked[0]), Math.min(asked[1], depth)];
  if (begin < end) return [begin, end];
  const third = Math.floor(depth / 3);
  return [third, Math.max(third + 1, depth - third)];
}

export function SlabRange(props: { slab: [number, number]; depth: number; um: number; choose: (slab: [number, number]) => void }) {
  const [begin, end] = props.slab;
  // What is no depth changes nothing, and is told.
  const set = (text: string, make: (z: number) => [number, number], allowed: string) => {
    const z = Number(text);
    const [lo, hi] = make(z);
    if (text !== "" && Number.isInteger(z) && lo >= 0 && lo < hi && hi <= props.depth) props.choose([lo, hi]);
    else tell(`The slab's depth is ${text || "no number"}; allowed: whole numbers from ${allowed}`);
  };
  return (
    <span class="slab row">
      <label>from
        <input type="number" min={0} max={end - 1} value={begin} aria-label={`First depth of the slab, 0 to ${end - 1}`} onChange={(event) => (set(event.currentTarget.value, (z) => [z, end], `0 to ${end - 1}`), (event.currentTarget.value = String(begin)))} />
      </label>
      <label>to
        <input type="number" min={begin + 1} max={props.depth} value={end} aria-label={`End of the slab, ${begin + 1} to ${props.depth}`} onChange={(event) => (set(event.currentTarget.value, (z) => [begin, z], `${begin + 1} to ${props.depth}`), (event.currentTarget.value = String(end)))} />
      </label>
      <output>{props.um > 0 ? `${length(begin * props.um)} to ${length(end * props.um)}` : `of ${props.depth}`}</output>
    </span>
  );
}
