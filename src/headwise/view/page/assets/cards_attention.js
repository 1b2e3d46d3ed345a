// @ts-check
// The first cards of the tour: from a text to the output of a layer, each computed from the recorded steps. Numbers have
// the names of the placeholders in tour.*.json. "own" is the first stack: the encoder, or else the decoder.

import { candidates, cosine, dot, greatestAt, halfwayRow, lengthOf, matrixOf, minus, numbersToChoose, plus, rowsOf, scoresOf, softmaxOf, upTo, weightedSums } from "./arithmetic.js";
import { rowOf, sum } from "./cell.js";
import { label } from "./pieces.js";

/** @typedef {import("./steps.js").Step} Step */
/** @typedef {{title: string, numbers: import("./steps.js").StepNumbers, rows: string[], columns?: string[], share?: boolean}} Drawing `share`: numbers from 0 to 1 */
/** @typedef {{head: string[], rows: [string, ...number[]][]}} Table */
/**
 * @typedef {object} Card
 * @property {number} right which choice
 * @property {(string | number)[]} [choices] those of the catalogue if missing
 * @property {Record<string, string | number>} numbers for the placeholders
 * @property {Drawing[]} [drawings] operands and result
 * @property {[string, number][]} [bars] names and values
 * @property {number} [chance] shown beside the bars
 * @property {Table} [table]
 * @property {number[]} [curve] points of a line, from left to right
 * @property {string[]} [rows] tokens that the reader can choose
 * @property {number} [row] the chosen one
 * @property {(string | number)[]} [knobs] settings, "" for the model's
 * @property {string | number} [knob] the chosen one
 */
/** @typedef {import("./figure.js").Figure} Figures */
/** @typedef {{fits?: (figure: any, host: import("./tour.js").TourHost) => boolean, show: (lesson: import("./tour.js").Lesson) => Promise<Card>}} CardMaker */

const ONE = 1;
/** @param {any} figure */
const own = (figure) => figure[Object.keys(figure)[0]];
/** @param {any} figure */
export const bothStacks = (figure) => "encoder" in figure && "decoder" in figure;
/** @param {string} title @param {Step} step @returns {Drawing} */
const drawingOf = (title, step) => ({ title, numbers: step.numbers, rows: step.rows, columns: step.columns });
/** @param {string} title @param {number[][]} rows @param {Step} like @param {boolean} [share] @returns {Drawing} */
export const redrawn = (title, rows, like, share = false) => ({ title, numbers: matrixOf(rows), rows: like.rows, columns: like.columns, share });
/** @param {Step} step @param {number[]} values @returns {[string, number][]} */
export const barsOf = (step, values) => step.columns.map((name, i) => [label(name), values[i]]);
/** Keys that a row may attend to. @param {number[]} scores */
const visible = (scores) => scores.filter((score) => score !== Number.NEGATIVE_INFINITY).length;
const PRODUCT = "Q Kᵀ";
const SCALED = "Q Kᵀ / √dₖ";

