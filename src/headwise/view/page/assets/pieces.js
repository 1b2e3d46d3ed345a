// @ts-check
// How pieces and numbers are written out.

import { t } from "./texts.js";

const BLANK = "▁"; // how a tokenizer shows the blank in front of a piece

/**
 * A piece without the mark for its blank; blanks and line breaks that are pieces of their own stay visible.
 * @param {string} piece
 */
export function label(piece) {
  const plain = (piece.startsWith(BLANK) ? piece.slice(1) : piece).replaceAll(BLANK, "␣");
  return plain.trim() ? plain : plain.replaceAll("\n", "⏎").replaceAll(" ", "␣") || "␣";
}

/**
 * Names of pieces; those that occur more than once have numbers: "2 #1", "2 #2".
 * @param {string[]} pieces
 * @param {(piece: string) => string} [name]
 */
export function allNumbered(pieces, name = label) {
  const names = pieces.map(name);
  const [counts, seen] = [new Map(), new Map()];
  for (const one of names) counts.set(one, (counts.get(one) ?? 0) + 1);
  return names.map((one) => {
    seen.set(one, (seen.get(one) ?? 0) + 1);
    return counts.get(one) > 1 ? `${one} #${seen.get(one)}` : one;
  });
}

/** A piece of several. @param {string[]} pieces @param {number} at */
export function numbered(pieces, at) {
  return allNumbered(pieces)[at];
}

/**
 * "start" of a word, "inside" of one, or a "mark" such as the end of the text.
 * @param {string} piece
 */
export function kind(piece) {
  if (/^(<[^>]+>|\[(CLS|SEP|PAD|MASK|UNK)\])$/.test(piece)) return "mark";
  return piece.startsWith(BLANK) ? "start" : "inside";
}

/** Whether a piece is text with a letter or a digit. @param {string} piece */
export const readable = (piece) => kind(piece) !== "mark" && /[\p{L}\p{N}]/u.test(piece);

/**
 * What is written in front of a piece that begins a word, where pieces stand without their neighbours.
 * @param {string} piece
 */
export function beginning(piece) {
  return kind(piece) === "start" && piece !== BLANK ? BLANK : "";
}

/** @param {{text: string}[]} units */
export function textsOf(units) {
  return units.map(({ text }) => text);
}

/** @param {number} share */
export function percent(share) {
  const value = 100 * share;
  return value > 0 && value < 0.5 ? "<1 %" : `${Math.round(value)} %`;
}

/** @param {number | null} number @param {string} name "layer" or "head" */
export function named(number, name) {
  return number === null ? t(`mean-${name}`) : t(`number-${name}`, { number });
}

/**
 * The text that pieces spell, bytes such as `<0xE3>` included.
 * @param {string[]} pieces
 */
export function textOf(pieces) {
  const parts = pieces.join("").replaceAll(BLANK, " ").split(/(<0x[0-9A-F]{2}>)/);
  const bytes = parts.flatMap((part) => (/^<0x..>$/.test(part) ? [Number.parseInt(part.slice(3, 5), 16)] : [...new TextEncoder().encode(part)]));
  return new TextDecoder().decode(Uint8Array.from(bytes)).trim();
}

/**
 * Words of `text` with those marked that `other` has not in the same order (longest common subsequence).
 * @param {string} text
 * @param {string} other
 * @returns {{word: string, changed: boolean}[]}
 */
export function changes(text, other) {
  const [own, theirs] = [text.split(" "), other.split(" ")];
  const common = own.map(() => new Uint16Array(theirs.length + 1));
  common.push(new Uint16Array(theirs.length + 1));
  for (let i = own.length - 1; i >= 0; i--) {
    for (let j = theirs.length - 1; j >= 0; j--) {
      common[i][j] = own[i] === theirs[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  let j = 0;
  return own.map((word, i) => {
    while (j < theirs.length && word !== theirs[j] && common[i][j + 1] === common[i][j]) j++;
    const same = j < theirs.length && word === theirs[j];
    if (same) j++;
    return { word, changed: !same };
  });
}
