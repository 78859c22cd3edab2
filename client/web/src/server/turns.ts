// Turns at work that takes memory and the daemon's time: so many at once in all, so many of one browser,
// and those that wait get theirs browser by browser, so that one with many requests does not keep the
// others waiting. What waits is bounded, too.
import type { ServerResponse } from "node:http";

import { Refusal } from "./guard";

interface Waiter {
  go: (turn: (() => void) | null) => void;
}

export class Turns {
  private readonly running = new Map<string, number>();
  private readonly waiting = new Map<string, Waiter[]>(); // browsers in the order in which they get their next turn
  private runningCount = 0;
  private waitingCount = 0;

  /**
   * @param most at once
   * @param mostOfOne at once, of one browser
   * @param mostWaiting of all browsers together
   * @param mostWaitingOfOne of one browser
   */
  constructor(
    private readonly most: number,
    private readonly mostOfOne: number,
    private readonly mostWaiting: number,
    private readonly mostWaitingOfOne: number,
  ) {}

  /** Waits for a turn; call what it gives when the work is over. Null: the reader has gone meanwhile. Throws Refusal if too many wait. */
  take(browser: string, response: ServerResponse): Promise<(() => void) | null> {
    const own = this.waiting.get(browser)?.length ?? 0;
    if (own === 0 && this.mayRun(browser)) return Promise.resolve(this.begin(browser));
    if (own >= this.mostWaitingOfOne)
      throw new Refusal(429, "TOO_MANY", `${own} pictures and voxel reads of this browser wait already, and there may be no more: ask again when one has come`);
    if (this.waitingCount >= this.mostWaiting)
      throw new Refusal(503, "BUSY", `${this.waitingCount} pictures and voxel reads wait already, and there may be no more: ask again in a moment`);
    return new Promise((resolve) => {
      const gone = () => {
        this.leave(browser, waiter);
        resolve(null);
      };
      const waiter: Waiter = {
        go: (turn) => {
          response.off("close", gone);
          resolve(turn);
        },
      };
      response.once("close", gone);
      this.waiting.set(browser, [...(this.waiting.get(browser) ?? []), waiter]);
      this.waitingCount++;
    });
  }

  private mayRun(browser: string): boolean {
    return this.runningCount < this.most && (this.running.get(browser) ?? 0) < this.mostOfOne;
  }

  private begin(browser: string): () => void {
    this.runningCount++;
    this.running.set(browser, (this.running.get(browser) ?? 0) + 1);
    let over = false;
    return () => {
      if (over) return;
      over = true;
      this.runningCount--;
      const left = this.running.get(browser)! - 1;
      if (left > 0) this.running.set(browser, left);
      else this.running.delete(browser);
      this.next();
    };
  }

  private next(): void {
    for (const [browser, waiters] of this.waiting) {
      if (this.runningCount >= this.most) return;
      if (!this.mayRun(browser)) continue;
      const waiter = waiters[0];
      this.leave(browser, waiter);
      // The others first, before it gets the next one.
      const rest = this.waiting.get(browser);
      if (rest) {
        this.waiting.delete(browser);
        this.waiting.set(browser, rest);
      }
      waiter.go(this.begin(browser));
    }
  }

  private leave(browser: string, waiter: Waiter): void {
    const waiters = this.waiting.get(browser);
    if (!waiters?.includes(waiter)) return;
    this.waitingCount--;
    const rest = waiters.filter((other) => other !== waiter);
    if (rest.length > 0) this.waiting.set(browser, rest);
    else this.waiting.delete(browser);
  }

  get counts(): { running: number; waiting: number } {
    return { running: this.runningCount, waiting: this.waitingCount };
  }
}
