// @ts-check
// What the cards of the tour compute from the recorded steps: rows, softmax, scores with one thing changed.

import { columnOf, rowOf, sum } from "./cell.js";
import { label } from "./pieces.js";

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

/** Where the greatest value is. @param {number[]} values */
export const greatestAt = (values) => values.indexOf(Math.max(...values));

/** @param {number[]} values */
export function softmaxOf(values) {
  const most = Math.max(...values);
  const raised = values.map((value) => Math.exp(value - most));
  const total = sum(raised);
  return raised.map((value) => value / total);
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
  const recorded = rowsOf(step);
  return rowsOf(q).map((query, row) =>
    rowsOf(k).map((key, column) => {
      if (masked && recorded[row][column] === Number.NEGATIVE_INFINITY) return Number.NEGATIVE_INFINITY;
      const score = dot(query, key) * scale;
      return (cap ? cap * Math.tanh(score / cap) : score) + (biases ? biases[row][column] : 0);
    }),
  );
}

/** The row of three weights or more whose greatest one is nearest to a half: neither one weight of nearly 1, nor equal ones. @param {Step} weights */
export function halfwayRow(weights) {
  const away = rowsOf(weights).map((row) => (row.filter((weight) => weight > 0).length < 3 ? 1 : Math.abs(Math.max(...row) - 0.5)));
  return away.indexOf(Math.min(...away));
}

/** The weighted sums of rows. @param {number[][]} weights @param {Step} values */
export function weightedSums(weights, values) {
  const columns = upTo(values.numbers.columns).map((column) => columnOf(values.numbers, column));
  return weights.map((row) => columns.map((column) => dot(row, column)));
}

/**
 * The place with the greatest value and two others to choose from, in the order of the places.
 * @param {string[]} names
 * @param {number[]} values
 */
export function candidates(names, values) {
  const best = greatestAt(values);
  const seen = new Set([label(names[best])]);
  const others = upTo(names.length).sort((one, other) => values[other] - values[one]).filter((at) => Number.isFinite(values[at]) && !seen.has(label(names[at])) && seen.add(label(names[at])));
  const places = [best, ...others.slice(0, 2)].sort((one, other) => one - other);
  return { best, choices: places.map((at) => label(names[at])), right: places.indexOf(best) };
}

/**
 * A number and others to choose from, smallest first; what would be written alike is left out.
 * @param {number} right
 * @param {...number} others
 */
export function numbersToChoose(right, ...others) {
  const choices = [right];
  for (const one of others) if (choices.every((known) => Math.abs(known - one) > 0.01 * Math.max(1, Math.abs(known)))) choices.push(one);
  if (choices.length < 2) choices.push(right + 1);
  choices.sort((one, other) => one - other);
  return { choices, right: choices.indexOf(right) };
}
