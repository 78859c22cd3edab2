// The command line of octavo-web, as `octavo web` passes it on.
import fs from "node:fs";
import net from "node:net";
import tls from "node:tls";
import { parseArgs } from "node:util";

export interface Options {
  address: string; // of octavod
  token: string; // by which it logs in there; "" = none
  daemonTls: DaemonTls | null; // how it speaks to octavod; null = without TLS
  host: string; // to listen on
  port: number; // 0 = any that is free
  names: string[];
  tls: { cert: Buffer; key: Buffer } | null;
  readOnly: boolean;
  readyFd: number | null;
}

/** PEM texts for TLS to octavod. */
export interface DaemonTls {
  ca: Buffer;
  cert: Buffer | null; // by which it logs in there
  key: Buffer | null;
  serverName: string; // "" = the host of the address
}

export const HELP = `octavo-web: what Octavo sees and holds, in a browser

  --address HOST:PORT | unix:PATH   of octavod (default $OCTAVO_ADDRESS or 127.0.0.1:50051)
  --token-file FILE                 with the bearer token to log in to octavod with, for all browsers (default $OCTAVO_TOKEN_FILE)
  --ca-file FILE                    PEM, of the authority of octavod's certificate; with it TLS is spoken (default $OCTAVO_CA_FILE)
  --cert-file FILE --key-file FILE  PEM, the certificate to log in to octavod with (default $OCTAVO_CERT_FILE, $OCTAVO_KEY_FILE)
  --server-name NAME                in octavod's certificate, if not the host of the address (default $OCTAVO_SERVER_NAME)
  --listen HOST:PORT                where browsers reach this program (default 127.0.0.1:8050; port 0 = any)
  --tls-cert FILE --tls-key FILE    PEM files; needed for addresses beside loopback
  --insecure                        listen on other addresses without TLS: anybody on the way can read along
  --host NAME                       a further name of this host that browsers may use; may be repeated
  --read-only                       offer nothing that changes anything
  --ready-fd N                      write one line of JSON (url, port) to this descriptor when it listens
`;

export class UsageError extends Error {}

function bad(flag: string, value: string, allowed: string): never {
  throw new UsageError(`${flag}: is '${value}'; allowed ${allowed}`);
}

export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || (net.isIPv4(host) && host.startsWith("127."));
}

/** A host and a port, "[::1]:8050" included. */
function listenAddress(text: string): [string, number] {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s/]+)):(\d{1,5})$/.exec(text);
  if (!match || Number(match[3]) > 65535) bad("--listen", text, "HOST:PORT, for example 127.0.0.1:8050 or [::1]:8050");
  return [match[1] ?? match[2], Number(match[3])];
}

function readable(flag: string, file: string): Buffer {
  try {
    return fs.readFileSync(file);
  } catch (error) {
    bad(flag, file, `a PEM file that can be read (${(error as Error).message})`);
  }
}

/**
 * A secret that others of this host can read is none: as ssh, this refuses a file of the user's own. One of somebody else (a credential of
 * systemd, a secret of a container) has the mode that they gave it.
 */
function checkPrivate(flag: string, file: string): void {
  const info = fs.statSync(file);
  if (!info.isFile() || info.uid !== process.geteuid?.() || (info.mode & 0o077) === 0) return;
  const mode = (info.mode & 0o7777).toString(8).padStart(4, "0");
  throw new UsageError(`${flag}: is '${file}', which has mode ${mode}, so that others may read or change it; allowed is 0600 (chmod 600 ${file})`);
}

/** The token in a file; the message of an error shows nothing of what it holds. */
function tokenIn(flag: string, file: string): string {
  const allowed = "a file with one token, as octavo token add makes it";
  // It begins as a token does: it must not be shown.
  if (/^octavo_[0-9a-f]{8}_[0-9a-f]{16}/.test(file)) bad(flag, "a token", `the name of ${allowed}`);
  let text;
  try {
    text = fs.readFileSync(file, "latin1").trim();
  } catch (error) {
    bad(flag, file, `${allowed} (${(error as Error).message})`);
  }
  if (!/^octavo_[0-9a-f]{8}_[0-9a-f]{64}$/.test(text)) bad(flag, file, allowed);
  checkPrivate(flag, file);
  return text;
}

/** A token that anybody on the way could read is not sent, unless the environment says that the network is trusted. */
function checkNotInClear(flag: string, address: string): void {
  const host = address.replace(/:\d+$/, "").replace(/^(dns:\/\/\/|dns:|ipv4:|ipv6:)/, "").replace(/^\[(.*)\]$/, "$1");
  if (address.startsWith("unix:") || isLoopback(host) || process.env.OCTAVO_TOKEN_IN_CLEAR === "1") return;
  throw new UsageError(
    `${flag}: the token would be sent to ${address} in clear: without TLS anybody on the way can read and use it. ` +
      "Give the file of octavod's authority (--ca-file, OCTAVO_CA_FILE), or set OCTAVO_TOKEN_IN_CLEAR=1 if the network is trusted",
  );
}

