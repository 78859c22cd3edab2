// The time, for what is told as "since" and "in".
import { useEffect, useState } from "preact/hooks";

export function useClock(everyMs: number): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, []);
  return now;
}
