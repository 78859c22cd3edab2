// Values of the daemon's messages as pages get them.
import type { Message } from "./daemon";

/** A Timestamp as ms since 1970; 0 = unset. */
export const ms = (time: Message) => (time ? Number(time.seconds) * 1000 + Math.floor(time.nanos / 1e6) : 0);
/** A Duration in ms; null = unset. */
export const duration = (time: Message) => (time ? Number(time.seconds) * 1000 + time.nanos / 1e6 : null);
/** The name of an enum's value without its prefix; empty for UNSPECIFIED. */
export const without = (text: string, prefix: string) => (text.startsWith(prefix) ? text.slice(prefix.length) : text).replace(/^UNSPECIFIED$/, "");
/** NaN and infinity, which JSON does not have, as null. */
export const known = (value: number) => (Number.isFinite(value) ? value : null);