/** The files for TLS to octavod; `given`: flags by name. */
function daemonTlsOf(address: string, given: { [flag in "ca-file" | "cert-file" | "key-file" | "server-name"]?: string }): DaemonTls | null {
  const find = (flag: keyof typeof given, variable: string) => (given[flag] ? { by: `--${flag}`, file: given[flag]! } : { by: process.env[variable] ? variable : `--${flag}`, file: process.env[variable] ?? "" });
  const ca = find("ca-file", "OCTAVO_CA_FILE");
  const cert = find("cert-file", "OCTAVO_CERT_FILE");
  const key = find("key-file", "OCTAVO_KEY_FILE");
  if (!cert.file !== !key.file) {
    const [there, missing] = cert.file ? [cert, key] : [key, cert];
    throw new UsageError(`${missing.by}: is not given, and ${there.by} is; a certificate and its key belong together`);
  }
  if (cert.file && !ca.file) throw new UsageError(`${ca.by}: is not given, and ${cert.by} is; the file of octavod's authority is needed to trust it`);
  if (!ca.file) return null;
  const result: DaemonTls = {
    ca: readable(ca.by, ca.file),
    cert: cert.file ? readable(cert.by, cert.file) : null,
    key: key.file ? readable(key.by, key.file) : null,
    serverName: given["server-name"] ?? process.env.OCTAVO_SERVER_NAME ?? "",
  };
  const certificates = "a PEM file with certificates (-----BEGIN CERTIFICATE-----)";
  if (!result.ca.includes("-----BEGIN CERTIFICATE-----")) bad(ca.by, ca.file, certificates);
  if (result.cert && !result.cert.includes("-----BEGIN CERTIFICATE-----")) bad(cert.by, cert.file, certificates);
  try {
    tls.createSecureContext({ ca: result.ca });
  } catch (error) {
    bad(ca.by, ca.file, `${certificates} (${(error as Error).message})`);
  }
  if (result.cert && result.key) {
    try {
      tls.createSecureContext({ cert: result.cert, key: result.key });
    } catch (error) {
      const fits = (error as { code?: string }).code !== "ERR_OSSL_X509_KEY_VALUES_MISMATCH";
      bad(key.by, key.file, fits ? `a PEM file with a private key without a passphrase (${(error as Error).message})` : `the key of the certificate in ${cert.file}`);
    }
    checkPrivate(key.by, key.file);
  }
  return address.startsWith("unix:") ? null : result;
}

export function parseOptions(args: string[]): Options | "help" {
  let values;
  try {
    values = parseArgs({
      args,
      options: {
        address: { type: "string" },
        "token-file": { type: "string" },
        "ca-file": { type: "string" },
        "cert-file": { type: "string" },
        "key-file": { type: "string" },
        "server-name": { type: "string" },
        listen: { type: "string", default: "127.0.0.1:8050" },
        "tls-cert": { type: "string" },
        "tls-key": { type: "string" },
        insecure: { type: "boolean", default: false },
        host: { type: "string", multiple: true, default: [] },
        "read-only": { type: "boolean", default: false },
        "ready-fd": { type: "string" },
        help: { type: "boolean", default: false },
      },
    }).values;
  } catch (error) {
    throw new UsageError(`${(error as Error).message}\n\n${HELP}`);
  }
  if (values.help) return "help";
  const address = values.address || process.env.OCTAVO_ADDRESS || "127.0.0.1:50051";
  if (!address.includes(":") || /^https?:/.test(address)) bad("--address", address, "host:port (octavod listens on 50051) and unix:/path");
  const [host, port] = listenAddress(values.listen!);
  const certificate = values["tls-cert"];
  const key = values["tls-key"];
  if ((certificate === undefined) !== (key === undefined)) throw new UsageError(`${key === undefined ? "--tls-key" : "--tls-cert"}: is not given; --tls-cert and --tls-key belong together`);
  if (!isLoopback(host) && certificate === undefined && !values.insecure)
    throw new UsageError(
      `--listen: is '${values.listen}', which other computers can reach, and without TLS anybody on the way can read along and take the session. ` +
        "Give --tls-cert and --tls-key, or --insecure if the network is yours alone",
    );
  for (const name of values.host!) if (!/^[0-9A-Za-z._:-]{1,253}$/.test(name)) bad("--host", name, "the name or address of a host, without a port");
  if (key !== undefined && fs.existsSync(key)) checkPrivate("--tls-key", key);
  const ready = values["ready-fd"];
  if (ready !== undefined && !/^\d{1,4}$/.test(ready)) bad("--ready-fd", ready, "the number of an open descriptor");
  const tokenFile = values["token-file"] ? "--token-file" : "OCTAVO_TOKEN_FILE";
  const token = values["token-file"] || process.env.OCTAVO_TOKEN_FILE;
  const secret = token ? tokenIn(tokenFile, token) : "";
  const daemonTls = daemonTlsOf(address, values);
  if (secret && !daemonTls) checkNotInClear(tokenFile, address);
  return {
    address,
    token: secret,
    daemonTls,
    host,
    port,
    names: values.host!,
    tls: certificate === undefined ? null : { cert: readable("--tls-cert", certificate), key: readable("--tls-key", key!) },
    readOnly: values["read-only"]!,
    readyFd: ready === undefined ? null : Number(ready),
  };
}
