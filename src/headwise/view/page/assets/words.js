// @ts-check
// Words in place of tokens: what spells a word, and the weights between words.

import { kind } from "./pieces.js";

/** @typedef {import("./inspection.js").Inspection} Inspection */
/** @typedef {import("./inspection.js").Span} Span */
/** @typedef {"q" | "k"} Side queries or keys */

/** The words along one side of the weights. @param {Inspection} inspection @param {string} part @param {Side} side @returns {Span[]} */
function wordsAlong(inspection, part, side) {
  const reading = part === "decoder" && side === "k";
  if (!reading) return inspection.words(part === "encoder" || side === "k" ? "src" : "tgt");
  const { about, read, text } = inspection.data;
  const words = inspection.words("tgt");
  // Nothing predicts the first token of a text without a start token: the word is one longer, or missing if that is all.
  const begins = !about.reads && kind(read[0]) !== "mark" && words.length === text.trim().split(/\s+/).length;
  const later = words.map(({ text, start, stop }) => ({ text, start: begins && !start ? 0 : start + 1, stop: Math.min(stop + 1, read.length) }));
  return later.filter(({ start, stop }) => start < stop);
}

/**
 * What the rows or columns are: tokens; or words, and tokens that belong to no word, such as the end token.
 * @param {Inspection} inspection
 * @param {string} part
 * @param {Side} side
 * @param {string} unit "tokens" or "words"
 * @returns {Span[]}
 */
export function unitsAlong(inspection, part, side, unit) {
  const tokens = side === "q" ? inspection.queries(part) : inspection.keys(part);
  const words = unit === "words" ? wordsAlong(inspection, part, side) : [];
  /** @type {Span[]} */
  const found = [];
  for (let at = 0; at < tokens.length; at = found[found.length - 1].stop) {
    const word = words.find(({ start, stop }) => start <= at && at < stop);
    found.push(word ? { ...word, text: `▁${word.text}` } : { text: tokens[at], start: at, stop: at + 1 });
  }
  return found;
}

/** What the alignment links: words, or the tokens of words. @param {Inspection} inspection @param {"src" | "tgt"} side @param {string} unit @returns {Span[]} */
export function linkedUnits(inspection, side, unit) {
  const words = inspection.words(side);
  if (unit === "words") return words.map((word) => ({ ...word, text: `▁${word.text}` }));
  return words.flatMap(({ start, stop }) => Array.from({ length: stop - start }, (_, at) => ({ text: inspection.data[side].pieces[start + at], start: start + at, stop: start + at + 1 })));
}

/** Whether a word along either side has several tokens. @param {Inspection} inspection @param {string} part */
export function splitsWords(inspection, part) {
  return /** @type {Side[]} */ (["q", "k"]).some((side) => wordsAlong(inspection, part, side).some(({ start, stop }) => stop - start > 1));
}

/**
 * Weights between words: attention to a word is the sum over its tokens, from a word the mean of its tokens' rows, as
 * `readings.between_words`.
 * @param {import("./inspection.js").Weights} weights
 * @param {Span[]} queries
 * @param {Span[]} keys
 * @param {number} [later] 1 for the decoder step that reads a token, which follows the one that predicts it
 * @returns {import("./inspection.js").Weights}
 */
export function grouped(weights, queries, keys, later = 0) {
  const values = new Float32Array(queries.length * keys.length);
  queries.forEach((query, row) =>
    keys.forEach((key, column) => {
      let sum = 0;
      for (let q = query.start + later; q < Math.min(query.stop + later, weights.rows); q++) {
        for (let k = key.start; k < key.stop; k++) sum += weights.values[q * weights.columns + k];
      }
      values[row * keys.length + column] = sum / (query.stop - query.start);
    }),
  );
  return { rows: queries.length, columns: keys.length, values };
}
