// @ts-check
// How one number of a walk was computed: the row and the column that it comes from, term by term.

import { element } from "./dom.js";
import { numbered } from "./pieces.js";

/** @typedef {import("./steps.js").Step} Step */
/** @typedef {{row: number, column: number}} Place */
/** @typedef {{lines: string[], head: string[], terms: (string | number)[][], marked: number}} Account sentences with numbers; a table of terms; -1 or the row of the table that is meant */
/** @typedef {(step: Step, place: Place, operands: Step[]) => Account} Explain */

const MASKS = { causal: "the causal mask", window: "the mask of causal sliding-window attention", local: "the mask of sliding-window attention" };

/** @param {number} value */
export function written(value) {
  if (value === Number.NEGATIVE_INFINITY) return "−∞";
  if (!Number.isFinite(value)) return "—";
  const small = value !== 0 && Math.abs(value) < 0.0005;
  return (small ? value.toExponential(1) : value.toFixed(3)).replaceAll("-", "−");
}

/** A number inside a calculation. @param {number} value */
const inside = (value) => (value < 0 ? `(${written(value)})` : written(value));

/** Name of a row, or of a column. @param {string[]} names @param {number} at */
export const nameOf = (names, at) => (names.length ? numbered(names, at) : `dimension ${at}`);

/** The same for a title. @param {string[]} names @param {number} at */
const quoted = (names, at) => (names.length ? `“${numbered(names, at)}”` : `dimension ${at}`);

/** Which cell it is, and its number. @param {Step} step @param {Place} place */
export function titleOf(step, place) {
  return `Row ${quoted(step.rows, place.row)}, ${step.columns.length ? "column " : ""}${quoted(step.columns, place.column)}: ${written(valueAt(step, place))}`;
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
  return { head: [first, ...heads, "product"], terms: a.map((value, i) => [nameOf(names, i), value, b[i], value * b[i]]) };
}

/** How a sum goes on to the result. @param {string} start @param {number} from @param {Step} step @param {number} column */
function afterSum(start, from, step, column) {
  const { scale, cap } = step.settings;
  const scaled = step.operation === "projection" && scale !== undefined && scale !== 1 ? from * scale : from;
  const shift = step.bias ? step.bias.values[column] : null;
  const lines = [`${start} = ${written(from)}`];
  if (scaled !== from) lines.push(`× ${written(scale)} = ${written(scaled)}`);
  if (shift !== null) lines.push(`+ bias ${inside(shift)} = ${written(scaled + shift)}`);
  const total = scaled + (shift ?? 0);
  if (cap) lines.push(`${cap} tanh(${inside(total)} / ${cap}) = ${written(cap * Math.tanh(total / cap))}`);
  return lines;
}

