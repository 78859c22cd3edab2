// The bandwidth of a connection, from the times between frames and their acknowledgements.

const SAMPLES = 12;
const LEAST_MS = 1; // clocks and event loops are no finer
const LEAST_SAMPLES = 4;
// A connection carries raw pictures if it has half as much again as they need. What has 50 Mbit/s has enough for most, and is
// shared. Two limits, so that the choice does not swing.
const SPARE = 1.5;
const ENOUGH_MBIT_S = 50;
const BACK = 1.6;

export class Bandwidth {
  private readonly samples: number[] = [];
  private roundTrip = 0;

  /** A ping came back after so long. The smallest of late is what the way itself takes. */
  pinged(ms: number): void {
    this.roundTrip = this.roundTrip === 0 ? ms : Math.min(ms, this.roundTrip * 0.9 + ms * 0.1);
  }

  /** A frame of so many bytes was acknowledged after so long, of which the page painted for so long. */
  acknowledged(bytes: number, ms: number, paintedMs: number): void {
    const onTheWay = Math.max(LEAST_MS, ms - paintedMs - this.roundTrip);
    this.samples.push((bytes * 8) / 1000 / onTheWay);
    if (this.samples.length > SAMPLES) this.samples.shift();
  }

  get rttMs(): number {
    return this.roundTrip;
  }

  /** Mbit/s; 0 = not measured. The best of late: a busy page makes frames late, not the connection. */
  get mbitS(): number {
    return this.samples.length === 0 ? 0 : Math.max(...this.samples);
  }

  /** What the connection carries well, for frames that need so much if they are sent raw; `now` is what is sent. */
  choose(now: "RAW" | "JPEG", neededMbitS: number): "RAW" | "JPEG" {
    if (this.samples.length < LEAST_SAMPLES) return now;
    const limit = Math.min(ENOUGH_MBIT_S, SPARE * neededMbitS);
    if (this.mbitS < limit) return "JPEG";
    return this.mbitS > BACK * limit ? "RAW" : now;
  }
}
