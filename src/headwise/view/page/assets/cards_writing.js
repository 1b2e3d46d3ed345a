// @ts-check
// The other cards of the tour: the memory, the decoder, its output, training, and other models. See cards_attention.js.

import { candidates, greatestAt, matrixOf, numbersToChoose, rowsOf, scoresOf, softmaxOf, upTo } from "./arithmetic.js";
import { barsOf, bothStacks, redrawn } from "./cards_attention.js";
import { rowOf, sum } from "./cell.js";
import { label } from "./pieces.js";

/** @typedef {import("./cards_attention.js").CardMaker} CardMaker */

const PICTURE = 224; // pixels of a side: arXiv:2010.11929
const [SECONDS, FRAMES_PER_SECOND, FRAMES_JOINED] = [30, 100, 2]; // of Whisper: arXiv:2212.04356
const BETTER = 1e-6; // nats
const CURVE = 60; // points

/** @param {any} figure */
const writes = (figure) => figure.decoder?.output === "probabilities";
/** Equation 3. @param {number} step @param {number} warmup @param {number} width */
const learningRate = (step, warmup, width) => width ** -0.5 * Math.min(step ** -0.5, step * warmup ** -1.5);

/** What the decoder predicts at a row. @param {import("./tour.js").Lesson} lesson */
async function predicted(lesson) {
  const { logits, probabilities } = await lesson.decoder();
  const row = lesson.rowOf(probabilities);
  const values = rowOf(probabilities, row);
  const best = greatestAt(values);
  const numbers = { token: label(probabilities.rows[row]), best: label(probabilities.columns[best]), logit: rowOf(logits, row)[best], probability: values[best], size: probabilities.settings.size, chance: 1 / probabilities.settings.size };
  return { logits, probabilities, row, values, best, numbers };
}

