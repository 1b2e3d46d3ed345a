// @ts-check
// How one number of a walk was computed: the row and the column that it comes from, term by term.

import { element } from "./dom.js";
import { numbered } from "./pieces.js";
import { pointed, t } from "./texts.js";

/** @typedef {import("./steps.js").Step} Step */
/** @typedef {{row: number, column: number}} Place */
/** @typedef {{lines: string[], head: string[], terms: (string | number)[][], marked: number}} Account sentences with numbers; a table of terms; -1 or the row of the table that is meant */
/** @typedef {(step: Step, place: Place, operands: Step[]) => Account} Explain */

/** @param {number} value */
export function written(value) {
  if (value === Number.NEGATIVE_INFINITY) return "−∞";
  if (!Number.isFinite(value)) return "—";
  const small = value !== 0 && Math.abs(value) < 0.0005;
  return pointed(small ? value.toExponential(1) : value.toFixed(3)).replaceAll("-", "−");
}

/** A number inside a calculation. @param {number} value */
const inside = (value) => (value < 0 ? `(${written(value)})` : written(value));

/** Name of a row, or of a column. @param {string[]} names @param {number} at */
export const nameOf = (names, at) => (names.length ? numbered(names, at) : t("dimension", { number: at }));

/** @param {string} name */
const quoted = (name) => t("quoted", { name });

/** The same in a sentence. @param {string[]} names @param {number} at */
const inSentence = (names, at) => (names.length ? quoted(numbered(names, at)) : nameOf(names, at));

/** Which cell it is, and its number. @param {Step} step @param {Place} place */
export function titleOf(step, place) {
  const values = { row: inSentence(step.rows, place.row), column: inSentence(step.columns, place.column), value: written(valueAt(step, place)) };
  return t(step.columns.length ? "cell-of-tokens" : "cell-of-dimension", values);
}

/** @param {Step} step @param {Place} place */
export const valueAt = ({ numbers }, { row, column }) => numbers.values[row * numbers.columns + column];
/** @param {Step} step @param {number} row */
export const rowOf = ({ numbers }, row) => [...numbers.values.subarray(row * numbers.columns, (row + 1) * numbers.columns)];
/** @param {import("./steps.js").StepNumbers} numbers @param {number} column */
export const columnOf = ({ rows, columns, values }, column) => Array.from({ length: rows }, (_, row) => values[row * columns + column]);
/** The keys that a row of scores may attend to. A score of −∞ is masked; a weight can be zero without a mask. @param {Step} scores @param {number} row */
export const mayAttend = (scores, row) => rowOf(scores, row).flatMap((score, column) => (score === Number.NEGATIVE_INFINITY ? [] : [column]));
export const sum = (/** @type {number[]} */ values) => values.reduce((total, value) => total + value, 0);
/** @param {string[]} lines @param {string[]} head @param {(string | number)[][]} terms @param {number} marked @returns {Account} */
const account = (lines, head = [], terms = [], marked = -1) => ({ lines, head, terms, marked });

/** A sum of products as a table. @param {string[]} names @param {string[]} heads @param {number[]} a @param {number[]} b @param {string} first */
function products(names, heads, a, b, first) {
  return { head: [first, ...heads, t("term-product")], terms: a.map((value, i) => [nameOf(names, i), value, b[i], value * b[i]]) };
}

/** How a sum of products goes on to the result. @param {number} from @param {Step} step @param {number} column */
function afterSum(from, step, column) {
  const { scale, cap } = step.settings;
  const scaled = step.operation === "projection" && scale !== undefined && scale !== 1 ? from * scale : from;
  const shift = step.bias ? step.bias.values[column] : null;
  const lines = [t("cell-sum", { value: written(from) })];
  if (scaled !== from) lines.push(`× ${written(scale)} = ${written(scaled)}`);
  if (shift !== null) lines.push(t("cell-bias", { bias: inside(shift), value: written(scaled + shift) }));
  const total = scaled + (shift ?? 0);
  if (cap) lines.push(`${cap} tanh(${inside(total)} / ${cap}) = ${written(cap * Math.tanh(total / cap))}`);
  return lines;
}

