// @ts-check
// A web worker, so that the page stays responsive: it receives a text and posts the translation as it is generated.

import { Engine } from "./engine.js";
import { oneLine, unitsOf } from "./sentences.js";
import { Tokenizer } from "./tokenizer.js";
import { recordedWalk } from "./walking.js";

const ALTERNATIVES = 5; // hypotheses shown of a sentence
const CONTEXT = 8; // tokens of a text that are decoded again before its continuation: models/language/output.py
const FEW_LETTERS = 24; // of a text that a language model begins with
const SHOWN_EVERY = 40; // milliseconds between two glimpses of what is being written

/** @type {{engine: Engine, tokenizer: Tokenizer, eos: number, longest: number} | null} */
let model = null;
/** @type {{text: string, unit: number, shown: number, read: (tokens: Iterable<number>) => string} | null} */
let glimpse = null;
/** @type {any[]} */
const questions = [];
const page = /** @type {any} */ (globalThis);

/** @param {string} text */
function bytesOfBase64(text) {
  const [step, bytes] = [2 ** 20, new Uint8Array((text.length / 4) * 3 - (text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0))];
  for (let i = 0; i < text.length; i += step) {
    const part = atob(text.slice(i, i + step));
    for (let j = 0, at = (i / 4) * 3; j < part.length; j++) bytes[at + j] = part.charCodeAt(j);
  }
  return bytes;
}

