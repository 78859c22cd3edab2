// Which requests come from our own page: the checks of Host and Origin, and the session's cookie.
//
// DNS rebinding makes a foreign name point to this address: its Host header then names the foreign
// host. A foreign page that opens a web socket or posts to this address sends its own Origin.
import type { IncomingMessage } from "node:http";
import os from "node:os";

import type { Secrets } from "./secrets";

export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
    readonly field = "",
  ) {
    super(message);
  }
}

/** host:port in small letters, without the port that the scheme implies. */
function normal(host: string, tls: boolean): string {
  return host.toLowerCase().replace(tls ? /:443$/ : /:80$/, "");
}

const bracketed = (host: string) => (host.includes(":") ? `[${host}]` : host);

export class Guard {
  private readonly hosts: Set<string>;
  readonly cookie: string;

  /** @param names further names of this host that browsers may use */
  constructor(
    private readonly secrets: Secrets,
    host: string,
    port: number,
    private readonly tls: boolean,
    names: string[],
  ) {
    const own = ["localhost", "127.0.0.1", "::1", host, ...names];
    if (host === "0.0.0.0" || host === "::") {
      own.push(os.hostname());
      for (const list of Object.values(os.networkInterfaces())) for (const address of list ?? []) own.push(address.address);
    }
    this.hosts = new Set(own.map((name) => normal(`${bracketed(name)}:${port}`, tls)));
    // Cookies do not know ports: the name keeps two viewers of one host apart.
    this.cookie = `${tls ? "__Host-" : ""}octavo-${port}`;
  }

  /** Throws unless the request names this host. */
  checkHost(request: IncomingMessage): void {
    const host = request.headers.host;
    if (host === undefined || !this.hosts.has(normal(host, this.tls)))
      throw new Refusal(421, "HOST", `this server is not ${host ?? "a host without a name"}; it answers as ${[...this.hosts].join(", ")} (more with --host NAME)`);
  }

  /** Throws unless the request comes from a page of this server. `needed`: it must say where it comes from. */
  checkOrigin(request: IncomingMessage, needed: boolean): void {
    const site = request.headers["sec-fetch-site"];
    if (site !== undefined && site !== "same-origin" && site !== "none") throw new Refusal(403, "ORIGIN", `a page of another site asked (${site})`);
    const origin = request.headers.origin;
    if (origin === undefined) {
      if (needed) throw new Refusal(403, "ORIGIN", "the request has no Origin");
      return;
    }
    const scheme = this.tls ? "https://" : "http://";
    const host = normal(request.headers.host ?? "", this.tls);
    if (!origin.toLowerCase().startsWith(scheme) || normal(origin.slice(scheme.length), this.tls) !== host)
      throw new Refusal(403, "ORIGIN", `a page of ${origin} asked; only pages of ${scheme}${host} may`);
  }

  /** The secret of the session that the request carries; empty if it has none. */
  secretOf(request: IncomingMessage): string {
    for (const pair of (request.headers.cookie ?? "").split(";")) {
      const at = pair.indexOf("=");
      if (pair.slice(0, at).trim() === this.cookie) return pair.slice(at + 1).trim();
    }
    return "";
  }

  checkSession(request: IncomingMessage): void {
    const secret = this.secretOf(request);
    if (secret === "" || !this.secrets.isSession(secret))
      throw new Refusal(401, "NO_SESSION", "open the address that octavo web prints: it has the token that lets this browser in");
  }

  setCookie(secret: string): string {
    return `${this.cookie}=${secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age=${secret ? 30 * 24 * 3600 : 0}${this.tls ? "; Secure" : ""}`;
  }
}
