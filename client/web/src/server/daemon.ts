// The connection to octavod: calls, streams, and errors with their reasons.
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

import * as grpc from "@grpc/grpc-js";
import * as loader from "@grpc/proto-loader";

import { refusalText } from "../wire/quotas";
import { Contract } from "./contract";
import type { DaemonTls } from "./options";

/** A message of the daemon: fields as the protos name them, 64-bit integers as text, enums as names. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Message = any;

/** A call that failed: gRPC's code, and reason, field and numbers of google.rpc.ErrorInfo. */
export class DaemonError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly reason = "",
    readonly field = "",
    readonly numbers: Record<string, string> = {},
  ) {
    super(message);
  }
  /** Whether the daemon does not answer, or answered that it ends. */
  get away(): boolean {
    return this.code === grpc.status.UNAVAILABLE;
  }
}

const SERVICES = ["ScanService", "VolumeService", "StreamService", "SystemService", "OperationService", "JobService", "SessionService"] as const;
export type Service = (typeof SERVICES)[number];
const FILES = ["scan", "volume", "stream", "system", "operation", "job", "session"].map((name) => `octavo/v1/${name}.proto`);
const OPTIONS: loader.Options = { keepCase: true, longs: String, enums: String, defaults: true, oneofs: true };

/** The folder of the protos: beside the installed program, or in the repository. */
export function findProtos(): string {
  const here = path.dirname(fileURLToPath(import.meta.url));
  const tried = [path.join(here, "..", "proto"), path.join(here, "..", "..", "..", "proto")];
  const found = tried.find((folder) => fs.existsSync(path.join(folder, FILES[0])));
  if (!found) throw new Error(`the contract (${FILES[0]}) is neither in ${tried.join(" nor in ")}: install octavo again`);
  return found;
}

type Method = (request: Message, ...rest: unknown[]) => grpc.ClientReadableStream<Message>;

export class Daemon {
  readonly contract: Contract;
  /** Number of calls and streams that were begun, by method. */
  readonly calls: Record<string, number> = {};
  private readonly clients = new Map<Service, grpc.Client>();
  private readonly status: loader.MessageTypeDefinition<Message, Message>;
  private readonly info: loader.MessageTypeDefinition<Message, Message>;

  /** `token`: a bearer token that every call carries; empty = none. `tls`: null = without. */
  constructor(
    readonly address: string,
    protos: string,
    token = "",
    private readonly tls: DaemonTls | null = null,
  ) {
    const files = [...FILES, "google/rpc/status.proto", "google/rpc/error_details.proto"];
    this.contract = new Contract(FILES, protos);
    const definition = loader.loadSync(files, { ...OPTIONS, includeDirs: [protos] });
    this.status = definition["google.rpc.Status"] as never;
    this.info = definition["google.rpc.ErrorInfo"] as never;
    const v1 = (grpc.loadPackageDefinition(definition).octavo as grpc.GrpcObject).v1 as grpc.GrpcObject;
    const options: grpc.ChannelOptions = {
      "grpc.max_receive_message_length": 64 << 20,
      "grpc-node.flow_control_window": 16 << 20,
      "grpc.initial_reconnect_backoff_ms": 200,
      "grpc.min_reconnect_backoff_ms": 200,
      "grpc.max_reconnect_backoff_ms": 2000,
      "grpc.keepalive_time_ms": 20000,
      "grpc.keepalive_timeout_ms": 10000,
      "grpc.enable_retries": 0,
      "grpc.enable_http_proxy": 0, // a proxy of the environment would read everything, the token included
      "grpc.primary_user_agent": "octavo-web",
    };
    // An interceptor: call credentials need TLS.
    const bearer: grpc.Interceptor = (call, next) =>
      new grpc.InterceptingCall(next(call), {
        start(metadata, listener, start) {
          metadata.set("authorization", `Bearer ${token}`);
          start(metadata, listener);
        },
      });
    const all: grpc.ClientOptions = token ? { ...options, interceptors: [bearer] } : { ...options };
    if (tls?.serverName) all["grpc.ssl_target_name_override"] = tls.serverName;
    const credentials = tls ? grpc.credentials.createSsl(tls.ca, tls.key, tls.cert) : grpc.credentials.createInsecure();
    for (const service of SERVICES) this.clients.set(service, new (v1[service] as grpc.ServiceClientConstructor)(address, credentials, all));
  }