/** @type {Record<string, Explain>} */
const EXPLAIN = {
  given: (step) => account([step.sentence]),
  same: (step, place, [from]) => account([`The same number as in “${from.name}”: ${written(valueAt(from, place))}`]),
  embedding: (step, place) => {
    const [value, { scale }] = [valueAt(step, place), step.settings];
    const token = nameOf(step.rows, place.row);
    if (scale === 1) return account([`Entry ${place.column} of the row of “${token}” in the embedding table: ${written(value)}`]);
    return account([`Entry ${place.column} of the row of “${token}” in the embedding table: ${written(value / scale)}`, `× √d_model = ${written(scale)}: ${written(value)}`]);
  },
  position: (step, { row, column }) => {
    if (step.settings.kind !== "sinusoidal") return account([`Entry ${column} of the vector of position ${row}: ${written(valueAt(step, { row, column }))}`]);
    const [pair, width] = [column - (column % 2), step.numbers.columns];
    const [wave, angle] = [column % 2 ? "cos" : "sin", row / 10000 ** (pair / width)];
    return account([`${wave}(${row} / 10000^(${pair} / ${width})) = ${wave}(${written(angle)}) = ${written(column % 2 ? Math.cos(angle) : Math.sin(angle))}`]);
  },
  add: (step, place, operands) => {
    const values = operands.map((one) => valueAt(one, place));
    return account([`${values.map(inside).join(" + ")} = ${written(sum(values))}`], ["summand", "value"], operands.map((one, i) => [one.name, values[i]]));
  },
  norm: (step, { row, column }, [x]) => {
    const values = rowOf(x, row);
    const layer = step.settings.kind === "layer";
    const mean = layer ? sum(values) / values.length : 0;
    const deviation = Math.sqrt(sum(values.map((value) => (value - mean) ** 2)) / values.length + step.settings.eps);
    const normed = (values[column] - mean) / deviation;
    const [gain, shift] = [step.weight?.values[column] ?? 1, step.bias?.values[column] ?? null];
    const lines = layer ? [`Mean of the row μ = ${written(mean)}, deviation σ = ${written(deviation)}`, `(${inside(values[column])} − ${inside(mean)}) / ${written(deviation)} = ${written(normed)}`] : [`Root mean square of the row = ${written(deviation)}`, `${inside(values[column])} / ${written(deviation)} = ${written(normed)}`];
    lines.push(`× γ ${inside(gain)}${shift === null ? "" : ` + β ${inside(shift)}`} = ${written(normed * gain + (shift ?? 0))}`);
    return account(lines, ["", `row of “${x.name}”`], values.map((value, i) => [nameOf(x.columns, i), value]), column);
  },
  projection: (step, { row, column }, [x]) => {
    const values = rowOf(x, row);
    if (!step.weight) return account(["The sum of the products of this row and a column of the weights. The weights would be too large for this page."], ["", `row of “${x.name}”`], values.map((value, i) => [nameOf(x.columns, i), value]));
    const weights = columnOf(step.weight, column);
    const { head, terms } = products([], [`row of “${x.name}”`, `column ${step.columns.length ? `“${nameOf(step.columns, column)}”` : column} of W`], values, weights, "");
    return account(afterSum("Sum of the products", sum(values.map((value, i) => value * weights[i])), step, column), head, terms);
  },
  rotate: (step, { row, column }, [x]) => {
    const n = step.weight?.columns ?? 0;
    if (column >= 2 * n) return account([`Only the first ${2 * n} dimensions are rotated: ${written(valueAt(x, { row, column }))}`]);
    const pair = column % n;
    const angle = row * (step.weight?.values[pair] ?? 0);
    const [first, second] = [valueAt(x, { row, column: pair }), valueAt(x, { row, column: pair + n })];
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    const line = column < n ? `${inside(first)} × ${inside(cos)} − ${inside(second)} × ${inside(sin)} = ${written(first * cos - second * sin)}` : `${inside(second)} × ${inside(cos)} + ${inside(first)} × ${inside(sin)} = ${written(second * cos + first * sin)}`;
    return account([`Dimensions ${pair} and ${pair + n} are a pair. Position ${row} rotates it by ${written(angle)}: cos ${written(cos)}, sin ${written(sin)}`, line]);
  },
  scores: (step, { row, column }, [q, k, bias]) => {
    const [scale, { cap, mask }] = [step.settings.scale, step.settings];
    const [a, b] = [rowOf(q, row), rowOf(k, column)];
    const product = sum(a.map((value, i) => value * b[i]));
    const { head, terms } = products([], [`query of “${nameOf(q.rows, row)}”`, `key of “${nameOf(k.rows, column)}”`], a, b, "");
    const lines = [`Sum of the products = ${written(product)}`];
    let total = product * scale;
    const root = Math.abs(scale * Math.sqrt(a.length) - 1) < 1e-6;
    if (scale !== 1) lines.push(root ? `/ √${a.length} = ${written(total)}` : `× ${written(scale)} = ${written(total)}`);
    if (cap) lines.push(`${cap} tanh(${inside(total)} / ${cap}) = ${written((total = cap * Math.tanh(total / cap)))}`);
    if (bias) lines.push(`+ bias ${inside(valueAt(bias, { row, column }))} = ${written(total + valueAt(bias, { row, column }))}`);
    if (!mayAttend(step, row).includes(column)) lines.push(`But ${MASKS[/** @type {"causal"} */ (mask)]} hides “${nameOf(k.rows, column)}” from “${nameOf(q.rows, row)}”: the score becomes −∞.`);
    return account(lines, head, terms);
  },
  softmax: (step, { row, column }, [scores]) => {
    const [values, keys] = [rowOf(scores, row), mayAttend(scores, row)];
    if (!keys.length) return account(["All keys of this row are masked: it has no weights."]);
    const most = Math.max(...values);
    const raised = values.map((value) => Math.exp(value - most));
    const total = sum(raised);
    const line = !keys.includes(column) ? "A masked score has the weight 0: exp(−∞) = 0." : `exp(${inside(values[column])} − ${inside(most)}) / ${written(total)} = ${written(raised[column] / total)}`;
    const terms = values.map((value, i) => [nameOf(scores.columns, i), value, raised[i], raised[i] / total]);
    return account([line, `The largest score of the row, ${written(most)}, is subtracted first; this changes no weight.`], ["key", "score", "exp(score − largest)", "weight"], terms, column);
  },
  "weighted-sum": (step, { row, column }, [weights, values]) => {
    const [a, b] = [rowOf(weights, row), columnOf(values.numbers, column)];
    const { head, terms } = products(weights.columns, ["weight", `dimension ${column} of its value`], a, b, "token");
    return account([`Sum of the products = ${written(sum(a.map((value, i) => value * b[i])))}`], head, terms);
  },
  concat: (step, place, [head]) => {
    const width = head.numbers.columns;
    const [number, within] = [Math.floor(place.column / width), place.column % width];
    return account([`Dimension ${within} of head ${number}${number === head.head ? `, whose weighted sum you have seen: ${written(valueAt(head, { row: place.row, column: within }))}` : `: ${written(valueAt(step, place))}. Choose that head to see its steps.`}`]);
  },
  activation: (step, place, operands) => {
    const values = operands.map((one) => valueAt(one, place));
    const name = step.settings.function;
    const result = written(valueAt(step, place));
    if (values.length > 1) return account([`${name}(${written(values[0])}) × ${inside(values[1])} = ${result}`], ["", "value"], operands.map((one, i) => [one.name, values[i]]));
    return account([name === "relu" ? `max(0, ${written(values[0])}) = ${result}` : `${name}(${written(values[0])}) = ${result}`]);
  },
  probabilities: (step, place, [logits]) => {
    const [logit, total] = [valueAt(logits, place), step.bias?.values[place.row] ?? 0];
    const order = rowOf(step, place.row).map((value, i) => [nameOf(step.columns, i), valueAt(logits, { row: place.row, column: i }), value]);
    return account([`exp(${written(logit)} − ${inside(total)}) = ${written(Math.exp(logit - total))}`, `${written(total)} is the logarithm of the sum of exp(logit) over the whole vocabulary, so that all probabilities sum to one.`], ["token", "logit", "probability"], order, place.column);
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
