// @ts-check
// The first cards of the tour: from a text to the output of a layer, each computed from the recorded steps. Numbers have
// the names of the placeholders in tour.*.json. "own" is the first stack: the encoder, or else the decoder.

import { allGreatest, candidates, cosine, differentPlaces, dot, evenWeights, greatestAt, halfwayRows, lengthOf, matrixOf, minus, numbersToChoose, plus, rowsOf, scoresOf, softmaxOf, upTo, weightedSums } from "./arithmetic.js";
import { mayAttend, rowOf, sum } from "./cell.js";
import { allNumbered, kind, label, numbered, readable } from "./pieces.js";

/** @typedef {import("./steps.js").Step} Step */
/** @typedef {import("./tour_parts.js").Drawing} Drawing */
/** @typedef {{fits?: (figure: any, host: import("./tour.js").TourHost) => boolean, show: (lesson: import("./tour.js").Lesson) => Promise<import("./tour_parts.js").Card>}} CardMaker */

const ONE = 1;
/** @param {any} figure */
const own = (figure) => figure[Object.keys(figure)[0]];
/** @param {any} figure */
export const bothStacks = (figure) => "encoder" in figure && "decoder" in figure;
/** @param {string} title @param {Step} step @returns {Drawing} */
export const drawingOf = (title, step) => ({ title, numbers: step.numbers, rows: step.rows, columns: step.columns });
/** @param {string} title @param {number[][]} rows @param {Step} like @param {boolean} [share] @returns {Drawing} */
export const redrawn = (title, rows, like, share = false) => ({ title, numbers: matrixOf(rows), rows: like.rows, columns: like.columns, share });
/** @param {Step} step @param {number[]} values @returns {[string, number][]} */
export const barsOf = (step, values) => allNumbered(step.columns).map((name, i) => [name, values[i]]);
/** @param {Step} step @param {number} row */
export const tokenOf = (step, row) => numbered(step.rows, row);
/** The row that a card about one head begins with, or the chosen one. @param {import("./tour.js").Lesson} lesson @param {Record<string, Step>} steps */
const rowOfHead = (lesson, { "self_attn.scores": scores, "self_attn.softmax": weights }) => lesson.attendingRow(scores, weights, halfwayRows(weights, scores));
/** What a token sees in this model: "all" tokens, or those "before" it. @param {import("./tour.js").Lesson} lesson */
const sees = ({ host }) => (own(host.figure).causal ? "before" : "all");
const [BYTE, LANGUAGE, END] = [/^<0x..>$/, /^<2.+>$/, /^(<\/s>|<.*(end|eos).*>|\[SEP\])$/]; // special tokens, and bytes, which are none
const PRODUCT = "Q Kᵀ";
const SCALED = "Q Kᵀ / √dₖ";

