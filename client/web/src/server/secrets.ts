// Who may come in: one-time tokens that a person carries from the terminal to the browser, and the
// sessions that they are exchanged for. Only digests are kept.
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";

const BYTES = 32; // 256 bits
const TOKEN_MS = 12 * 3600e3;
const SESSION_MS = 12 * 3600e3; // without any request
const MOST_TOKENS = 64;
const MOST_SESSIONS = 1024;

const digest = (secret: string) => createHash("sha256").update(secret).digest();

/** Digests of secrets with the time at which each ends. The oldest gives way when there are too many. */
class Ring {
  private entries: { digest: Buffer; end: number }[] = [];
  constructor(
    private readonly most: number,
    private readonly lifeMs: number,
  ) {}

  make(now: number): string {
    const secret = randomBytes(BYTES).toString("base64url");
    this.entries = this.entries.filter((entry) => entry.end > now).slice(-(this.most - 1));
    this.entries.push({ digest: digest(secret), end: now + this.lifeMs });
    return secret;
  }

  private find(secret: string, now: number) {
    const wanted = digest(secret);
    // All are compared, so that the time does not tell which one it was.
    let found: { digest: Buffer; end: number } | undefined;
    for (const entry of this.entries) if (timingSafeEqual(entry.digest, wanted) && entry.end > now) found = entry;
    return found;
  }

  /** Whether the secret is one of these; its life begins anew. */
  renew(secret: string, now: number): boolean {
    const entry = this.find(secret, now);
    if (entry) entry.end = now + this.lifeMs;
    return entry !== undefined;
  }

  /** Whether the secret was one of these; it is none any more. */
  take(secret: string, now: number): boolean {
    const entry = this.find(secret, now);
    this.entries = this.entries.filter((other) => other !== entry);
    return entry !== undefined;
  }
}

export class Secrets {
  private readonly tokens = new Ring(MOST_TOKENS, TOKEN_MS);
  private readonly sessions = new Ring(MOST_SESSIONS, SESSION_MS);

  /** A token, valid once and for twelve hours. */
  invite(): string {
    return this.tokens.make(Date.now());
  }

  /** The secret of a new session for a token; null if the token is unknown, used or too old. */
  exchange(token: string): string | null {
    const now = Date.now();
    return this.tokens.take(token, now) ? this.sessions.make(now) : null;
  }

  isSession(secret: string): boolean {
    return this.sessions.renew(secret, Date.now());
  }

  end(secret: string): void {
    this.sessions.take(secret, Date.now());
  }
}
