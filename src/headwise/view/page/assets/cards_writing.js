// @ts-check
// The other cards of the tour: the feed-forward network, the memory, the decoder, its output, training, and other models. See cards_attention.js.

import { candidates, greatestAt, matrixOf, numbersToChoose, rowsOf, scoresOf, softmaxOf, upTo } from "./arithmetic.js";
import { barsOf, bothStacks, drawingOf, redrawn, tokenOf } from "./cards_attention.js";
import { mayAttend, rowOf, sum } from "./cell.js";
import { allNumbered, beginning, label, numbered } from "./pieces.js";

/** @typedef {import("./cards_attention.js").CardMaker} CardMaker */

const [PICTURE, CLASS_TOKEN] = [224, 1]; // pixels of a side, and the token in front of the squares: arXiv:2010.11929
const [SECONDS, FRAMES_PER_SECOND, FRAMES_JOINED] = [30, 100, 2]; // of Whisper: arXiv:2212.04356
const BETTER = 1e-6; // nats
const CURVE = 60; // points behind the peak
const PAPER = 4000; // steps of warm-up

/** @param {any} figure */
const writes = (figure) => figure.decoder?.output === "probabilities";
/** Equation 3. @param {number} step @param {number} warmup @param {number} width */
const learningRate = (step, warmup, width) => width ** -0.5 * Math.min(step ** -0.5, step * warmup ** -1.5);

/** Names of tokens that stand without their neighbours, each a different one. @param {string[]} pieces */
function namesApart(pieces) {
  const labels = pieces.map(label);
  const apart = pieces.map((piece, at) => (labels.indexOf(labels[at]) === labels.lastIndexOf(labels[at]) ? labels[at] : beginning(piece) + labels[at]));
  return allNumbered(apart, (name) => name);
}

/** What the decoder predicts at a row: the most probable tokens. @param {import("./tour.js").Lesson} lesson */
async function predicted(lesson) {
  const { logits, probabilities } = await lesson.decoder();
  const row = lesson.rowOf(probabilities);
  const { size, temperatures } = probabilities.settings;
  const { candidates: likeliest, totals } = /** @type {any[]} */ (probabilities.predictions)[row];
  const names = namesApart(likeliest.map((/** @type {[string, number]} */ [piece]) => piece));
  const shares = (/** @type {number} */ heat) => likeliest.map((/** @type {[string, number]} */ [, log]) => Math.exp(log / heat - (totals[temperatures.indexOf(heat)] ?? 0)));
  const logit = likeliest[0][1] + (probabilities.bias?.values[row] ?? Number.NaN); // without the logarithm of softmax
  const numbers = { token: numbered(probabilities.rows, row), best: names[0], logit, probability: shares(1)[0], size, chance: 1 / size };
  return { logits, rows: probabilities.rows, row, names, shares, temperatures, numbers };
}

/** @param {string[]} names @param {number[]} values @returns {[string, number][]} */
const barsNamed = (names, values) => names.map((name, at) => [name, values[at]]);
/** What is left of a whole. @param {number[]} shares */
const restOf = (shares) => Math.max(0, 1 - sum(shares));