/** @type {Record<string, CardMaker>} */
export const ATTENTION_CARDS = {
  recurrence: {
    async show(lesson) {
      const { embeddings } = await lesson.own();
      const knobs = [1, 2, 4];
      const knob = lesson.knobOf(knobs, 1);
      const n = embeddings.rows.length * Number(knob);
      const numbers = { first: label(embeddings.rows[0]), last: label(/** @type {string} */ (embeddings.rows.at(-1))), tokens: n, recurrent: n - 1, path: ONE, pairs: n * n };
      return { ...numbersToChoose(n - 1, ONE, n * n), numbers, knobs, knob };
    },
  },
  alignment: {
    fits: bothStacks,
    async show(lesson) {
      const steps = await lesson.cross();
      const weights = steps["cross_attn.softmax"];
      const row = lesson.rowOf(weights);
      const values = rowOf(weights, row);
      const { best, ...choices } = candidates(weights.columns, values);
      const chance = 1 / values.length;
      const numbers = { token: label(weights.rows[row]), best: label(weights.columns[best]), weight: values[best], tokens: values.length, chance };
      return { ...choices, numbers, drawings: [{ ...drawingOf("softmax", weights), share: true }], bars: barsOf(weights, values), chance, rows: weights.rows, row };
    },
  },
  tokens: {
    async show(lesson) {
      const { embeddings } = await lesson.own();
      const text = lesson.host.text();
      const [tokens, words, characters] = [embeddings.rows.length, text.trim().split(/\s+/).length, [...text].length];
      return { ...numbersToChoose(tokens, words, characters), numbers: { tokens, words, characters }, table: { head: embeddings.rows.map((name) => label(name)), rows: [["", ...upTo(tokens)]] } };
    },
  },
  embeddings: {
    async show(lesson) {
      const { embeddings } = await lesson.own();
      const row = lesson.rowOf(embeddings);
      const { columns } = embeddings.numbers;
      const numbers = { token: label(embeddings.rows[row]), d_model: columns, scale: embeddings.settings.scale, value: rowOf(embeddings, row)[0] };
      return { ...numbersToChoose(columns, embeddings.rows.length, ONE), numbers, drawings: [drawingOf("E", embeddings)], rows: embeddings.rows, row };
    },
  },
  positions: {
    fits: (figure) => own(figure).positions === "added",
    async show(lesson) {
      const steps = await lesson.own();
      const { embeddings, "position-codes": codes } = steps;
      const row = lesson.rowOf(embeddings);
      const other = Math.max(0, upTo(embeddings.rows.length).findIndex((at) => embeddings.rows[at] !== embeddings.rows[row]));
      const [knobs, knob] = [["", "off"], lesson.knobOf(["", "off"], "")];
      const [e, p] = [rowsOf(embeddings), rowsOf(codes)];
      const product = (/** @type {number} */ at, /** @type {number} */ beside) => dot(plus(e[row], p[at]), plus(e[other], p[beside]));
      const bare = dot(e[row], e[other]);
      const [here, swapped] = [product(row, other), product(other, row)];
      const off = knob === "off";
      const numbers = { token: label(embeddings.rows[row]), other: label(embeddings.rows[other]), here: off ? bare : here, swapped: off ? bare : swapped, bare };
      const summed = off ? redrawn("E", e, embeddings) : redrawn("E + PE", e.map((one, i) => plus(one, p[i])), embeddings);
      return { right: Math.abs(here - swapped) > 1e-6 ? 0 : 1, numbers, drawings: [drawingOf("E", embeddings), drawingOf("PE", codes), summed], rows: embeddings.rows, row, knobs, knob };
    },
  },
  "by-hand": {
    async show(lesson) {
      const steps = await lesson.own();
      const [q, k] = steps["self_attn.scores"].operands.map((id) => steps[id]);
      const v = steps["self_attn.values"];
      const three = upTo(Math.min(3, q.rows.length));
      const row = Math.min(lesson.row ?? 0, three.length - 1);
      const two = (/** @type {Step} */ step, /** @type {number} */ at) => rowOf(step, at).slice(0, 2);
      const products = three.map((at) => dot(two(q, row), two(k, at)));
      const weights = softmaxOf(products.map((product) => product / Math.sqrt(2)));
      const result = upTo(2).map((column) => sum(weights.map((weight, at) => weight * two(v, at)[column])));
      const names = three.map((at) => label(q.rows[at]));
      const best = greatestAt(products);
      const table = { head: ["K", "", "V", "", "q·k", "softmax"], rows: three.map((at) => /** @type {[string, ...number[]]} */ ([names[at], ...two(k, at), ...two(v, at), products[at], weights[at]])) };
      const [q0, q1] = two(q, row);
      const numbers = { token: names[row], best: names[best], q0, q1, two: 2, product: products[best], weight: weights[best], o0: result[0], o1: result[1] };
      return { choices: names, right: best, numbers, table, rows: q.rows.slice(0, three.length), row };
    },
  },
  scores: {
    async show(lesson) {
      const steps = await lesson.own();
      const scores = steps["self_attn.scores"];
      const [q, k] = scores.operands.map((id) => steps[id]);
      const row = lesson.rowOf(scores, halfwayRow(steps["self_attn.softmax"]));
      const raw = scoresOf(scores, steps, { scale: 1 })[row];
      const { best, ...choices } = candidates(scores.columns, rowOf(scores, row));
      const seen = raw.filter(Number.isFinite);
      const numbers = { token: label(scores.rows[row]), best: label(scores.columns[best]), d_k: q.numbers.columns, product: raw[best], tokens: seen.length, mean: sum(seen) / seen.length };
      return { ...choices, numbers, drawings: [drawingOf("Q", q), drawingOf("K", k), drawingOf(scores.settings.scale === 1 ? PRODUCT : SCALED, scores)], rows: scores.rows, row };
    },
  },
  scale: {
    fits: (figure) => own(figure).positions !== "relative",
    async show(lesson) {
      const steps = await lesson.own();
      const scores = steps["self_attn.scores"];
      const row = lesson.rowOf(scores, halfwayRow(steps["self_attn.softmax"]));
      const [knobs, knob] = [["", "off"], lesson.knobOf(["", "off"], "")];
      const [with_, without] = [scoresOf(scores, steps), scoresOf(scores, steps, { scale: 1 })];
      const chosen = knob === "off" ? without : with_;
      const weights = chosen.map(softmaxOf);
      const [scaled, unscaled] = [Math.max(...softmaxOf(with_[row])), Math.max(...softmaxOf(without[row]))];
      const chance = 1 / visible(with_[row]);
      const right = Math.abs(scaled - unscaled) < 1e-6 ? 2 : unscaled > scaled ? 0 : 1;
      const numbers = { token: label(scores.rows[row]), best: label(scores.columns[greatestAt(with_[row])]), root: 1 / scores.settings.scale, scaled, unscaled, chance };
      const title = knob === "off" ? PRODUCT : SCALED;
      return { right, numbers, drawings: [redrawn(title, chosen, scores), redrawn("softmax", weights, scores, true)], bars: barsOf(scores, weights[row]), chance, rows: scores.rows, row, knobs, knob };
    },
  },
  softmax: {
    async show(lesson) {
      const { "self_attn.scores": scores, "self_attn.softmax": weights } = await lesson.own();
      const row = lesson.rowOf(scores, halfwayRow(weights));
      const [from, to] = [rowOf(scores, row), rowOf(weights, row)];
      const best = greatestAt(from);
      const [total, whole, n] = [sum(from.map((score) => Math.exp(score - from[best]))), sum(to), visible(from)];
      const numbers = { token: label(scores.rows[row]), best: label(scores.columns[best]), score: from[best], total, weight: to[best], whole, one: ONE, chance: 1 / n };
      return { ...numbersToChoose(Math.round(whole), n, from[best]), numbers, drawings: [drawingOf(SCALED, scores), { ...drawingOf("softmax", weights), share: true }], bars: barsOf(weights, to), chance: 1 / n, rows: scores.rows, row };
    },
  },
  "weighted-sum": {
    async show(lesson) {
      const steps = await lesson.own();
      const weights = steps["self_attn.softmax"];
      const values = steps["self_attn.values"];
      const row = lesson.rowOf(weights, halfwayRow(weights));
      const [knobs, knob] = [["", "even"], lesson.knobOf(["", "even"], "")];
      const recorded = rowsOf(weights);
      const even = recorded.map((one) => one.map((weight) => (weight > 0 ? 1 / one.filter((w) => w > 0).length : 0)));
      const chosen = knob === "even" ? even : recorded;
      const sums = weightedSums(chosen, values);
      const [model, mean] = [weightedSums(recorded, values)[row], weightedSums(even, values)[row]];
      const near = rowsOf(values).map((value, at) => (recorded[row][at] > 0 ? -lengthOf(minus(value, model)) : Number.NEGATIVE_INFINITY));
      const { best, ...choices } = candidates(values.rows, near);
      const numbers = { token: label(weights.rows[row]), best: label(values.rows[best]), result: sums[row][0], distance: -near[best], even: lengthOf(minus(mean, model)) };
      return { ...choices, numbers, drawings: [redrawn("A", chosen, weights, true), drawingOf("V", values), redrawn("A V", sums, steps["self_attn.weighted-sum"])], rows: weights.rows, row, knobs, knob };
    },
  },
  heads: {
    fits: (figure) => own(figure).heads[0] > 1,
    async show(lesson) {
      const all = await lesson.heads();
      const weights = all.map((steps) => steps["self_attn.softmax"]);
      const row = lesson.rowOf(weights[0], halfwayRow(weights[0]));
      const bests = weights.map((one) => greatestAt(rowOf(one, row)));
      const n = rowOf(weights[0], row).filter((weight) => weight > 0).length;
      const [heads, distinct] = [all.length, new Set(bests).size];
      const numbers = { token: label(weights[0].rows[row]), heads, distinct, chance: n * (1 - (1 - 1 / n) ** heads) };
      return { choices: upTo(Math.min(heads, n)).map((at) => at + 1), right: distinct - 1, numbers, drawings: weights.map((one, head) => ({ ...drawingOf(`softmax, h = ${head}`, one), share: true })), rows: weights[0].rows, row };
    },
  },
  concat: {
    async show(lesson) {
      const steps = await lesson.own();
      const { "self_attn.concat": concat, "self_attn.heads": output, "self_attn.values": values } = steps;
      const row = lesson.rowOf(concat);
      const [d_v, width] = [values.numbers.columns, concat.numbers.columns];
      const heads = width / d_v;
      const knobs = ["", ...upTo(heads)];
      const knob = output.weight ? lesson.knobOf(knobs, "") : "";
      const head = Number(knob); // the first where none is silenced
      const ofHead = (/** @type {number} */ column) => Math.floor(column / d_v) === head;
      const part = rowsOf(concat).map((one) => upTo(output.numbers.columns).map((to) => sum(one.map((value, column) => (ofHead(column) ? value * (output.weight?.values[column * output.numbers.columns + to] ?? Number.NaN) : 0)))));
      const joined = knob === "" ? rowsOf(concat) : rowsOf(concat).map((one) => one.map((value, column) => (ofHead(column) ? 0 : value)));
      const mixed = knob === "" ? rowsOf(output) : rowsOf(output).map((one, i) => minus(one, part[i]));
      const numbers = { heads, d_v, width, d_model: output.numbers.columns, head, change: lengthOf(part[row]) / lengthOf(rowOf(output, row)) };
      const knobbed = output.weight ? { knobs, knob } : {};
      return { ...numbersToChoose(width, d_v, heads + d_v), numbers, drawings: [redrawn("Concat", joined, concat), redrawn("Concat · Wᴼ", mixed, output)], rows: concat.rows, row, ...knobbed };
    },
  },
  residual: {
    fits: (figure) => own(figure).norm !== "parallel",
    async show(lesson) {
      const steps = await lesson.own();
      const total = steps["self_attn.add"];
      const [x, output] = total.operands.map((id) => steps[id]);
      const row = lesson.rowOf(total);
      const [knobs, knob] = [["", "off"], lesson.knobOf(["", "off"], "")];
      const result = knob === "off" ? output : total;
      const near = (/** @type {Step} */ of, /** @type {Step} */ to) => cosine(rowOf(of, row), rowOf(to, row));
      const numbers = { token: label(total.rows[row]), x: near(result, x), output: near(result, output), chance: 1 / Math.sqrt(total.numbers.columns) };
      return { right: near(total, x) > near(total, output) ? 0 : 1, numbers, drawings: [drawingOf("x", x), drawingOf("f(x)", output), drawingOf(knob === "off" ? "f(x)" : "x + f(x)", result)], rows: total.rows, row, knobs, knob };
    },
  },
  norm: {
    async show(lesson) {
      const steps = await lesson.own();
      const norm = steps["self_attn.norm"];
      const [x] = norm.operands.map((id) => steps[id]);
      const row = lesson.rowOf(norm);
      const values = rowOf(x, row);
      const mean = norm.settings.kind === "layer" ? sum(values) / values.length : 0;
      const variance = sum(values.map((value) => (value - mean) ** 2)) / values.length;
      const deviation = Math.sqrt(variance);
      const normed = Math.sqrt(variance / (variance + norm.settings.eps));
      const numbers = { token: label(norm.rows[row]), mean, deviation, normed };
      return { ...numbersToChoose(Math.round(normed), deviation, Math.sqrt(values.length)), numbers, drawings: [drawingOf("x", x), drawingOf("Norm(x)", norm)], rows: norm.rows, row };
    },
  },
  "feed-forward": {
    async show(lesson) {
      const steps = await lesson.own();
      const inside = steps["ffn.inside"];
      const up = steps[inside.operands[0]];
      const row = lesson.rowOf(inside);
      const [count, width] = [rowOf(inside, row).filter((value) => value > 0).length, inside.numbers.columns];
      const numbers = { token: label(inside.rows[row]), count, d_ff: width, chance: width / 2 };
      return { right: count < width / 2 ? 0 : 1, numbers, drawings: [drawingOf("x W₁ + b₁", up), drawingOf(`${inside.settings.function}(x W₁ + b₁)`, inside)], rows: inside.rows, row };
    },
  },
};
