// SHA-256 piece by piece, for files that do not fit into memory (WebCrypto takes whole messages only).

const K = new Int32Array(64), START = new Int32Array(8);
(() => { // the first bits of the cube and square roots of primes (FIPS 180-4)
  const part = x => Math.floor((x - Math.floor(x)) * 0x100000000) | 0;
  for (let n = 2, found = 0; found < 64; n++) {
    let prime = true;
    for (let d = 2; d * d <= n; d++) if (n % d === 0) { prime = false; break; }
    if (!prime) continue;
    if (found < 8) START[found] = part(Math.sqrt(n));
    K[found++] = part(Math.cbrt(n));
  }
})();

export class Sha256 {
  constructor() { this.state = START.slice(); this.rest = new Uint8Array(64); this.held = 0; this.length = 0; this.words = new Int32Array(64); }

  update(bytes) {
    this.length += bytes.length;
    let at = 0;
    if (this.held) {
      at = Math.min(64 - this.held, bytes.length);
      this.rest.set(bytes.subarray(0, at), this.held);
      this.held += at;
      if (this.held < 64) return this;
      this.block(this.rest, 0);
      this.held = 0;
    }
    for (; at + 64 <= bytes.length; at += 64) this.block(bytes, at);
    this.rest.set(bytes.subarray(at), 0);
    this.held = bytes.length - at;
    return this;
  }

  block(bytes, at) {
    const w = this.words, s = this.state;
    for (let i = 0; i < 16; i++, at += 4) w[i] = bytes[at] << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 | bytes[at + 3];
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15], y = w[i - 2];
      w[i] = w[i - 16] + ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3) + w[i - 7] + ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10) | 0;
    }
    let a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
    for (let i = 0; i < 64; i++) {
      const t = h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (e & f ^ ~e & g) + K[i] + w[i] | 0;
      const u = ((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c) | 0;
      h = g; g = f; f = e; e = d + t | 0; d = c; c = b; b = a; a = t + u | 0;
    }
    s[0] += a; s[1] += b; s[2] += c; s[3] += d; s[4] += e; s[5] += f; s[6] += g; s[7] += h;
  }

  hex() {
    const tail = new Uint8Array(this.held < 56 ? 64 : 128), view = new DataView(tail.buffer);
    tail.set(this.rest.subarray(0, this.held));
    tail[this.held] = 0x80;
    view.setUint32(tail.length - 8, Math.floor(this.length / 0x20000000));
    view.setUint32(tail.length - 4, this.length << 3);
    for (let at = 0; at < tail.length; at += 64) this.block(tail, at);
    return Array.from(this.state, word => (word >>> 0).toString(16).padStart(8, "0")).join("");
  }
}

export const sha256 = bytes => new Sha256().update(bytes).hex();

// the digest of a file while it streams; `progress` gets the share that is read
export async function digestOf(file, progress = () => {}) {
  const digest = new Sha256(), reader = file.stream().getReader();
  for (let done = 0; ;) {
    const piece = await reader.read();
    if (piece.done) return digest.hex();
    digest.update(piece.value);
    done += piece.value.length;
    progress(done / file.size);
  }
}