/** @type {Record<string, CardMaker>} */
export const WRITING_CARDS = {
  "feed-forward": {
    async show(lesson) {
      const steps = await lesson.own();
      const inside = steps["ffn.inside"];
      const operands = inside.operands.map((id) => steps[id]);
      const row = lesson.rowOf(inside);
      const name = inside.settings.function;
      const [count, width] = [rowOf(inside, row).filter((value) => value > 0).length, inside.numbers.columns];
      const numbers = { token: tokenOf(inside, row), count, d_ff: width, function: name, chance: width / 2 };
      const titles = operands.length > 1 ? ["x W𝗀", "x W₁"] : [operands[0].bias ? "x W₁ + b₁" : "x W₁"];
      const result = operands.length > 1 ? `${name}(x W𝗀) ⊙ x W₁` : `${name}(${titles[0]})`;
      return { right: [count < width / 2 ? 0 : 1], numbers, given: { drawings: operands.map((one, at) => drawingOf(titles[at], one)) }, drawings: [drawingOf(result, inside)], rows: inside.rows, row };
    },
  },
  memory: {
    fits: bothStacks,
    async show(lesson) {
      const { memory } = await lesson.cross();
      const [tokens, d_model] = [memory.numbers.rows, memory.numbers.columns];
      return { ...numbersToChoose(tokens, 1, d_model), numbers: { tokens, d_model, recurrent: 1 }, drawings: [{ title: "memory", numbers: memory.numbers, rows: memory.rows }] };
    },
  },
  mask: {
    fits: (figure) => Boolean(figure.decoder?.causal),
    async show(lesson) {
      const steps = await lesson.decoder();
      const scores = steps["self_attn.scores"];
      const row = lesson.attendingRow(scores);
      const setting = lesson.setting(["", "off"], "");
      const open = scoresOf(scores, steps, { masked: false });
      const chosen = setting.knob === "off" ? open : rowsOf(scores);
      const weights = chosen.map(softmaxOf);
      const pairs = scores.numbers.values.length;
      const hidden = pairs - sum(upTo(scores.rows.length).map((at) => mayAttend(scores, at).length));
      const [keys, all] = [mayAttend(scores, row), scores.columns.length];
      const later = sum(softmaxOf(open[row]).filter((_, column) => !keys.includes(column)));
      const n = keys.length;
      const numbers = { token: numbered(scores.rows, row), visible: n, read: all, hidden, pairs, later };
      const drawings = [redrawn("Q Kᵀ / √dₖ", chosen, scores), redrawn("softmax", weights, scores, true)];
      return { ...numbersToChoose(n, all, all - n), numbers, drawings, bars: barsOf(scores, weights[row]), chance: 1 / (setting.knob === "off" ? all : n), rows: scores.rows, row, ...setting };
    },
  },
  cross: {
    fits: bothStacks,
    async show(lesson) {
      const steps = await lesson.cross();
      const { "cross_attn.softmax": weights, "cross_attn.scores": scores } = steps;
      const [q, k] = scores.operands.map((id) => steps[id]);
      const row = lesson.attendingRow(scores, weights);
      const [values, chance] = [rowOf(weights, row), 1 / mayAttend(scores, row).length];
      const best = greatestAt(values);
      const { rows, columns } = weights.numbers;
      const numbers = { read: rows, tokens: columns, pairs: rows * columns, token: numbered(weights.rows, row), best: numbered(weights.columns, best), weight: values[best], chance };
      const drawings = [{ title: "Q", numbers: q.numbers, rows: q.rows }, { title: "K", numbers: k.numbers, rows: k.rows }, { title: "softmax", numbers: weights.numbers, rows: weights.rows, columns: weights.columns, share: true }];
      return { ...numbersToChoose(rows * columns, rows * rows, columns * columns, rows + columns, 2 * rows * columns, 3 * rows * columns), numbers, drawings, bars: barsOf(weights, values), chance, rows: weights.rows, row };
    },
  },
  logits: {
    fits: writes,
    async show(lesson) {
      const { logits, rows, row, names, shares, numbers } = await predicted(lesson);
      const values = shares(1);
      const order = upTo(Math.min(3, names.length)).sort((one, other) => (names[one] < names[other] ? -1 : 1)); // not the most probable one first
      const asked = order.map((at) => names[at]);
      const { choices, right } = candidates(asked, order.map((at) => values[at]), upTo(order.length), asked);
      const drawings = [{ title: "logits", numbers: logits.numbers, rows: logits.rows, columns: logits.columns }];
      return { choices, right, numbers: { ...numbers, listed: values.length, rest: restOf(values) }, drawings, bars: barsNamed(names, values), chance: numbers.chance, rows, row };
    },
  },
  greedy: {
    fits: writes,
    async show(lesson) {
      const { probabilities } = await lesson.decoder();
      const names = allNumbered(probabilities.rows);
      const bests = /** @type {any[]} */ (probabilities.predictions).slice(0, -1).map(({ candidates: [[piece, log]] }) => ({ piece, most: Math.exp(log) }));
      const agree = bests.filter(({ piece }, at) => piece === probabilities.rows[at + 1]).length;
      const least = Math.min(1, ...bests.map(({ most }) => most));
      /** @type {[string, string, string, number][]} */
      const lines = bests.map(({ piece, most }, at) => [names[at], names[at + 1], label(piece), most]);
      const given = { table: { head: ["follows", "probability"], rows: lines.map(([token, follower, , most]) => /** @type {[string, string, number]} */ ([token, follower, most])) } };
      const table = { head: ["follows", "favourite", "probability"], rows: lines };
      const choices = bests.length ? numbersToChoose(agree, bests.length, 0, Math.floor(bests.length / 2)) : { choices: [], right: [] };
      return { ...choices, numbers: { steps: bests.length, agree, least }, given, table };
    },
  },
  beam: {
    fits: (figure, host) => bothStacks(figure) && Boolean(host.search),
    async show(lesson) {
      const setting = lesson.setting([1, 2, 4, 8], 4);
      const [size, beam] = [Number(setting.usual), Number(setting.knob)];
      const greedy = await lesson.search(1);
      const asked = await lesson.search(size);
      const found = await lesson.search(beam);
      const numbers = { size, beam, greedy: greedy.text, one: greedy.logProb, found: found.text, several: found.logProb };
      return { right: [asked.logProb > greedy.logProb + BETTER ? 0 : 1], numbers, bars: [[greedy.text, Math.exp(greedy.logProb)], ...(found.text === greedy.text ? [] : [/** @type {[string, number]} */ ([found.text, Math.exp(found.logProb)])])], ...setting };
    },
  },
  temperature: {
    fits: writes,
    async show(lesson) {
      const { rows, row, names, shares, temperatures, numbers: about } = await predicted(lesson);
      const [low, one, high] = [temperatures[0], 1, temperatures[1]];
      const setting = lesson.setting([low, one, high], one);
      const [cold, plain, warm] = [low, one, high].map((heat) => shares(heat)[0]);
      const now = shares(Number(setting.knob));
      const numbers = { token: about.token, best: about.best, low, one, high, cold, plain, warm, size: about.size, temperature: Number(setting.knob), listed: now.length, rest: restOf(now), chance: about.chance };
      return { right: [Math.abs(cold - plain) < BETTER ? 2 : cold > plain ? 0 : 1], numbers, bars: barsNamed(names, now), chance: about.chance, rows, row, ...setting };
    },
  },
  loss: {
    fits: writes,
    async show(lesson) {
      const { rows, row, numbers: about } = await predicted(lesson);
      const [loss, guess] = [-Math.log(about.probability), Math.log(about.size)];
      const numbers = { ...about, loss, guess };
      return { ...numbersToChoose(loss, guess, 1 - about.probability, 1), numbers, bars: [["−log p", loss]], chance: guess, rows, row };
    },
  },
  "warm-up": {
    async show(lesson) {
      const { embeddings } = await lesson.own();
      const width = embeddings.numbers.columns;
      const knobs = [1000, PAPER, 16000];
      const setting = lesson.setting(knobs, PAPER);
      const warmup = Number(setting.knob);
      const [later, last] = [4 * PAPER, 4 * Math.max(...knobs)];
      const share = learningRate(later, PAPER, width) / learningRate(PAPER, PAPER, width);
      const rate = (/** @type {number} */ step) => learningRate(step, warmup, width);
      const behind = upTo(CURVE + 1).map((at) => warmup + (last - warmup) * (at / CURVE) ** 2); // closer where it falls faster
      const points = behind.map((step) => /** @type {[number, number]} */ ([step, rate(step)]));
      const curve = { points: [/** @type {[number, number]} */ ([0, 0]), ...points], marks: [points[0], points[CURVE]] };
      return { exact: true, ...numbersToChoose(share, 0.25, 1), numbers: { paper: PAPER, later, share, warmup, peak: rate(warmup), last, rate: rate(last), d_model: width }, curve, ...setting };
    },
  },
  families: {
    async show(lesson) {
      const { embeddings } = await lesson.own();
      const names = embeddings.rows;
      const n = names.length;
      const shape = (/** @type {string} */ title, /** @type {string[]} */ over, /** @type {(row: number, column: number) => boolean} */ sees) => ({ title, numbers: matrixOf(over.map((_, row) => over.map((_, column) => Number(sees(row, column))))), rows: over, columns: over, share: true });
      const triangle = (n * (n + 1)) / 2;
      const drawings = [shape("BERT", names, () => true), shape("GPT", names, (row, column) => column <= row), shape("T5", [...names, ...names], (row, column) => column < n || (row >= n && column <= row))];
      return { exact: true, ...numbersToChoose(triangle, n * n, n), numbers: { tokens: n, pairs: n * n, triangle }, drawings };
    },
  },
  pictures: {
    async show(lesson) {
      const setting = lesson.setting([8, 16, 32], 16);
      const [patch, cut] = [Number(setting.usual), Number(setting.knob)];
      const patches = (PICTURE / cut) ** 2;
      const numbers = { side: PICTURE, patch, cut, patches, read: patches + CLASS_TOKEN, pairs: (patches + CLASS_TOKEN) ** 2, seconds: SECONDS, frames: (SECONDS * FRAMES_PER_SECOND) / FRAMES_JOINED };
      return { exact: true, ...numbersToChoose((PICTURE / patch) ** 2 + CLASS_TOKEN, PICTURE / patch, PICTURE ** 2), numbers, ...setting };
    },
  },
};
