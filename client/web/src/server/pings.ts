// The pings of one socket, numbered: the pong of one tells that all that was sent before it has arrived.
import { randomBytes } from "node:crypto";

import type { WebSocket } from "ws";

export class Pings {
  private readonly prefix = randomBytes(9).toString("base64url"); // random: a peer that does not read the pings cannot forge their answers
  private sent = 0;
  private returned = 0;
  private measured = { number: 0, at: 0 };

  constructor(private readonly socket: WebSocket) {}

  /** Sends one; returns its number. `measures`: it is to tell how long the way takes, and does not wait behind frames on purpose. */
  send(measures: boolean): number {
    if (this.socket.readyState === this.socket.OPEN) this.socket.ping(`${this.prefix} ${++this.sent}`);
    if (measures) this.measured = { number: this.sent, at: performance.now() };
    return this.sent;
  }

  /** Takes a pong. `known`: it answers one of these for the first time; `ms`: how long its ping took, null if that is not known. */
  back(data: Buffer): { known: boolean; ms: number | null } {
    const [prefix, text = ""] = data.toString("latin1").split(" ");
    const number = prefix === this.prefix && /^\d{1,15}$/.test(text) ? Number(text) : 0; // a page may send pongs of its own
    if (number > this.sent || number <= this.returned) return { known: false, ms: null };
    this.returned = number;
    return { known: true, ms: number === this.measured.number ? performance.now() - this.measured.at : null };
  }

  /** Whether this one has come back, or a later one: a browser may answer the last one alone. */
  isBack(number: number): boolean {
    return number <= this.returned;
  }
}
