// Colours from dark to bright, 256 each: the very tables of the daemon's pictures (server/picture/colour_map.cc).
export const COLOUR_MAPS = ["gray", "gray inverted", "viridis", "magma", "inferno", "plasma", "hot"] as const;
export type ColourMap = (typeof COLOUR_MAPS)[number];
type Rgb = [number, number, number];

// Every fifth colour, 0 to 255, RRGGBB, of the maps by Stefan van der Walt and Nathaniel Smith
// (matplotlib, CC0).
const ANCHORS: Partial<Record<ColourMap, string>> = {
  viridis:
    "440154 46085c 471063 481769 481d6f 482475 472a7a 46307e 453781 433d84 414287 3f4889 3d4e8a 3a538b 38598c 355e8d 33638d 31688e 2e6d8e 2c718e " +
    "2a768e 297b8e 27808e 25848e 23898e 218e8d 20928c 1f978b 1e9c89 1fa188 21a585 24aa83 28ae80 2eb37c 35b779 3dbc74 46c06f 50c46a 5ac864 65cb5e " +
    "70cf57 7cd250 89d548 95d840 a2da37 b0dd2f bddf26 cae11f d8e219 e5e419 f1e51d fde725",
  magma:
    "000004 02020b 050416 090720 0e0b2b 140e36 1a1042 21114e 29115a 311165 390f6e 420f75 4a1079 52137c 5a167e 621980 6a1c81 721f81 792282 812581 " +
    "892881 912b81 992d80 a1307e aa337d b2357b ba3878 c23b75 ca3e72 d2426f d9466b e04c67 e75263 ec5860 f1605d f4695c f7725c f97b5d fb8560 fc8e64 " +
    "fd9869 fea16e feaa74 feb47b febd82 fec68a fecf92 fed89a fde2a3 fdebac fcf4b6 fcfdbf",
  inferno:
    "000004 02020c 050417 0a0722 10092d 160b39 1e0c45 260c51 2f0a5b 380962 400a67 490b6a 510e6c 59106e 61136e 69166e 71196e 781c6d 801f6c 88226a " +
    "902568 982766 a02a63 a82e5f b0315b b73557 bf3952 c63d4d cc4248 d34743 d94d3d df5337 e45a31 e9612b ed6925 f1711f f47918 f78212 f98b0b fa9407 " +
    "fb9d07 fca60c fcb014 fbba1f fac42a f8cd37 f6d746 f4e156 f2ea69 f2f27d f5f992 fcffa4",
  plasma:
    "0d0887 1b068d 260591 2f0596 38049a 41049d 4903a0 5102a3 5901a5 6100a7 6900a8 7100a8 7801a8 8004a8 8707a6 8e0ca4 9511a1 9c179e a21d9a a82296 " +
    "ae2892 b42e8d ba3388 bf3984 c43e7f c9447a cd4a76 d24f71 d6556d da5b69 de6164 e26660 e66c5c e97257 ed7953 f07f4f f3854b f58c46 f79342 f99a3e " +
    "fba139 fca835 fdaf31 feb72d febe2a fdc627 fcce25 fbd724 f8df25 f6e826 f3f027 f0f921",
};

function between(anchors: string): Rgb[] {
  const colours = anchors.split(" ").map((word) => parseInt(word, 16));
  return Array.from({ length: 256 }, (_, i) => {
    const left = Math.min(Math.floor(i / 5), 50);
    const part = i - 5 * left;
    return [16, 8, 0].map((shift) => Math.floor((((colours[left] >> shift) & 255) * (5 - part) + ((colours[left + 1] >> shift) & 255) * part + 2) / 5)) as Rgb;
  });
}

/** Each channel rises in turn, with the breakpoints of matplotlib's table of that name. */
function hot(): Rgb[] {
  const rise = (x: number, from: number, to: number, start: number) =>
    Math.round(255 * (x <= from ? start : x >= to ? 1 : start + ((1 - start) * (x - from)) / (to - from)));
  return Array.from({ length: 256 }, (_, i) => [rise(i / 255, 0, 0.365079, 0.0416), rise(i / 255, 0.365079, 0.746032, 0), rise(i / 255, 0.746032, 1, 0)]);
}

function colours(map: ColourMap): Rgb[] {
  const anchors = ANCHORS[map];
  if (anchors) return between(anchors);
  if (map === "hot") return hot();
  return Array.from({ length: 256 }, (_, i) => (map === "gray inverted" ? [255 - i, 255 - i, 255 - i] : [i, i, i]));
}

const made = new Map<ColourMap, Uint32Array>();

/** 256 pixels as ImageData has them on little-endian machines: 0xAABBGGRR. */
export function table(map: ColourMap): Uint32Array {
  let pixels = made.get(map);
  if (!pixels) {
    pixels = Uint32Array.from(colours(map), ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0);
    made.set(map, pixels);
  }
  return pixels;
}
