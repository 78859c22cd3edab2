// Makes a view follow its topic.
import { useEffect, useRef } from "preact/hooks";

import type { Encoding, Topic } from "../../wire/protocol";
import type { FramePump } from "./frame_pump";

const FOLLOW_MS = 100;

export function useFollow(pump: FramePump, topic: Topic | null, encoding: Encoding, frozen: boolean): void {
  const followed = useRef(0);
  useEffect(() => {
    const follow = () => {
      followed.current = performance.now();
      pump.follow(topic, encoding);
    };
    // Another scan, product or axis: what is shown must not stay under its name.
    if (!pump.follows(topic)) return follow();
    // A slider that is dragged asks for many topics: ten a second are enough.
    const wait = Math.max(0, followed.current + FOLLOW_MS - performance.now());
    const timer = setTimeout(follow, wait);
    return () => clearTimeout(timer);
  }, [JSON.stringify([topic, encoding])]);
  useEffect(() => () => pump.follow(null, "AUTO"), []);
  useEffect(() => pump.freeze(frozen), [frozen]);
}
