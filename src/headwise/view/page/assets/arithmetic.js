// @ts-check
// What the cards of the tour compute from the recorded steps: rows, softmax, scores with one thing changed.

import { columnOf, mayAttend, rowOf, sum } from "./cell.js";
import { allNumbered, readable } from "./pieces.js";

/** @typedef {import("./steps.js").Step} Step */
/** @typedef {import("./steps.js").StepNumbers} StepNumbers */

/** @param {number} count */
export const upTo = (count) => Array.from({ length: count }, (_, at) => at);

/** @param {number[]} a @param {number[]} b */
export const dot = (a, b) => sum(a.map((value, i) => value * b[i]));

/** @param {number[]} a */
export const lengthOf = (a) => Math.sqrt(dot(a, a));

/** @param {number[]} a @param {number[]} b */
export const cosine = (a, b) => dot(a, b) / (lengthOf(a) * lengthOf(b) || 1);

/** @param {number[]} a @param {number[]} b */
export const plus = (a, b) => a.map((value, i) => value + b[i]);

/** @param {number[]} a @param {number[]} b */
export const minus = (a, b) => a.map((value, i) => value - b[i]);

const MOST_CHOICES = 4;
const EQUAL = 1e-6; // relative: what float32 rounds away

/** Where the greatest values are: several if they are equal. @param {number[]} values */
export function allGreatest(values) {
  const most = Math.max(...values);
  return upTo(values.length).filter((at) => values[at] >= most - EQUAL * Math.abs(most));
}

/** How few and how many different places several can choose, of which each has some. @param {number[][]} options */
export function differentPlaces(options) {
  return [true, false].map((known) => {
    const chosen = new Set();
    for (const places of [...options].sort((one, other) => one.length - other.length)) chosen.add(places.find((at) => chosen.has(at) === known) ?? places[0]);
    return chosen.size;
  });
}

/** Where the greatest value is. @param {number[]} values */
export const greatestAt = (values) => values.indexOf(Math.max(...values));

/** Nothing for a row without a key. @param {number[]} values */
export function softmaxOf(values) {
  const most = Math.max(...values);
  if (most === Number.NEGATIVE_INFINITY) return values.map(() => 0);
  const raised = values.map((value) => Math.exp(value - most));
  const total = sum(raised);
  return raised.map((value) => value / total);
}

/** The same weight for each key that a row may attend to. @param {Step} scores @param {number} row */
export function evenWeights(scores, row) {
  const keys = mayAttend(scores, row);
  return scores.columns.map((_, column) => (keys.includes(column) ? 1 / keys.length : 0));
}

/** @param {number[][]} rows @returns {StepNumbers} */
export function matrixOf(rows) {
  return { rows: rows.length, columns: rows[0].length, values: Float32Array.from(rows.flat()) };
}

/** @param {{numbers: StepNumbers}} step @returns {number[][]} */
export const rowsOf = (step) => upTo(step.numbers.rows).map((row) => rowOf(/** @type {any} */ (step), row));

/**
 * Rows of scores, with another scale or without a mask.
 * @param {Step} step the scores
 * @param {Record<string, Step>} steps
 * @param {{scale?: number, masked?: boolean}} changed
 */
export function scoresOf(step, steps, { scale = step.settings.scale, masked = true } = {}) {
  const [q, k, bias] = step.operands.map((id) => steps[id]);
  const { cap } = step.settings;
  const biases = bias && rowsOf(bias);
  return rowsOf(q).map((query, row) => {
    const keys = masked ? new Set(mayAttend(step, row)) : null;
    return rowsOf(k).map((key, column) => {
      if (keys && !keys.has(column)) return Number.NEGATIVE_INFINITY;
      const score = dot(query, key) * scale;
      return (cap ? cap * Math.tanh(score / cap) : score) + (biases ? biases[row][column] : 0);
    });
  });
}

/** Rows, from a number on and then those before it. @param {{rows: string[]}} step @param {number} first */
export const rowsFrom = ({ rows }, first) => upTo(rows.length).sort((one, other) => Number(one < first) - Number(other < first) || one - other);

/** Rows, first those of three keys or more whose greatest weight is near a half: neither one weight of nearly 1, nor equal ones. @param {Step} weights @param {Step} scores */
export function halfwayRows(weights, scores) {
  const away = rowsOf(weights).map((row, at) => (mayAttend(scores, at).length < 3 ? 1 : Math.abs(Math.max(...row) - 0.5)));
  return upTo(away.length).sort((one, other) => away[one] - away[other] || one - other);
}

/**
 * The first of some rows that is easy to read: its token has a letter or a digit, and so has the one with its greatest weight.
 * @param {{rows: string[]}} step
 * @param {number[]} order
 * @param {Step} [weights]
 */
export function readableRow({ rows }, order, weights) {
  const own = order.filter((row) => readable(rows[row]));
  const aiming = weights ? own.filter((row) => readable(weights.columns[greatestAt(rowOf(weights, row))])) : [];
  return [...aiming, ...own, ...order][0] ?? 0;
}

/** The weighted sums of rows. @param {number[][]} weights @param {Step} values */
export function weightedSums(weights, values) {
  const columns = upTo(values.numbers.columns).map((column) => columnOf(values.numbers, column));
  return weights.map((row) => columns.map((column) => dot(row, column)));
}

/**
 * The place with the greatest value and two others to choose from, in the order of the places. Equal values are all right.
 * @param {string[]} pieces
 * @param {number[]} values
 * @param {number[]} [among] the places that count; others are there to choose from if these are fewer than two
 * @param {string[]} [names]
 */
export function candidates(pieces, values, among = upTo(values.length), names = allNumbered(pieces)) {
  const counted = values.map((value, at) => (among.includes(at) ? value : Number.NEGATIVE_INFINITY));
  const bests = allGreatest(counted);
  const order = upTo(values.length).sort((one, other) => counted[other] - counted[one] || one - other);
  const places = order.slice(0, Math.min(3, Math.max(2, among.length))).sort((one, other) => one - other);
  return { best: order[0], choices: places.map((at) => names[at]), right: rightAmong(places, bests) };
}

/** @param {number[]} places to choose from @param {number[]} bests */
const rightAmong = (places, bests) => upTo(places.length).filter((at) => bests.includes(places[at]));

/**
 * A number and others to choose from, smallest first; what would be written alike is left out.
 * @param {number} right
 * @param {...number} others
 */
export function numbersToChoose(right, ...others) {
  const choices = [right];
  for (const one of others) if (choices.length < MOST_CHOICES && choices.every((known) => Math.abs(known - one) > 0.01 * Math.max(1, Math.abs(known)))) choices.push(one);
  if (choices.length < 2) choices.push(right + 1);
  choices.sort((one, other) => one - other);
  return { choices, right: [choices.indexOf(right)] };
}
