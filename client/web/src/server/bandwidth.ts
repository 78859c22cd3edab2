// The bandwidth of a connection, from the times between frames and their acknowledgements.

const SAMPLES = 12;
const LEAST_MS = 1; // clocks and event loops are no finer
// Two limits, so that the choice does not swing.
const RAW_ABOVE_MBIT_S = 80;
const JPEG_BELOW_MBIT_S = 50;

export class Bandwidth {
  private readonly samples: number[] = [];
  private roundTrip = 0;
  private choice: "RAW" | "JPEG" = "RAW";

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

  /** What the connection carries well. */
  get encoding(): "RAW" | "JPEG" {
    if (this.samples.length < 4) return this.choice;
    if (this.mbitS < JPEG_BELOW_MBIT_S) this.choice = "JPEG";
    if (this.mbitS > RAW_ABOVE_MBIT_S) this.choice = "RAW";
    return this.choice;
  }
}
