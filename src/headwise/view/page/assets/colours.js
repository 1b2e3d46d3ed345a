// @ts-check
// Colours of the theme, for what is drawn on a canvas. Scales run in one direction of lightness, so they do not need
// to be told apart by hue.

/** @typedef {[number, number, number]} Colour */

/** @type {Map<string, Colour>} */
const known = new Map();

/** To be called when the theme has changed. */
export function forgetColours() {
  known.clear();
}

/**
 * A colour of the style sheet, such as "--accent", as the theme has it now.
 * @param {string} name
 * @returns {Colour}
 */
export function colour(name) {
  const found = known.get(name) ?? resolved(name);
  known.set(name, found);
  return found;
}

/** @param {string} name @returns {Colour} */
function resolved(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const [red, green, blue] = (getComputedStyle(probe).color.match(/[\d.]+/g) ?? ["0", "0", "0"]).map(Number);
  probe.remove();
  return [red, green, blue];
}

/** @param {Colour} colour @param {number} alpha */
export function css([red, green, blue], alpha = 1) {
  return `rgb(${red} ${green} ${blue} / ${alpha})`;
}

/**
 * 256 colours from nothing to all, as four bytes each; from the least to the greatest for a diverging scale.
 * @param {string[]} names of the stops in the style sheet
 * @returns {Uint8ClampedArray}
 */
export function scale(names) {
  const stops = names.map(colour);
  const table = new Uint8ClampedArray(256 * 4);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1);
    const before = Math.min(Math.floor(at), stops.length - 2);
    const mixed = stops[before].map((from, c) => from + (stops[before + 1][c] - from) * (at - before));
    table.set([...mixed, 255], i * 4);
  }
  return table;
}

export const WEIGHTS = ["--scale-0", "--scale-1", "--scale-2", "--scale-3"];
export const SIGNED = ["--least", "--zero", "--greatest"];

/**
 * A picture of numbers, a pixel each; transparent where a number has no place on the scale.
 * @param {{rows: number, columns: number, values: ArrayLike<number>}} numbers
 * @param {(value: number) => number} place of a value on the scale, 0 to 1; NaN for a number that is masked
 * @param {Uint8ClampedArray} table as `scale` gives it
 * @returns {HTMLCanvasElement}
 */
export function pixels({ rows, columns, values }, place, table) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  const image = new ImageData(columns, rows);
  const from = new Uint32Array(table.buffer);
  const to = new Uint32Array(image.data.buffer);
  for (let i = 0; i < to.length; i++) {
    const at = place(values[i]);
    to[i] = Number.isNaN(at) ? 0 : from[Math.round(255 * Math.min(1, Math.max(0, at)))];
  }
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

/** What is drawn behind cells without a number: stripes, which no scale of colours has. @returns {CanvasPattern | string} */
export function hatching() {
  const tile = document.createElement("canvas");
  [tile.width, tile.height] = [6, 6];
  const context = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  context.strokeStyle = css(colour("--grey"));
  context.lineWidth = 1.2;
  context.beginPath();
  for (const from of [-6, 0, 6]) {
    context.moveTo(from - 1, 7);
    context.lineTo(from + 7, -1);
  }
  context.stroke();
  return context.createPattern(tile, "repeat") ?? "transparent";
}

/**
 * Give a canvas a size in CSS pixels, sharp on this screen, and clear it.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @returns {CanvasRenderingContext2D}
 */
export function fitted(canvas, width, height) {
  const sharpness = Math.min(window.devicePixelRatio || 1, 2);
  const [w, h] = [Math.round(width * sharpness), Math.round(height * sharpness)];
  if (canvas.width !== w || canvas.height !== h) {
    [canvas.width, canvas.height] = [w, h];
    [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(sharpness, 0, 0, sharpness, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