/** @type {Record<string, CardMaker>} */
export const WRITING_CARDS = {
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
      const row = lesson.rowOf(scores);
      const [knobs, knob] = [["", "off"], lesson.knobOf(["", "off"], "")];
      const open = scoresOf(scores, steps, { masked: false });
      const chosen = knob === "off" ? open : rowsOf(scores);
      const weights = chosen.map(softmaxOf);
      const hidden = scores.numbers.values.filter((score) => score === Number.NEGATIVE_INFINITY).length;
      const recorded = rowOf(scores, row);
      const later = sum(softmaxOf(open[row]).filter((_, column) => recorded[column] === Number.NEGATIVE_INFINITY));
      const n = recorded.filter(Number.isFinite).length;
      const numbers = { token: label(scores.rows[row]), visible: n, hidden, pairs: scores.numbers.values.length, later };
      const drawings = [redrawn("Q Kᵀ / √dₖ", chosen, scores), redrawn("softmax", weights, scores, true)];
      return { ...numbersToChoose(n, recorded.length, recorded.length - n), numbers, drawings, bars: barsOf(scores, weights[row]), chance: 1 / (knob === "off" ? recorded.length : n), rows: scores.rows, row, knobs, knob };
    },
  },
  cross: {
    fits: bothStacks,
    async show(lesson) {
      const steps = await lesson.cross();
      const weights = steps["cross_attn.softmax"];
      const [q, k] = steps["cross_attn.scores"].operands.map((id) => steps[id]);
      const row = lesson.rowOf(weights);
      const values = rowOf(weights, row);
      const best = greatestAt(values);
      const { rows, columns } = weights.numbers;
      const numbers = { read: rows, tokens: columns, pairs: rows * columns, token: label(weights.rows[row]), best: label(weights.columns[best]), weight: values[best], chance: 1 / columns };
      const drawings = [{ title: "Q", numbers: q.numbers, rows: q.rows }, { title: "K", numbers: k.numbers, rows: k.rows }, { title: "softmax", numbers: weights.numbers, rows: weights.rows, columns: weights.columns, share: true }];
      return { ...numbersToChoose(rows * columns, rows * rows, columns * columns, rows + columns), numbers, drawings, bars: barsOf(weights, values), chance: 1 / columns, rows: weights.rows, row };
    },
  },
  logits: {
    fits: writes,
    async show(lesson) {
      const { logits, probabilities, row, values, numbers } = await predicted(lesson);
      const found = candidates(probabilities.columns, values);
      const places = found.choices.map((name, at) => ({ name, right: at === found.right })).sort((one, other) => (one.name < other.name ? -1 : 1));
      const right = places.findIndex((one) => one.right);
      const shown = values.map((value, at) => ({ value, at })).sort((one, other) => other.value - one.value).slice(0, 8);
      const drawings = [{ title: "logits", numbers: logits.numbers, rows: logits.rows, columns: logits.columns }];
      const rest = Math.max(0, 1 - sum(shown.map(({ value }) => value)));
      return { choices: places.map(({ name }) => name), right, numbers: { ...numbers, listed: shown.length, rest }, drawings, bars: shown.map(({ value, at }) => [label(probabilities.columns[at]), value]), chance: numbers.chance, rows: probabilities.rows, row };
    },
  },
  greedy: {
    fits: writes,
    async show(lesson) {
      const { probabilities } = await lesson.decoder();
      const all = rowsOf(probabilities).slice(0, -1);
      const bests = all.map(greatestAt);
      const agree = bests.filter((best, at) => probabilities.columns[best] === probabilities.rows[at + 1]).length;
      const least = Math.min(1, ...all.map((row, at) => row[bests[at]]));
      const table = { head: ["", "max"], rows: all.map((row, at) => /** @type {[string, ...number[]]} */ ([`${label(probabilities.rows[at])} → ${label(probabilities.columns[bests[at]])}`, row[bests[at]]])) };
      return { ...numbersToChoose(agree, all.length, 0, Math.floor(all.length / 2)), numbers: { steps: all.length, agree, least }, table };
    },
  },
  beam: {
    fits: (figure, host) => bothStacks(figure) && Boolean(host.search),
    async show(lesson) {
      const knobs = [1, 2, 4, 8];
      const knob = Number(lesson.knobOf(knobs, 4));
      const greedy = await lesson.search(1);
      const found = await lesson.search(knob);
      const numbers = { size: knob, greedy: greedy.text, one: greedy.logProb, found: found.text, several: found.logProb };
      return { right: found.logProb > greedy.logProb + BETTER ? 0 : 1, numbers, bars: [[greedy.text, Math.exp(greedy.logProb)], ...(found.text === greedy.text ? [] : [/** @type {[string, number]} */ ([found.text, Math.exp(found.logProb)])])], knobs, knob };
    },
  },
  temperature: {
    fits: writes,
    async show(lesson) {
      const { logits, row, numbers: about } = await predicted(lesson);
      const values = rowOf(logits, row);
      const best = greatestAt(values);
      const [low, one, high] = [0.5, 1, 2];
      const [knobs, knob] = [[low, one, high], Number(lesson.knobOf([low, one, high], one))];
      const at = (/** @type {number} */ heat) => softmaxOf(values.map((value) => value / heat));
      const [cold, plain, warm] = [low, one, high].map((heat) => at(heat)[best]);
      const now = at(knob);
      const numbers = { token: about.token, best: label(logits.columns[best]), low, one, high, cold, plain, warm, probability: about.probability, size: about.size, shown: values.length, chance: 1 / values.length };
      const order = upTo(values.length).sort((a, b) => values[b] - values[a]).slice(0, 8);
      return { right: Math.abs(cold - plain) < BETTER ? 2 : cold > plain ? 0 : 1, numbers, bars: order.map((i) => [label(logits.columns[i]), now[i]]), chance: 1 / values.length, rows: logits.rows, row, knobs, knob };
    },
  },
  loss: {
    fits: writes,
    async show(lesson) {
      const { probabilities, row, numbers: about } = await predicted(lesson);
      const [loss, guess] = [-Math.log(about.probability), Math.log(about.size)];
      const numbers = { ...about, loss, guess };
      return { ...numbersToChoose(loss, guess, 1 - about.probability, 1), numbers, bars: [["−log p", loss]], chance: guess, rows: probabilities.rows, row };
    },
  },
  "warm-up": {
    async show(lesson) {
      const { embeddings } = await lesson.own();
      const width = embeddings.numbers.columns;
      const [knobs, knob] = [[1000, 4000, 16000], Number(lesson.knobOf([1000, 4000, 16000], 4000))];
      const later = 4 * knob;
      const [peak, rate] = [learningRate(knob, knob, width), learningRate(later, knob, width)];
      const last = 4 * Math.max(...knobs);
      const curve = upTo(CURVE).map((at) => learningRate((last * (at + 1)) / CURVE, knob, width));
      return { ...numbersToChoose(rate / peak, 0.25, 1), numbers: { warmup: knob, later, peak, rate, last, d_model: width }, curve, knobs, knob };
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
      return { ...numbersToChoose(triangle, n * n, n), numbers: { tokens: n, pairs: n * n, triangle }, drawings };
    },
  },
  pictures: {
    async show(lesson) {
      const [knobs, patch] = [[8, 16, 32], Number(lesson.knobOf([8, 16, 32], 16))];
      const patches = (PICTURE / patch) ** 2;
      const numbers = { side: PICTURE, patch, patches, pairs: patches ** 2, seconds: SECONDS, frames: (SECONDS * FRAMES_PER_SECOND) / FRAMES_JOINED };
      return { ...numbersToChoose(patches, PICTURE / patch, PICTURE ** 2), numbers, knobs, knob: patch };
    },
  },
};