/** What `page.py` has packed: the length of a description, the description, and the parts it names. @param {string} base64 */
async function unpacked(base64) {
  const stream = new Blob([bytesOfBase64(base64)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const about = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const parts = Object.entries(about.parts).map(([name, [at, size]]) => [name, new Uint8Array(buffer, 4 + length + at, size)]);
  return { about, parts: Object.fromEntries(parts) };
}

/** @param {string} library @param {string} packed the model */
async function load(library, packed) {
  const [{ about, parts }, own] = [await unpacked(library), await unpacked(packed)];
  const engine = await Engine.start({ ...about, ...own.about }, { ...parts, ...own.parts }, written);
  const { tokenizer, lists, lengths, walk, targets, continues, sample, options } = own.about;
  model = { engine, tokenizer: new Tokenizer(tokenizer), eos: lists.ends[0], longest: lengths.longest_source };
  const example = own.about.example || (continues ? beginning(model) : "");
  page.postMessage({ kind: "ready", figure: walk?.figure ?? null, targets, continues, temperature: sample ? options.temperature : 0, example });
}

/** The first words of a text that a language model writes itself. @param {{engine: Engine, tokenizer: Tokenizer}} model */
function beginning({ engine, tokenizer }) {
  const [{ tokens }] = engine.search([engine.about.start], { temperature: 1, seed: 0 });
  const letters = Array.from(oneLine(tokenizer.decode(tokens)));
  return letters.slice(0, FEW_LETTERS).join("").replace(/\s+\S*$/, "");
}

/** @param {Int32Array} tokens */
function written(tokens) {
  if (!model || !glimpse || performance.now() - glimpse.shown < SHOWN_EVERY) return;
  const text = glimpse.read(tokens).replace(/\ufffd+$/, "");
  glimpse.shown = performance.now();
  if (text !== glimpse.text) page.postMessage({ kind: "writing", unit: glimpse.unit, text });
  glimpse.text = text;
}

/**
 * Translate, unit by unit; what is asked meanwhile is answered in between.
 * @param {string} text
 * @param {string} target token of the target language, in front of units that have none; "" for none
 */
async function translate(text, target) {
  if (!model) return;
  const { engine, tokenizer, eos, longest } = model;
  const given = (/** @type {string} */ part) => engine.about.targets.find((/** @type {string} */ token) => part.startsWith(token)) ?? "";
  const tagged = (/** @type {string} */ part) => (target && !given(part) ? `${target} ${part}` : part);
  const lines = unitsOf(text, (part) => tokenizer.encode(tagged(part)).length < longest);
  const units = lines.flatMap((parts, line) => parts.map((part) => ({ line, source: tagged(part), words: part.slice(given(part).length).trimStart() })));
  page.postMessage({ kind: "units", lines: lines.length, units });
  for (const [unit, { source }] of units.entries()) {
    glimpse = { text: "", unit, shown: 0, read: (tokens) => oneLine(tokenizer.decode(tokens)) };
    const [best] = engine.search([...tokenizer.encode(source), eos]);
    page.postMessage({ kind: "written", unit, text: oneLine(tokenizer.decode(best.tokens)), tokens: best.tokens, score: best.score });
    await new Promise((resume) => setTimeout(resume)); // for messages
    answer();
  }
  glimpse = null;
  page.postMessage({ kind: "done" });
}

/** What a decoder alone reads of a text. @param {string} text @returns {number[]} */
function promptOf(text) {
  if (!model) return [];
  const ids = model.tokenizer.encode(text);
  return ids.length ? ids : [model.engine.about.start];
}

/**
 * Continue a text, as `headwise generate` does.
 * @param {string} text
 * @param {number} temperature 0 for the most probable tokens
 * @param {number} seed
 */
async function extend(text, temperature, seed) {
  if (!model) return;
  const { engine, tokenizer, longest } = model;
  const prompt = promptOf(text);
  if (prompt.length > longest) return page.postMessage({ kind: "failed", why: "long-text", values: { count: prompt.length, most: longest } });
  page.postMessage({ kind: "units", lines: 1, units: [{ line: 0, source: text, words: text }] });
  const context = prompt.slice(-CONTEXT);
  const known = tokenizer.decode(context).length;
  const read = (/** @type {Iterable<number>} */ tokens) => tokenizer.decode([...context, ...tokens]).slice(known);
  glimpse = { text: "", unit: 0, shown: 0, read };
  const [best] = engine.search(prompt, temperature ? { temperature, seed } : {});
  page.postMessage({ kind: "written", unit: 0, text: read(best.tokens), tokens: best.tokens, score: best.score });
  answer();
  page.postMessage({ kind: "done" });
}

/** Answer what was asked of units. */
function answer() {
  glimpse = null;
  for (const question of questions.splice(0)) ANSWERS[/** @type {"walk"} */ (question.kind)](question);
}

/** Alternatives and attention. @param {{unit: number, source: string, tokens: number[]}} question */
function explain({ unit, source, tokens }) {
  if (!model) return;
  const { engine, tokenizer, eos } = model;
  if (engine.about.continues) return page.postMessage({ kind: "explained", unit });
  const ids = [...tokenizer.encode(source), eos];
  const beam = Math.max(engine.about.options.beam_size, ALTERNATIVES);
  const found = engine.search(ids, { beam_size: beam, pool: ALTERNATIVES });
  const alternatives = found.map(({ tokens, logProb }) => ({ text: oneLine(tokenizer.decode(tokens)), logProb }));
  const aligned = engine.align(ids, tokens, (id) => tokenizer.spells(id));
  page.postMessage({ kind: "explained", unit, alternatives, ...aligned, read: tokenizer.readable(ids), wrote: tokenizer.readable([...tokens, eos]) });
}

/** The steps of one layer and head. @param {{number: number, source: string, tokens: number[], where: import("./walking.js").Where}} question */
function walk({ number, source, tokens, where }) {
  if (!model) return;
  const { engine, tokenizer, eos } = model;
  const alone = engine.about.continues;
  try {
    const [first, read] = alone ? [[], promptOf(source)] : [[...tokenizer.encode(source), eos], [engine.about.options.bos_id, ...tokens]];
    const walked = recordedWalk(engine, first, read, where, (ids) => tokenizer.readable(ids));
    page.postMessage({ kind: "walked", number, walk: walked }, [walked.numbers.buffer]);
  } catch (error) {
    page.postMessage({ kind: "walked", number, error: error instanceof Error ? error.message : String(error) });
  }
}

/** The best output with another beam size. @param {{number: number, source: string, beam: number}} question */
function search({ number, source, beam }) {
  if (!model) return;
  const { engine, tokenizer, eos } = model;
  const [best] = engine.search([...tokenizer.encode(source), eos], { beam_size: beam, pool: 1 });
  page.postMessage({ kind: "searched", number, text: oneLine(tokenizer.decode(best.tokens)), logProb: best.logProb });
}

const ANSWERS = { explain, walk, search };

/** @type {Record<string, (message: any) => Promise<void> | void>} */
const TOLD = {
  load: ({ library, model }) => load(library, model),
  extend: ({ text, temperature, seed }) => extend(text, temperature, seed),
  translate: ({ text, target }) => translate(text, target ?? ""),
  explain: ask,
  walk: ask,
  search: ask,
};

/** @param {any} question */
function ask(question) {
  questions.push(question);
  if (!glimpse) answer();
}

page.onmessage = async (/** @type {MessageEvent} */ { data }) => {
  try {
    await TOLD[data.kind](data);
  } catch (error) {
    page.postMessage({ kind: "failed", why: error instanceof Error ? error.message : String(error) });
  }
};
