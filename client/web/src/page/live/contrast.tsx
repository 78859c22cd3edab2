// The contrast of a live picture: its histogram with the window, where the window comes from, and the colours.
import { tell } from "../parts/toasts";
import { useStore } from "../store";
import { COLOUR_MAPS, type ColourMap } from "./colour_maps";
import type { Contrast as Choice, LivePicture } from "./live_picture";
import { hasValues } from "./samples";
import { WindowHistogram } from "./window_histogram";

export function Contrast(props: { picture: LivePicture; label: string; choice: Choice; colourMap: ColourMap; choose: (choice: Choice) => void; colour: (map: ColourMap) => void }) {
  const { picture, choice } = props;
  const histogram = useStore(picture.histogram);
  const shown = useStore(picture.shown);
  const schema = shown?.schema;
  const window = shown?.window ?? null;
  // A picture without values has grey levels.
  const valued = schema && hasValues(schema);
  const value = (stored: number) => (valued ? schema.offset + stored * schema.step : stored);
  const unit = valued ? schema.unit : schema ? "of 255" : "";

  const percent = choice.kind === "percentiles" ? choice : { lo: 1, hi: 99.8 };
  const setPercent = (end: "lo" | "hi") => (event: Event) => {
    const input = event.target as HTMLInputElement;
    const next = { ...percent, [end]: Number(input.value) };
    if (input.value !== "" && next.lo >= 0 && next.hi <= 100 && next.lo < next.hi) return props.choose({ kind: "percentiles", lo: next.lo, hi: next.hi });
    tell(`The ${end === "lo" ? "darkest" : "brightest"} percentile is ${input.value || "no number"}; allowed: ${end === "lo" ? `0 to less than ${percent.hi}` : `more than ${percent.lo}, to 100`} %`);
    input.value = String(percent[end]); // as it was
  };
  return (
    <div class="contrast">
      <WindowHistogram histogram={histogram} window={window} label={props.label} value={value} unit={unit} change={(next) => props.choose({ kind: "fixed", window: next })} />
      <div class="row">
        <label>Contrast
          <select value={choice.kind} onChange={(event) => {
            const kind = event.currentTarget.value as Choice["kind"];
            props.choose(kind === "display" ? { kind } : kind === "percentiles" ? { kind, lo: 1, hi: 99.8 } : { kind, window: window ?? { lo: 0, hi: 255 } });
          }}>
            <option value="display">by the levels</option>
            <option value="percentiles">percentiles</option>
            <option value="fixed">by hand</option>
          </select>
        </label>
        {choice.kind === "percentiles" && (
          <span class="percent">
            <input type="number" min="0" max="99" step="0.1" value={percent.lo} aria-label="Darkest percentile, %" onChange={setPercent("lo")} />–
            <input type="number" min="1" max="100" step="0.1" value={percent.hi} aria-label="Brightest percentile, %" onChange={setPercent("hi")} /> %
          </span>
        )}
        <label>Colours
          <select value={props.colourMap} onChange={(event) => props.colour(event.currentTarget.value as ColourMap)}>
            {COLOUR_MAPS.map((map) => <option key={map} value={map}>{map}</option>)}
          </select>
        </label>
      </div>
    </div>
  );
}