  private method(service: Service, name: string): { client: grpc.Client; call: Method } {
    const key = `${service}/${name}`;
    this.calls[key] = (this.calls[key] ?? 0) + 1;
    const client = this.clients.get(service)!;
    const call = (client as unknown as Record<string, Method>)[name];
    if (typeof call !== "function") throw new Error(`the contract has no ${service}.${name}`);
    return { client, call };
  }

  /** A unary call with a deadline. */
  call(service: Service, name: string, request: Message, seconds = 30): Promise<Message> {
    const { client, call } = this.method(service, name);
    return new Promise((resolve, reject) => {
      const deadline = new Date(Date.now() + 1000 * seconds);
      call.call(client, request, new grpc.Metadata(), { deadline }, (error: grpc.ServiceError | null, answer: Message) =>
        error ? reject(this.explained(error)) : resolve(answer),
      );
    });
  }

  /** A call whose answer is a stream; end it with `cancel()`. */
  stream(service: Service, name: string, request: Message): grpc.ClientReadableStream<Message> {
    const { client, call } = this.method(service, name);
    return call.call(client, request);
  }

  /** A gRPC error with the details that the daemon sent. */
  explained(error: grpc.ServiceError): DaemonError {
    for (const bytes of error.metadata?.get("grpc-status-details-bin") ?? []) {
      const found = this.infoOf(this.status.deserialize(bytes as Buffer).details);
      if (found) return this.errorOf(error.code, error.details, found);
    }
    // What the library says of its own resolver and attempts helps nobody.
    const last = (error.details || error.message).replace(/^No connection established\. Last error: (?:Error: )?(.*?)\.? Resolution note:.*$/s, "$1");
    const text = last === "null" ? "it has closed the connection" : last; // there was no attempt since
    const advice = error.code === grpc.status.UNAVAILABLE ? this.adviceOnTls(text) : "";
    return new DaemonError(error.code ?? grpc.status.UNKNOWN, advice ? `${text}; ${advice}` : text);
  }

  /** What may be wrong where octavod does not answer, by the library's text for it; "" if nothing is known. */
  private adviceOnTls(text: string): string {
    if (this.address.startsWith("unix:")) return "";
    const closed = /ECONNRESET|EPIPE|socket hang up|Socket closed|Connection dropped|disconnected|stream was refused|Protocol error|alert/i.test(text);
    if (!this.tls) return closed ? "if octavod speaks TLS, give the file of its authority (--ca-file, OCTAVO_CA_FILE)" : "";
    if (/wrong version number|WRONG_VERSION|packet length too long/i.test(text)) return "octavod does not speak TLS there: leave out --ca-file";
    if (/self[- ]signed|unable to (get|verify)|certificate has expired|not yet valid/i.test(text))
      return "octavod's certificate was not issued by an authority in the file of --ca-file, or is not valid now";
    if (/altnames|Hostname\/IP/i.test(text)) return "octavod's certificate is for other names than the host of the address; --server-name names one that it has";
    if (!closed) return "";
    return this.tls.cert
      ? "octavod may not take the certificate of --cert-file: of another authority, or not valid now; its log says why"
      : "octavod may require a certificate (--cert-file and --key-file)";
  }

  /** Message and reason of a google.rpc.Status, for example of Operation.error; null if there is none. */
  statusError(status: Message): DaemonError | null {
    if (!status) return null;
    const found = this.infoOf(status.details ?? []);
    return found ? this.errorOf(status.code, status.message, found) : new DaemonError(status.code, status.message);
  }

  private errorOf(code: number, message: string, { reason, metadata }: Message): DaemonError {
    // The daemon's own text names keys of its configuration.
    const text = reason === "QUOTA" ? refusalText(metadata) : "";
    return new DaemonError(code, text || message, reason, metadata.field, metadata);
  }

  private infoOf(details: Message[]): Message {
    const any = details.find((detail) => String(detail.type_url).endsWith("/google.rpc.ErrorInfo"));
    return any ? this.info.deserialize(any.value) : null;
  }

  close(): void {
    for (const client of this.clients.values()) client.close();
  }
}