/** @type {Record<string, Explain>} */
const EXPLAIN = {
  given: (step) => account([step.sentence]),
  same: (step, place, [from]) => account([t("cell-same", { step: quoted(from.name), value: written(valueAt(from, place)) })]),
  embedding: (step, place) => {
    const [value, { scale }] = [valueAt(step, place), step.settings];
    const entry = t("cell-embedding", { column: place.column, token: inSentence(step.rows, place.row), value: written(value / scale) });
    return account(scale === 1 ? [entry] : [entry, `× √d_model = ${written(scale)}: ${written(value)}`]);
  },
  position: (step, { row, column }) => {
    if (step.settings.kind !== "sinusoidal") return account([t("cell-position", { row, column, value: written(valueAt(step, { row, column })) })]);
    const [pair, width] = [column - (column % 2), step.numbers.columns];
    const [wave, angle] = [column % 2 ? "cos" : "sin", row / 10000 ** (pair / width)];
    return account([`${wave}(${row} / 10000^(${pair} / ${width})) = ${wave}(${written(angle)}) = ${written(column % 2 ? Math.cos(angle) : Math.sin(angle))}`]);
  },
  add: (step, place, operands) => {
    const values = operands.map((one) => valueAt(one, place));
    return account([`${values.map(inside).join(" + ")} = ${written(sum(values))}`], [t("term-summand"), t("term-value")], operands.map((one, i) => [one.name, values[i]]));
  },
  norm: (step, { row, column }, [x]) => {
    const values = rowOf(x, row);
    const layer = step.settings.kind === "layer";
    const mean = layer ? sum(values) / values.length : 0;
    const deviation = Math.sqrt(sum(values.map((value) => (value - mean) ** 2)) / values.length + step.settings.eps);
    const normed = (values[column] - mean) / deviation;
    const [gain, shift] = [step.weight?.values[column] ?? 1, step.bias?.values[column] ?? null];
    const lines = layer ? [t("cell-mean", { mean: written(mean), deviation: written(deviation) }), `(${inside(values[column])} − ${inside(mean)}) / ${written(deviation)} = ${written(normed)}`] : [t("cell-rms", { value: written(deviation) }), `${inside(values[column])} / ${written(deviation)} = ${written(normed)}`];
    lines.push(`× γ ${inside(gain)}${shift === null ? "" : ` + β ${inside(shift)}`} = ${written(normed * gain + (shift ?? 0))}`);
    return account(lines, ["", t("term-row", { step: quoted(x.name) })], values.map((value, i) => [nameOf(x.columns, i), value]), column);
  },
  projection: (step, { row, column }, [x]) => {
    const values = rowOf(x, row);
    if (!step.weight) return account([t("cell-no-weights")], ["", t("term-row", { step: quoted(x.name) })], values.map((value, i) => [nameOf(x.columns, i), value]));
    const weights = columnOf(step.weight, column);
    const { head, terms } = products([], [t("term-row", { step: quoted(x.name) }), t("term-column", { column: step.columns.length ? inSentence(step.columns, column) : column })], values, weights, "");
    return account(afterSum(sum(values.map((value, i) => value * weights[i])), step, column), head, terms);
  },
  rotate: (step, { row, column }, [x]) => {
    const n = step.weight?.columns ?? 0;
    if (column >= 2 * n) return account([t("cell-not-rotated", { count: 2 * n, value: written(valueAt(x, { row, column })) })]);
    const pair = column % n;
    const angle = row * (step.weight?.values[pair] ?? 0);
    const [first, second] = [valueAt(x, { row, column: pair }), valueAt(x, { row, column: pair + n })];
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    const line = column < n ? `${inside(first)} × ${inside(cos)} − ${inside(second)} × ${inside(sin)} = ${written(first * cos - second * sin)}` : `${inside(second)} × ${inside(cos)} + ${inside(first)} × ${inside(sin)} = ${written(second * cos + first * sin)}`;
    return account([t("cell-rotated", { first: pair, second: pair + n, row, angle: written(angle), cos: written(cos), sin: written(sin) }), line]);
  },
  scores: (step, { row, column }, [q, k, bias]) => {
    const [scale, { cap, mask }] = [step.settings.scale, step.settings];
    const [a, b] = [rowOf(q, row), rowOf(k, column)];
    const product = sum(a.map((value, i) => value * b[i]));
    const { head, terms } = products([], [t("term-query", { token: inSentence(q.rows, row) }), t("term-key-of", { token: inSentence(k.rows, column) })], a, b, "");
    const lines = [t("cell-sum", { value: written(product) })];
    let total = product * scale;
    const root = Math.abs(scale * Math.sqrt(a.length) - 1) < 1e-6;
    if (scale !== 1) lines.push(root ? `/ √${a.length} = ${written(total)}` : `× ${written(scale)} = ${written(total)}`);
    if (cap) lines.push(`${cap} tanh(${inside(total)} / ${cap}) = ${written((total = cap * Math.tanh(total / cap)))}`);
    if (bias) lines.push(t("cell-bias", { bias: inside(valueAt(bias, { row, column })), value: written(total + valueAt(bias, { row, column })) }));
    if (!mayAttend(step, row).includes(column)) lines.push(t(`cell-hidden-${mask}`, { key: inSentence(k.rows, column), query: inSentence(q.rows, row) }));
    return account(lines, head, terms);
  },
  softmax: (step, { row, column }, [scores]) => {
    const [values, keys] = [rowOf(scores, row), mayAttend(scores, row)];
    if (!keys.length) return account(["All keys of this row are masked: it has no weights."]);
    const most = Math.max(...values);
    const raised = values.map((value) => Math.exp(value - most));
    const total = sum(raised);
    const line = !keys.includes(column) ? t("cell-masked") : `exp(${inside(values[column])} − ${inside(most)}) / ${written(total)} = ${written(raised[column] / total)}`;
    const terms = values.map((value, i) => [nameOf(scores.columns, i), value, raised[i], raised[i] / total]);
    return account([line, t("cell-largest", { score: written(most) })], [t("term-key"), t("term-score"), t("term-raised"), t("term-weight")], terms, column);
  },
  "weighted-sum": (step, { row, column }, [weights, values]) => {
    const [a, b] = [rowOf(weights, row), columnOf(values.numbers, column)];
    const { head, terms } = products(weights.columns, [t("term-weight"), t("term-value-of", { number: column })], a, b, t("term-token"));
    return account([t("cell-sum", { value: written(sum(a.map((value, i) => value * b[i]))) })], head, terms);
  },
  concat: (step, place, [head]) => {
    const width = head.numbers.columns;
    const [number, within] = [Math.floor(place.column / width), place.column % width];
    return account([t(number === head.head ? "cell-own-head" : "cell-other-head", { number: within, head: number, value: written(valueAt(step, place)) })]);
  },
  activation: (step, place, operands) => {
    const values = operands.map((one) => valueAt(one, place));
    const name = step.settings.function;
    const result = written(valueAt(step, place));
    if (values.length > 1) return account([`${name}(${written(values[0])}) × ${inside(values[1])} = ${result}`], ["", t("term-value")], operands.map((one, i) => [one.name, values[i]]));
    return account([name === "relu" ? `max(0, ${written(values[0])}) = ${result}` : `${name}(${written(values[0])}) = ${result}`]);
  },
  probabilities: (step, place, [logits]) => {
    const [logit, total] = [valueAt(logits, place), step.bias?.values[place.row] ?? 0];
    const order = rowOf(step, place.row).map((value, i) => [nameOf(step.columns, i), valueAt(logits, { row: place.row, column: i }), value]);
    return account([`exp(${written(logit)} − ${inside(total)}) = ${written(Math.exp(logit - total))}`, t("cell-log-sum", { total: written(total) })], [t("term-token"), t("term-logit"), t("term-probability")], order, place.column);
  },
};

/**
 * The account of one cell as elements.
 * @param {Step} step
 * @param {Place} place
 * @param {(id: string) => Step} find an operand
 */
export function explainCell(step, place, find) {
  const { lines, head, terms, marked } = EXPLAIN[step.operation](step, place, step.operands.map(find));
  const text = element("ul", { class: "cell-lines" }, ...lines.map((line) => element("li", {}, line)));
  const cells = (/** @type {(string | number)[]} */ term, /** @type {number} */ at) => {
    const [name, ...values] = term;
    return element("tr", { class: at === marked ? "meant" : null }, element("th", { scope: "row" }, name), ...values.map((value) => element("td", {}, typeof value === "number" ? written(value) : value)));
  };
  const table = terms.length ? element("table", { class: "terms" }, element("thead", {}, element("tr", {}, ...head.map((text) => (text ? element("th", { scope: "col" }, text) : element("td", {}))))), element("tbody", {}, ...terms.map(cells))) : null;
  return { title: titleOf(step, place), text, table };
}
