// A picture as a PNG file that says what it shows: the JSON is in its text chunk "Octavo", as UTF-8.

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});

function crc32(bytes: Uint8Array): number {
  let sum = 0xffffffff;
  for (const byte of bytes) sum = CRC[(sum ^ byte) & 255] ^ (sum >>> 8);
  return (sum ^ 0xffffffff) >>> 0;
}

/** An iTXt chunk: keyword, no compression, no language, text. */
function textChunk(keyword: string, text: string): Uint8Array<ArrayBuffer> {
  const body = new TextEncoder().encode(`iTXt${keyword}\0\0\0\0\0${text}`);
  const chunk = new Uint8Array(body.length + 8);
  const data = new DataView(chunk.buffer);
  data.setUint32(0, body.length - 4);
  chunk.set(body, 4);
  data.setUint32(4 + body.length, crc32(body));
  return chunk;
}

const HEAD_BYTES = 33; // signature and IHDR

/** Saves the canvas under a name, with what it shows. */
export async function saveSnapshot(canvas: HTMLCanvasElement, name: string, about: object): Promise<void> {
  const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, "image/png"));
  if (!blob) throw new Error("this browser cannot write the picture as PNG");
  const png = new Uint8Array(await blob.arrayBuffer());
  const file = new Blob([png.slice(0, HEAD_BYTES), textChunk("Octavo", JSON.stringify(about)), png.slice(HEAD_BYTES)], { type: "image/png" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
