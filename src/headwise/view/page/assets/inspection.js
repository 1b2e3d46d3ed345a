// @ts-check
// One translation seen from inside: its pieces and words, and the attention weights of every layer and head.

import { laterBy, usualLayer } from "./aligning.js";
import { kind } from "./pieces.js";
import { walkedThrough } from "./steps.js";
import { t } from "./texts.js";
import { grouped, unitsAlong } from "./words.js";

/** @typedef {{rows: number, columns: number, values: Float32Array}} Weights row = query, column = key */
/** @typedef {{text: string, start: number, stop: number}} Span */

export const PARTS = ["encoder", "decoder", "cross"];
/** @type {Record<string, string>} */
export const ATTENTIONS = { encoder: t("attention-encoder"), decoder: t("attention-decoder"), cross: t("attention-cross") };
export const ROWS = ["predicts", "reads"]; // the two decoder steps that concern a piece of the translation
export const UNITS = ["words", "tokens"];
const SQUARES = Float32Array.from({ length: 256 }, (_, byte) => (byte / 255) ** 2); // what a byte stands for

export class Inspection {
  /**
   * @param {any} data as Python's `page_contents` made it
   * @param {Record<string, ({heads: number, rows: number, columns: number, bytes: Uint8Array} | null)[]>} layers
   */
  constructor(data, layers) {
    this.data = data;
    this.attention = layers;
    /** @type {import("./figure.js").Figure} */
    this.figure = data.walk?.figure ?? {}; // in the explorer it is known of the model
    /** @type {Map<string, Weights>} */
    this.known = new Map();
  }

  /**
   * @param {any} data
   * @returns {Promise<Inspection>}
   */
  static async read(data) {
    /** @type {any} */
    const layers = {};
    for (const part of PARTS) layers[part] = await Promise.all(data.attention[part].map(unpacked));
    return new Inspection(data, layers);
  }

  /** The parts of the model that have attention. */
  parts() {
    return PARTS.filter((part) => this.attention[part].some(Boolean));
  }

  /** @param {string} part @returns {number[]} the layers that were recorded */
  layers(part) {
    return this.attention[part].flatMap((layer, number) => (layer ? [number] : []));
  }

  /** @param {string} part @param {number | null} layer @returns {number} heads of the layer, or of the largest */
  heads(part, layer) {
    const chosen = this.attention[part].filter((_, number) => layer === null || number === layer);
    return Math.max(0, ...chosen.map((found) => found?.heads ?? 0));
  }

  /**
   * Weights of one head of one layer, or means; a layer or head that is not there counts as the mean of all.
   * @param {string} part
   * @param {number | null} layer
   * @param {number | null} head
   * @param {string} [unit] "tokens" or "words"
   * @returns {Weights | null}
   */
  weights(part, layer, head, unit = "tokens") {
    const key = `${part} ${layer} ${head} ${unit}`;
    const found = this.known.get(key) ?? (unit === "words" ? this.betweenWords(part, layer, head) : this.mean(part, layer, head));
    if (found) this.known.set(key, found);
    return found;
  }

  /** @param {string} part @param {number | null} layer @param {number | null} head @returns {Weights | null} */
  mean(part, layer, head) {
    const recorded = this.layers(part);
    const numbers = layer !== null && recorded.includes(layer) ? [layer] : recorded;
    if (numbers.length === 0) return null;
    const first = /** @type {any} */ (this.attention[part][numbers[0]]);
    const sum = new Float32Array(first.rows * first.columns);
    let count = 0;
    for (const number of numbers) {
      const { heads, bytes } = /** @type {any} */ (this.attention[part][number]);
      for (let h = 0; h < heads; h++) {
        if (head !== null && head < heads && h !== head) continue;
        const from = h * sum.length;
        for (let i = 0; i < sum.length; i++) sum[i] += SQUARES[bytes[from + i]];
        count++;
      }
    }
    return { rows: first.rows, columns: first.columns, values: sum.map((value) => value / count) };
  }

  /** @param {string} part @param {number | null} layer @param {number | null} head @returns {Weights | null} */
  betweenWords(part, layer, head) {
    const weights = this.weights(part, layer, head);
    return weights && grouped(weights, unitsAlong(this, part, "q", "words"), unitsAlong(this, part, "k", "words"));
  }

  /**
   * A layer and a head that are there, for what goes through one of each: the first instead of others, or of a mean.
   * @param {string} part
   * @param {{layer: number | null, head: number | null}} chosen
   */
  one(part, chosen) {
    const layer = this.layers(part).find((number) => number === chosen.layer) ?? 0;
    const head = chosen.head !== null && chosen.head < this.heads(part, layer) ? chosen.head : 0;
    return { layer, head };
  }

