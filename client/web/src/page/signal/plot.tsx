// A plot of a trace, in the colours of the theme.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { useStore } from "../store";
import { theme } from "../theme";
import type { Trace } from "./trace";

const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const LINES = ["--accent", "--warn", "--dim", "--text"];

/** What decides how the plot is made; its data change all the time. */
const shapeOf = (trace: Trace) => JSON.stringify([trace.xText, trace.lines.map((line) => line.text), trace.saturated !== null, trace.schema.unit]);

/** The range of y: that of the digitizer where it is known, else what was seen so far. */
class Range {
  private seen: [number, number] = [Infinity, -Infinity];
  of(trace: Trace): [number, number] {
    const top = trace.schema.product === "SPECTRUM" ? trace.schema.saturation?.hi : null;
    for (const line of trace.lines)
      for (const value of line.values) {
        if (value < this.seen[0]) this.seen[0] = value;
        if (value > this.seen[1]) this.seen[1] = value;
      }
    const [lo, hi] = top ? [Math.min(0, this.seen[0]), top] : this.seen;
    if (!(hi > lo)) return [Number.isFinite(lo) ? lo - 1 : 0, Number.isFinite(lo) ? lo + 1 : 1];
    return [lo - 0.02 * (hi - lo), hi + 0.04 * (hi - lo)];
  }
}

export function Plot({ trace, label }: { trace: Trace; label: string }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const range = useRef(new Range());
  const shade = useStore(theme);
  const shape = shapeOf(trace);
  const latest = useRef(trace);
  latest.current = trace;

  useEffect(() => {
    range.current = new Range();
    const element = box.current!;
    const axis = (text: string): uPlot.Axis => ({ label: text, stroke: colour("--text"), grid: { stroke: colour("--edge"), width: 1 }, ticks: { stroke: colour("--edge"), width: 1 }, font: "12px sans-serif", labelFont: "13px sans-serif" });
    const first = latest.current;
    const series: uPlot.Series[] = [{ label: first.xText }, ...first.lines.map((line, i) => ({ label: line.text, stroke: colour(LINES[i]), width: 1, points: { show: false } }))];
    if (first.saturated) series.push({ label: "saturated", stroke: colour("--danger"), width: 0, points: { show: true, size: 7, fill: colour("--danger") } });
    const made = new uPlot(
      {
        width: element.clientWidth, height: element.clientHeight - 30, series, legend: { live: true }, cursor: { drag: { x: true, y: false } },
        scales: { x: { time: false }, y: { range: () => range.current.of(latest.current) } },
        axes: [{ ...axis(first.xText), size: 30, labelSize: 20 }, { ...axis(first.schema.unit ? `value, ${first.schema.unit}` : "value, stored units"), size: 64 }],
      },
      dataOf(first),
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: Math.max(120, element.clientHeight - 30) }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, shade]);
  useEffect(() => plot.current?.setData(dataOf(trace), false), [trace]);
  return <div ref={box} class="plot" role="img" aria-label={label} data-samples={trace.x.length} data-saturated={trace.saturatedCount} />;
}

function dataOf(trace: Trace): uPlot.AlignedData {
  const data: Float64Array[] = [trace.x, ...trace.lines.map((line) => line.values)];
  if (trace.saturated) data.push(trace.saturated);
  return data as unknown as uPlot.AlignedData;
}
