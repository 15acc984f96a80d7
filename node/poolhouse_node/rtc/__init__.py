"""Links over WebRTC: signaling, two engines, data connections, stripes. Thin I/O."""
