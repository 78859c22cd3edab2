// One live picture with its stage, contrast, counters and snapshot.
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";

import type { Encoding, Topic } from "../../wire/protocol";
import { useStore } from "../store";
import type { ColourMap } from "./colour_maps";
import { Contrast } from "./contrast";
import { Counters } from "./counters";
import { useFollow } from "./follow";
import type { Contrast as Choice, LivePicture, Shown } from "./live_picture";
import { hasValues } from "./samples";
import { saveSnapshot } from "./snapshot";
import type { Spacing } from "./spacing";
import { type Line, Stage } from "./stage";

export function Panel(props: {
  picture: LivePicture;
  id: string;
  title: string;
  topic: Topic | null;
  encoding: Encoding;
  frozen: boolean;
  spacing: (shown: Shown) => Spacing;
  lines?: Line[];
  pick?: (row: number, column: number) => void;
  controls: ComponentChildren;
  empty: string;
  of?: string; // what it is a picture of: scan, job
  about: (shown: Shown) => object;
  failed: (message: string) => void;
}) {
  const { picture } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [choice, setChoice] = useState<Choice>(picture.contrast);
  const [colourMap, setColourMap] = useState<ColourMap>(picture.colourMap);
  const ended = useStore(picture.pump.ended);
  const problem = useStore(picture.pump.problem);
  const shown = useStore(picture.shown);

  useFollow(picture.pump, props.topic, props.encoding, props.frozen);

  const choose = (next: Choice) => {
    picture.contrast = next;
    setChoice(next);
    picture.repaint();
  };
  const colour = (map: ColourMap) => {
    picture.colourMap = map;
    setColourMap(map);
    picture.repaint();
  };
  const snapshot = () => {
    const now = picture.shown.value;
    if (!now || !canvas.current) return;
    const { topic, schema, header } = now;
    const value = (stored: number) => (hasValues(schema) ? schema.offset + stored * schema.step : null);
    const about = {
      ...props.about(now), ...(topic.slab ? { slab: topic.slab } : {}), product: schema.product, axis: schema.axis, axes: schema.axes, spacing_um: schema.spacing_um, unit: schema.unit, colour_map: colourMap, sequence: header.sequence,
      volume_index: header.volume, complete: header.complete, saved: new Date().toISOString(),
      darkest: value(now.window.lo), brightest: value(now.window.hi),
    };
    saveSnapshot(canvas.current, `octavo_${schema.product.toLowerCase()}_${header.sequence}.png`, about).catch((error: Error) => props.failed(error.message));
  };
  // Of another scan than the one that is chosen: nothing to look at any more.
  const stale = shown === null || props.topic === null;
  return (
    <section class="panel" id={props.id} aria-label={props.title}>
      <header class="row">
        <h2>{props.title}</h2>
        {props.controls}
        <span class="gap" />
        <button type="button" onClick={snapshot} disabled={stale} title="Save this picture as PNG, with its metadata">Snapshot</button>
      </header>
      <Stage picture={picture} label={props.title} spacing={props.spacing} lines={props.lines} pick={props.pick} canvasRef={canvas}>
        {stale && <p class="empty">{props.empty}</p>}
        {problem && <p class="empty" role="alert">{problem}</p>}
        {shown && !stale && !shown.header.complete && <div class="tag">{props.of === "job" ? "not final" : "being acquired"}</div>}
        {props.frozen && shown && <div class="tag frozen">frozen</div>}
      </Stage>
      <Contrast picture={picture} label={props.title} choice={choice} colourMap={colourMap} choose={choose} colour={colour} />
      <Counters pump={picture.pump} />
      {ended && props.topic && <p class="note" role="status">{ended.reason === "FINISHED" ? `The ${props.of ?? "scan"} has ended; this is its last picture.` : ended.message}</p>}
    </section>
  );
}
