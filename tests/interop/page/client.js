"use strict";

// A peerjs client as an app has one, and nothing of rooms. A test drives it and reads its fields.

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 1000;

const BLOB = Uint8Array.from({ length: 100_000 }, (_, n) => (n * 7) % 251); // sent in chunks
const NESTED = { text: "é 日本 🏊", numbers: [0, -1, 1.5, 2 ** 40], flags: [true, false, null] };
const WITH_BYTES = [NESTED, { name: "blob", bytes: BLOB }, "", 0];
const SAMPLES = {
  binary: WITH_BYTES,
  "binary-utf8": WITH_BYTES,
  default: WITH_BYTES,
  json: [NESTED, ["x".repeat(10_000)], "", 0],
  raw: ["é 日本 🏊", BLOB.slice(0, 16_000)],
};

class Client {
  /**
   * @param server host, port and path of the signaling server
   * @param id null: the server makes one
   * @param returns whether it comes back by itself when it loses the server
   */
  constructor(server, id, returns) {
    this.returns = returns;
    this.openings = 0;
    this.losses = 0;
    this.errors = []; // type and message, in order
    this.links = {}; // by label, which is the serialization
    this.heard = {}; // by label: what came and was not taken yet
    this.closed = []; // labels of links that ended
    this.pauseMs = FIRST_PAUSE_MS;
    // No ICE servers: both ends are on this machine, and the default ones belong to others.
    this.peer = new Peer(id ?? undefined, { ...server, config: { iceServers: [] } });
    this.peer.on("open", () => {
      this.openings += 1;
      this.pauseMs = FIRST_PAUSE_MS;
    });
    this.peer.on("error", ({ type, message }) => this.errors.push({ type, message }));
    this.peer.on("disconnected", () => {
      this.losses += 1;
      if (this.returns) this.comeBackLater();
    });
    this.peer.on("connection", (connection) => this.keep(connection));
  }

  get isRefused() {
    return this.errors.some(({ type }) => type === "unavailable-id");
  }

  isUnavailable(peerId) {
    return this.errors.some(
      ({ type, message }) => type === "peer-unavailable" && message.endsWith(` ${peerId}`),
    );
  }

  comeBackLater() {
    setTimeout(() => {
      // Somebody else has the id now, or this client is gone for good.
      if (!this.isRefused && !this.peer.destroyed) this.peer.reconnect();
    }, this.pauseMs);
    this.pauseMs = Math.min(LONGEST_PAUSE_MS, this.pauseMs * 2);
  }

  /** From here on it returns by itself, now for the first time. */
  comeBack() {
    this.returns = true;
    this.peer.reconnect();
  }

  link(peerId, serialization) {
    const options = { label: serialization, serialization, reliable: true };
    this.keep(this.peer.connect(peerId, options));
  }

  keep(connection) {
    const { label } = connection;
    this.links[label] = connection;
    this.heard[label] = [];
    connection.on("data", (value) => this.heard[label].push(described(value)));
    connection.on("close", () => this.closed.push(label));
  }

  /** Send the samples of a link's serialization; what a test must find at the other end. */
  say(label) {
    const samples = SAMPLES[label];
    for (const sample of samples) this.links[label].send(sample);
    return samples.map(described);
  }

  /** How many candidates the offer of a link was followed by, once all are gathered. */
  candidates(label) {
    const { sdp } = this.links[label].peerConnection.localDescription;
    return sdp.match(/^a=candidate:/gm).length;
  }

  take(label) {
    return this.heard[label].splice(0);
  }
}

/** A value as JSON can carry it to the test: bytes become their length and a checksum. */
function described(value) {
  if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) return checked(value);
  if (Array.isArray(value)) return value.map(described);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, described(item)]));
}

function checked(buffer) {
  const bytes = new Uint8Array(buffer.buffer ?? buffer, buffer.byteOffset ?? 0, buffer.byteLength);
  const sum = bytes.reduce((sum, byte) => (sum * 31 + byte) % 1_000_003, 0);
  return `${bytes.length} bytes, checksum ${sum}`;
}