  /** The layers and the number of heads that walks through a stack can follow. @param {string} stack */
  walked(stack) {
    if (this.data.walk) return walkedThrough(this.data.walk, stack);
    const heads = this.figure[stack]?.heads ?? [];
    return { layers: heads.map((_, layer) => layer), heads: Math.max(0, ...heads) };
  }

  /** @param {string} part @returns {string[]} the pieces that look: those the row writes, in the decoder */
  queries(part) {
    return part === "encoder" ? this.data.src.pieces : this.data.tgt.pieces;
  }

  /** @param {string} part @returns {string[]} the tokens of the keys */
  keys(part) {
    return part === "decoder" ? this.data.read : this.data.src.pieces;
  }

  /** What keys and queries are called. @param {string} part */
  titles(part) {
    const { reads, writes } = this.data.about;
    const source = { patches: t("title-picture"), times: t("title-sound"), pieces: t(writes ? "title-source" : "title-text") }[/** @type {string} */ (reads)] ?? "";
    const written = { times: t("title-transcript"), patches: t("title-caption") }[/** @type {string} */ (reads)] ?? t("title-translation");
    if (part === "decoder") return { keys: t(reads ? "title-read" : "title-text-so-far"), queries: t(reads ? "title-writes" : "title-next") };
    return { keys: source, queries: part === "encoder" ? source : written };
  }

  /** @param {"src" | "tgt"} side @returns {Span[]} */
  words(side) {
    return this.data[side].words.map((/** @type {any[]} */ [text, start, stop]) => ({ text, start, stop }));
  }

  /**
   * The layer and head that the alignment shows: the chosen ones, or without a chosen layer the head that aligns best.
   * @param {{layer: number | null, head: number | null}} chosen
   */
  alignmentHead({ layer, head }) {
    const { aligns } = this.data;
    return layer === null && aligns.layer !== null ? { layer: aligns.layer, head: aligns.head } : { layer, head };
  }

  /**
   * The row that links are read from: what is known of a head, else the one in which it agrees better with the mean of
   * the usual layer, or of the last that was recorded (`alignment_row` in Python).
   * @param {Weights} weights of the cross-attention
   * @param {{layer: number | null, head: number | null}} chosen whose weights they are
   * @returns {string}
   */
  alignmentRow(weights, { layer, head }) {
    const { aligns } = this.data;
    if (aligns.row && aligns.layer === layer && aligns.head === head) return aligns.row;
    const [recorded, likely] = [this.layers("cross"), usualLayer(this.attention.cross.length)];
    const usual = this.weights("cross", recorded.includes(likely) ? likely : (recorded.at(-1) ?? null), null);
    const columns = this.words("src").flatMap(({ text, start, stop }) => (kind(text) === "mark" ? [] : Array.from({ length: stop - start }, (_, at) => start + at)));
    return ROWS[laterBy(weights, usual, columns)];
  }
}

/**
 * The places of a row or column with the greatest weights, greatest first.
 * @param {Weights} weights
 * @param {import("./state.js").Mark} mark a query asks for its keys, a key for its queries
 * @param {number} count
 * @returns {{index: number, weight: number}[]}
 */
export function greatest(weights, mark, count) {
  const length = mark.side === "q" ? weights.columns : weights.rows;
  return Array.from({ length }, (_, index) => ({ index, weight: weightAt(weights, mark, index) }))
    .sort((one, other) => other.weight - one.weight)
    .slice(0, count);
}

/** @param {Weights} weights @param {import("./state.js").Mark} mark @param {number} index on the other side */
export function weightAt(weights, mark, index) {
  const at = mark.side === "q" ? mark.index * weights.columns + index : index * weights.columns + mark.index;
  return weights.values[at] ?? 0;
}

/**
 * Mean entropy of the rows in nats, as `readings.entropy`: 0 for all weight on one token, ln(n) for equal weights on n.
 * @param {Weights} weights
 */
export function entropy(weights) {
  let sum = 0;
  for (const weight of weights.values) if (weight > 0) sum -= weight * Math.log(weight);
  return sum / weights.rows;
}

/** @param {any} layer @returns {Promise<any>} */
async function unpacked(layer) {
  if (!layer) return null;
  const packed = Uint8Array.from(atob(layer.data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const [heads, rows, columns] = layer.shape;
  return { heads, rows, columns, bytes: new Uint8Array(await new Response(stream).arrayBuffer()) };
}
