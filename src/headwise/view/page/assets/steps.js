// @ts-check
// The walks that Python sends, with their numbers: see `walks.py`.

import { t } from "./texts.js";

/** @typedef {{rows: number, columns: number, values: Float32Array}} StepNumbers */
/**
 * @typedef {object} Step
 * @property {string} id
 * @property {string} place
 * @property {string} name
 * @property {string} sentence
 * @property {string} formula
 * @property {string} operation
 * @property {Record<string, any>} settings
 * @property {string[]} operands
 * @property {string[]} rows
 * @property {string[]} columns
 * @property {number | null} layer
 * @property {number | null} head
 * @property {StepNumbers} numbers
 * @property {StepNumbers | null} weight
 * @property {StepNumbers | null} bias
 * @property {{candidates: [string, number][], totals: number[]}[] | null} predictions of probabilities, one a row: the most probable tokens with their log-probabilities, and totals at other temperatures
 */

export class Walks {
  /** @param {any} data @param {Float32Array} numbers */
  constructor(data, numbers) {
    this.data = data;
    this.numbers = numbers;
  }

  /** @param {any} data @returns {Promise<Walks>} */
  static async read(data) {
    return new Walks(data, data.numbers instanceof Float32Array ? data.numbers : await unpackedNumbers(data.numbers));
  }

  /** Whether numbers are rounded to about three digits. */
  get rounded() {
    return this.data.numbers.type === "float16";
  }

  /** What is to be known of the numbers. @returns {string[]} */
  get notes() {
    const { bits } = this.data;
    return [lacking(this.data), bits ? t("rounded-weights", { bits }) : "", this.rounded ? t("walk-rounded") : ""].filter(Boolean);
  }

  /** The steps of the walk through a layer and head, or of the first one of the stack. @param {string} stack @param {number} layer @param {number} head */
  steps(stack, layer, head) {
    const own = this.data.walks.filter((/** @type {any} */ walk) => walk.stack === stack);
    const walk = own.find((/** @type {any} */ one) => one.layer === layer && one.head === head) ?? own[0];
    return walk ? { layer: walk.layer, head: walk.head, steps: walk.steps.map((/** @type {number} */ at) => this.step(this.data.steps[at])) } : null;
  }

  /** @param {any} step @returns {Step} */
  step({ kind, layer, head, values, weight, bias, predictions }) {
    const about = this.data.kinds[kind];
    const names = (/** @type {string} */ axis) => this.data.axes[axis] ?? [];
    const numbers = /** @type {StepNumbers} */ (this.array(values));
    return { ...about, name: t(`step-${about.text}`), sentence: t(`sentence-${about.text}`), rows: names(about.rows), columns: names(about.columns), layer, head, numbers, weight: this.array(weight), bias: this.array(bias), predictions };
  }

  /** @param {{at: number, shape: number[]} | null} array @returns {StepNumbers | null} */
  array(array) {
    if (!array) return null;
    const [rows, columns] = array.shape.length > 1 ? array.shape : [1, array.shape[0]];
    return { rows, columns, values: this.numbers.subarray(array.at, array.at + rows * columns) };
  }
}

/** What a walk lacks, in words. @param {any} walk */
export const lacking = (walk) => (walk?.note ? `${t(`walk-${walk.note}`)} ${t("walk-elsewhere")}` : "");

/** Layers and heads that a stack has walks through. @param {any} data @param {string} stack */
export function walkedThrough(data, stack) {
  const own = data.walks.filter((/** @type {any} */ walk) => walk.stack === stack);
  const numbers = (/** @type {string} */ of) => [...new Set(own.map((/** @type {any} */ walk) => walk[of]))].sort((one, other) => one - other);
  return { layers: numbers("layer"), heads: numbers("head").length };
}

/** @param {{type: string, data: string}} numbers */
async function unpackedNumbers({ type, data }) {
  const packed = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  return type === "float16" ? Float32Array.from(new Uint16Array(buffer), half) : new Float32Array(buffer);
}

/** A number of 16 bits. @param {number} bits */
function half(bits) {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}
