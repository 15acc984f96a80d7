"use strict";

// A device in a browser: the real peerjs client, and around it the least that a room asks for.
// A test drives it and reads its public fields; it decides nothing by itself.

const DIAL = { reliable: true, serialization: "binary" }; // wire, section 1
const MESH = { t: "mesh", v: 1, none: 1 }; // the proof in a room without a mesh key
const BACK = 2; // from kind ai-hidden to ai-hiddenret (wire, section 5)

class Device {
  /** @param server host, port and path of the signaling server; @param id null: it makes one */
  constructor(server, id) {
    this.log = []; // what peerjs told, in order
    this.messages = []; // of main connections, without the bytes in them
    this.stripes = 0; // that proved themselves and are open
    this.wire = { slices: [], frames: [], longest: 0, keepalives: 0 }; // slices: per channel
    this.main = null;
    // No ICE servers: both ends are on this machine, and the default ones belong to others.
    this.peer = new Peer(id ?? undefined, { ...server, config: { iceServers: [] } });
    this.peer.on("open", (own) => this.log.push(`open ${own}`));
    this.peer.on("disconnected", () => this.log.push("disconnected"));
    this.peer.on("close", () => this.log.push("closed"));
    this.peer.on("error", (error) => this.log.push(`error ${error.type}: ${error.message}`));
    this.peer.on("connection", (connection) => this.take(connection));
  }

  /** The dialing side opens the stripes too, once the main connection is open. */
  dial(peerId, stripes) {
    const main = this.peer.connect(peerId, DIAL);
    this.take(main);
    main.on("open", () => {
      for (let n = 0; n < stripes; n += 1) {
        this.take(this.peer.connect(peerId, { ...DIAL, label: "stripe" }));
      }
    });
  }

  take(connection) {
    if (connection.label === "stripe") this.takeStripe(connection);
    else this.takeMain(connection);
  }

  takeMain(connection) {
    connection.on("open", () => {
      this.main = connection;
      this.openWire(connection); // before hello: after both hellos frames may come
      connection.send({ t: "hello", name: "browser", v: 4, meta: { ua: "Device" } });
    });
    connection.on("data", (message) => this.received(connection, message));
    connection.on("close", () => this.log.push("link closed"));
  }

  takeStripe(connection) {
    connection.on("open", () => connection.send(MESH));
    connection.on("data", (message) => {
      if (message.t !== "mesh") return;
      this.openWire(connection);
      this.stripes += 1;
    });
    connection.on("close", () => (this.stripes -= 1));
  }

  async received(connection, message) {
    const { data, ...rest } = message;
    this.messages.push(rest);
    if (message.t === "ping") connection.send({ t: "pong", ts: message.ts });
    if (message.t === "echo") connection.send({ t: "echoed", value: message.value });
    if (message.t === "blob") {
      connection.send({ t: "blob-back", data, sha256: await sha256(data) });
    }
  }

  /** Channels 77 and 78: negotiated, so that no announcement is sent (wire, section 4). */
  openWire(connection) {
    const { peerConnection } = connection;
    const wire = peerConnection.createDataChannel("swarm-wire", { negotiated: true, id: 77 });
    const options = { negotiated: true, id: 78, ordered: false, maxRetransmits: 0 };
    const keepalive = peerConnection.createDataChannel("swarm-ka", options);
    const number = this.wire.slices.push(0) - 1;
    wire.binaryType = keepalive.binaryType = "arraybuffer";
    wire.onmessage = ({ data }) => {
      this.wire.slices[number] += 1;
      wire.send(this.sliceBack(data));
    };
    keepalive.onmessage = ({ data }) => (this.wire.keepalives += data.byteLength);
  }

  /** Back on its own channel, so that frame ids still rise there, as they would from a sender. */
  sliceBack(slice) {
    const header = new DataView(slice);
    if (header.getUint16(0) !== 0x5357) throw new Error("not a slice");
    const frame = header.getUint32(4);
    if (!this.wire.frames.includes(frame)) this.wire.frames.push(frame);
    this.wire.longest = Math.max(this.wire.longest, slice.byteLength);
    header.setUint8(2, header.getUint8(2) + BACK);
    return slice;
  }
}

async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
