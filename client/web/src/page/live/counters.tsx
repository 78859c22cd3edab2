// The figures below a live view.
import { useEffect } from "preact/hooks";

import { bytes, count } from "../format";
import { useStore } from "../store";
import type { FramePump } from "./frame_pump";

export function Counters({ pump, children }: { pump: FramePump; children?: preact.ComponentChildren }) {
  const counters = useStore(pump.counters);
  useEffect(() => {
    const timer = setInterval(() => pump.count(false), 1000);
    return () => clearInterval(timer);
  }, [pump]);
  return (
    <dl class="counters" data-shown={counters.shown} data-dropped={counters.dropped}>
      <div><dt>frames</dt><dd>{counters.fps.toFixed(1)} Hz</dd></div>
      <div><dt>latency</dt><dd>{counters.latencyMs === null ? "–" : `${Math.round(counters.latencyMs)} ms`}</dd></div>
      <div><dt>shown</dt><dd>{count(counters.shown)}</dd></div>
      <div class={counters.dropped > 0 ? "warn" : ""}><dt>dropped</dt><dd>{count(counters.dropped)}</dd></div>
      <div><dt>sent as</dt><dd>{counters.encoding ? `${counters.encoding === "RAW" ? "raw" : "JPEG"}, ${bytes(counters.bytes)}` : "–"}</dd></div>
      {children}
    </dl>
  );
}