/** @type {Record<string, CardMaker>} */
export const ATTENTION_CARDS = {
  recurrence: {
    async show(lesson) {
      const { embeddings } = await lesson.own();
      const setting = lesson.setting([1, 2, 4], 1);
      const length = embeddings.rows.length;
      const n = length * Number(setting.knob);
      const numbers = { first: tokenOf(embeddings, 0), last: tokenOf(embeddings, length - 1), length, tokens: n, recurrent: n - 1, path: ONE, pairs: n * n, kept: (n * (n + 1)) / 2 };
      return { exact: true, ...numbersToChoose(length - 1, ONE, length * length), numbers, notes: [sees(lesson)], given: { tokens: allNumbered(embeddings.rows) }, ...setting };
    },
  },
  alignment: {
    fits: bothStacks,
    async show(lesson) {
      const steps = await lesson.cross();
      const { "cross_attn.softmax": weights, "cross_attn.scores": scores } = steps;
      const row = lesson.attendingRow(scores, weights);
      const [values, keys] = [rowOf(weights, row), mayAttend(scores, row)];
      const { best, ...choices } = candidates(weights.columns, values, keys);
      const chance = 1 / keys.length;
      const numbers = { token: tokenOf(weights, row), best: numbered(weights.columns, best), weight: values[best], tokens: keys.length, chance };
      return { ...choices, numbers, drawings: [{ ...drawingOf("softmax", weights), share: true }], bars: barsOf(weights, values), chance, rows: weights.rows, row };
    },
  },
  tokens: {
    async show(lesson) {
      const { embeddings } = await lesson.own();
      const special = embeddings.rows.filter((piece) => kind(piece) === "mark" && !BYTE.test(piece));
      const typed = special.reduce((text, piece) => text.replace(piece, ""), lesson.host.text()).trim(); // a page writes the target language in front
      const [tokens, words, characters] = [embeddings.rows.length, typed.split(/\s+/).filter(Boolean).length, [...typed].length];
      const found = { special: special.length, language: special.some((piece) => LANGUAGE.test(piece)), end: END.test(embeddings.rows[tokens - 1]), blank: embeddings.rows.some((piece) => label(piece) === "␣") };
      const notes = Object.entries(found).flatMap(([note, here]) => (here ? [note] : []));
      return { exact: true, ...numbersToChoose(tokens, words, characters), numbers: { tokens, words, characters, special: special.length, marks: special.join(" ") }, notes, given: { tokens: [typed] }, table: { head: allNumbered(embeddings.rows), rows: [["", ...upTo(tokens)]] } };
    },
  },
  embeddings: {
    async show(lesson) {
      const { embeddings } = await lesson.own();
      const row = lesson.rowOf(embeddings);
      const { columns } = embeddings.numbers;
      const numbers = { token: tokenOf(embeddings, row), tokens: embeddings.rows.length, d_model: columns, scale: embeddings.settings.scale, value: rowOf(embeddings, row)[0] };
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
      const setting = lesson.setting(["", "off"], "");
      const [e, p] = [rowsOf(embeddings), rowsOf(codes)];
      const product = (/** @type {number} */ at, /** @type {number} */ beside) => dot(plus(e[row], p[at]), plus(e[other], p[beside]));
      const bare = dot(e[row], e[other]);
      const [here, swapped] = [product(row, other), product(other, row)];
      const numbers = { token: tokenOf(embeddings, row), other: tokenOf(embeddings, other), here, swapped, bare };
      const summed = setting.knob === "off" ? redrawn("E", e, embeddings) : redrawn("E + PE", e.map((one, i) => plus(one, p[i])), embeddings);
      const given = { drawings: [drawingOf("E", embeddings), drawingOf("PE", codes)] };
      return { right: [Math.abs(here - swapped) > 1e-6 ? 0 : 1], numbers, notes: [sees(lesson)], given, drawings: [summed], rows: embeddings.rows, row, ...setting };
    },
  },
  "by-hand": {
    async show(lesson) {
      const steps = await lesson.own();
      const scores = steps["self_attn.scores"];
      const [q, k] = scores.operands.map((id) => steps[id]);
      const v = steps["self_attn.values"];
      const all = upTo(q.rows.length);
      const words = all.filter((at) => readable(q.rows[at]));
      const three = (words.length < 3 ? all : words).slice(0, 3);
      const keysOf = (/** @type {number} */ at) => three.filter((key) => mayAttend(scores, at).includes(key));
      const row = Math.min(lesson.row ?? greatestAt(three.map((at) => keysOf(at).length)), three.length - 1); // of the three
      const keys = keysOf(three[row]).map((key) => three.indexOf(key));
      const two = (/** @type {Step} */ step, /** @type {number} */ at) => rowOf(step, at).slice(0, 2);
      const products = three.map((at) => dot(two(q, three[row]), two(k, at)));
      const weights = softmaxOf(products.map((product, at) => (keys.includes(at) ? product / Math.sqrt(2) : Number.NEGATIVE_INFINITY)));
      const result = upTo(2).map((column) => sum(weights.map((weight, at) => weight * two(v, three[at])[column])));
      const names = three.map((at) => tokenOf(q, at));
      const { best, ...choices } = candidates(names, products, keys, names);
      const lines = (/** @type {(at: number) => number[]} */ line) => names.map((name, at) => /** @type {[string, ...number[]]} */ ([name, ...line(at)]));
      const [q0, q1] = two(q, three[row]);
      const given = { table: { head: ["", ""], rows: [/** @type {[string, ...number[]]} */ ([`Q ${names[row]}`, q0, q1]), ...three.map((at, place) => /** @type {[string, ...number[]]} */ ([`K ${names[place]}`, ...two(k, at)]))] } };
      const table = { head: ["q·k", "softmax", "V", ""], rows: lines((at) => [products[at], weights[at], ...two(v, three[at])]) };
      const numbers = { token: names[row], best: names[best], q0, q1, tokens: three.length, two: 2, d_k: q.numbers.columns, product: products[best], weight: weights[best], o0: result[0], o1: result[1] };
      return { ...choices, numbers, given, table, rows: names, row };
    },
  },
  scores: {
    async show(lesson) {
      const steps = await lesson.own();
      const scores = steps["self_attn.scores"];
      const [q, k] = scores.operands.map((id) => steps[id]);
      const row = rowOfHead(lesson, steps);
      const products = rowsOf(k).map((key) => dot(rowOf(q, row), key));
      const keys = mayAttend(scores, row);
      const unscaled = rowsOf(q).map((query, at) => rowsOf(k).map((key, column) => (mayAttend(scores, at).includes(column) ? dot(query, key) : Number.NEGATIVE_INFINITY)));
      const { best, ...choices } = candidates(scores.columns, products, keys);
      const numbers = { token: tokenOf(scores, row), best: numbered(scores.columns, best), d_k: q.numbers.columns, product: products[best], tokens: keys.length, mean: sum(keys.map((key) => products[key])) / keys.length };
      return { ...choices, numbers, given: { tokens: allNumbered(scores.columns), drawings: [drawingOf("Q", q), drawingOf("K", k)] }, drawings: [redrawn(PRODUCT, unscaled, scores)], rows: scores.rows, row };
    },
  },
  scale: {
    fits: (figure) => own(figure).positions !== "relative",
    async show(lesson) {
      const steps = await lesson.own();
      const scores = steps["self_attn.scores"];
      const row = rowOfHead(lesson, steps);
      const setting = lesson.setting(["", "off"], "");
      const off = setting.knob === "off";
      const [with_, without] = [scoresOf(scores, steps), scoresOf(scores, steps, { scale: 1 })];
      const chosen = off ? without : with_;
      const weights = chosen.map(softmaxOf);
      const [scaled, unscaled] = [Math.max(...softmaxOf(with_[row])), Math.max(...softmaxOf(without[row]))];
      const chance = 1 / mayAttend(scores, row).length;
      const right = [Math.abs(scaled - unscaled) < 1e-6 ? 2 : unscaled > scaled ? 0 : 1];
      const numbers = { token: tokenOf(scores, row), best: numbered(scores.columns, greatestAt(with_[row])), root: 1 / scores.settings.scale, scaled, unscaled, chance };
      return { right, numbers, drawings: [redrawn(off ? PRODUCT : SCALED, chosen, scores), redrawn("softmax", weights, scores, true)], bars: barsOf(scores, weights[row]), chance, rows: scores.rows, row, ...setting };
    },
  },
  softmax: {
    async show(lesson) {
      const steps = await lesson.own();
      const { "self_attn.scores": scores, "self_attn.softmax": weights } = steps;
      const row = rowOfHead(lesson, steps);
      const [from, to] = [rowOf(scores, row), rowOf(weights, row)];
      const best = greatestAt(from);
      const [total, whole, n] = [sum(from.map((score) => Math.exp(score - from[best]))), sum(to), mayAttend(scores, row).length];
      const numbers = { token: tokenOf(scores, row), best: numbered(scores.columns, best), score: from[best], total, weight: to[best], whole, one: ONE, chance: 1 / n };
      return { ...numbersToChoose(Math.round(whole), n, from[best]), numbers, drawings: [drawingOf(SCALED, scores), { ...drawingOf("softmax", weights), share: true }], bars: barsOf(weights, to), chance: 1 / n, rows: scores.rows, row };
    },
  },
  "weighted-sum": {
    async show(lesson) {
      const steps = await lesson.own();
      const { "self_attn.scores": scores, "self_attn.softmax": weights, "self_attn.values": values } = steps;
      const row = rowOfHead(lesson, steps);
      const setting = lesson.setting(["", "even"], "");
      const recorded = rowsOf(weights);
      const even = upTo(recorded.length).map((at) => evenWeights(scores, at));
      const [model, mean] = [weightedSums(recorded, values), weightedSums(even, values)];
      const best = greatestAt(recorded[row]);
      const [distance, away] = [rowsOf(values)[best], mean[row]].map((one) => lengthOf(minus(one, model[row])));
      const numbers = { token: tokenOf(weights, row), best: numbered(values.rows, best), weight: recorded[row][best], result: model[row][0], mean: mean[row][0], distance, even: away };
      const given = { drawings: [{ ...drawingOf("A", weights), share: true }, drawingOf("V", values)] };
      const result = redrawn("A V", setting.knob === "even" ? mean : model, steps["self_attn.weighted-sum"]);
      return { right: allGreatest([-distance, -away]), numbers, given, drawings: setting.knob === "even" ? [redrawn("A", even, weights, true), result] : [result], rows: weights.rows, row, ...setting };
    },
  },
  heads: {
    fits: (figure) => own(figure).heads[0] > 1,
    async show(lesson) {
      const all = await lesson.heads();
      const weights = all.map((steps) => steps["self_attn.softmax"]);
      const row = rowOfHead(lesson, all[0]);
      const names = allNumbered(weights[0].columns);
      const ofHeads = weights.map((one) => rowOf(one, row));
      const bests = ofHeads.map(greatestAt);
      const [fewest, most] = differentPlaces(ofHeads.map(allGreatest)); // not the same if two weights are equal
      const n = mayAttend(all[0]["self_attn.scores"], row).length;
      const [heads, distinct] = [all.length, new Set(bests).size];
      const counts = upTo(Math.min(heads, n)).map((at) => at + 1);
      const numbers = { token: tokenOf(weights[0], row), heads, distinct, chance: n * (1 - (1 - 1 / n) ** heads) };
      const given = { tokens: names, drawings: [{ title: `softmax, ${names[row]}`, numbers: matrixOf(ofHeads), rows: ofHeads.map((_, head) => `h = ${head}`), columns: weights[0].columns, share: true, ofRow: true }] };
      const drawings = weights.map((one, head) => ({ ...drawingOf(`softmax, h = ${head}`, one), share: true }));
      const table = { head: ["softmax"], rows: bests.map((best, head) => /** @type {[string, ...number[]]} */ ([`h = ${head}: ${names[best]}`, ofHeads[head][best]])) };
      return { choices: counts, right: upTo(counts.length).filter((at) => counts[at] === distinct || (counts[at] >= fewest && counts[at] <= most)), numbers, given, drawings, table, rows: weights[0].rows, row };
    },
  },
  concat: {
    async show(lesson) {
      const steps = await lesson.own();
      const { "self_attn.concat": concat, "self_attn.heads": output, "self_attn.values": values } = steps;
      const row = lesson.rowOf(concat);
      const [d_v, width] = [values.numbers.columns, concat.numbers.columns];
      const heads = width / d_v;
      const setting = lesson.setting(output.weight ? ["", ...upTo(heads)] : [""], "");
      const { knob } = setting;
      const head = Number(knob); // the first where none is silenced
      const ofHead = (/** @type {number} */ column) => Math.floor(column / d_v) === head;
      const part = rowsOf(concat).map((one) => upTo(output.numbers.columns).map((to) => sum(one.map((value, column) => (ofHead(column) ? value * (output.weight?.values[column * output.numbers.columns + to] ?? Number.NaN) : 0)))));
      const joined = knob === "" ? rowsOf(concat) : rowsOf(concat).map((one) => one.map((value, column) => (ofHead(column) ? 0 : value)));
      const mixed = knob === "" ? rowsOf(output) : rowsOf(output).map((one, i) => minus(one, part[i]));
      const numbers = { heads, d_v, width, d_model: output.numbers.columns, head, change: lengthOf(part[row]) / lengthOf(rowOf(output, row)) };
      const knobbed = output.weight ? setting : { variant: "unweighted" }; // of a large model
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
      const setting = lesson.setting(["", "off"], "");
      const near = (/** @type {Step} */ of, /** @type {Step} */ to) => cosine(rowOf(of, row), rowOf(to, row));
      const [toInput, toOutput] = [near(total, x), near(total, output)];
      const numbers = { token: tokenOf(total, row), x: toInput, output: toOutput, bare: near(output, x), chance: lengthOf(rowOf(x, row)) / Math.hypot(lengthOf(rowOf(x, row)), lengthOf(rowOf(output, row))) };
      const result = setting.knob === "off" ? drawingOf("f(x)", output) : drawingOf("x + f(x)", total);
      return { right: allGreatest([toInput, toOutput]), numbers, given: { drawings: [drawingOf("x", x), drawingOf("f(x)", output)] }, drawings: [result], rows: total.rows, row, ...setting };
    },
  },
  norm: {
    async show(lesson) {
      const steps = await lesson.own();
      const norm = steps["self_attn.norm"];
      const [x] = norm.operands.map((id) => steps[id]);
      const row = lesson.rowOf(norm);
      const values = rowOf(x, row);
      const layer = norm.settings.kind === "layer";
      const mean = layer ? sum(values) / values.length : 0;
      const variance = sum(values.map((value) => (value - mean) ** 2)) / values.length;
      const deviation = Math.sqrt(variance);
      const normed = Math.sqrt(variance / (variance + norm.settings.eps));
      const numbers = { token: tokenOf(norm, row), mean, deviation, normed };
      return { ...numbersToChoose(Math.round(normed), deviation, Math.sqrt(values.length)), numbers, variant: layer ? undefined : "rms", drawings: [drawingOf("x", x), drawingOf("Norm(x)", norm)], rows: norm.rows, row };
    },
  },
};
