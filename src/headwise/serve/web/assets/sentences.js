// @ts-check
// What is translated at once, as runtime/search/translator.py has it: a line; of a long one its sentences; of what is longer than
// the model takes, parts of it.

const BLANKS = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]"; // what is blank for Python
const AROUND = new RegExp(`^${BLANKS}+|${BLANKS}+$`, "gu");
const SENTENCE_END = new RegExp(`[.!?…]["')\\]’”»]*(${BLANKS}+)|[。！？][」』”）]*()`, "dgu");
const BLANK = new RegExp(`(${BLANKS}+)`, "dgu");
const LONG_LINE = 400; // characters of a line that is a paragraph, and translated sentence by sentence

/** One line without blanks around it; half a character is a question mark. @param {string} text */
export function oneLine(text) {
  return text.replace(/\p{Surrogate}/gu, "?").replace(/[\r\n]+/g, " ").replace(AROUND, "");
}

/**
 * What is translated at once of each line of a text.
 * @param {string} text
 * @param {(part: string) => boolean} fits whether a part is short enough for the model
 * @returns {string[][]}
 */
export function unitsOf(text, fits) {
  return text.split(/\r\n|\r|\n/).map((line) => {
    const clean = oneLine(line);
    const sentences = clean.length > LONG_LINE ? sentencesOf(clean) : [clean];
    return sentences.flatMap((sentence) => splitText(sentence, fits));
  });
}

/** @param {string} text @returns {string[]} */
function sentencesOf(text) {
  const cuts = cutsOf(text, SENTENCE_END).filter(([, from]) => !/^\p{Ll}/u.test(text.slice(from)));
  return [[0, 0], ...cuts].map(([, from], i) => text.slice(from, cuts[i]?.[0]));
}

/**
 * Parts of a text that each fit, cut near the middle again and again; only blanks at the cuts are lost.
 * @param {string} text
 * @param {(part: string) => boolean} fits
 * @returns {string[]}
 */
export function splitText(text, fits) {
  const whole = text.replace(AROUND, "");
  if (Array.from(whole).length < 2 || fits(whole)) return whole ? [whole] : [];
  const [end, start] = cutNearMiddle(whole);
  return [...splitText(whole.slice(0, end), fits), ...splitText(whole.slice(start), fits)];
}

/** Where the first part ends and the second starts. @param {string} text @returns {[number, number]} */
function cutNearMiddle(text) {
  const length = Array.from(text).length;
  const middle = Math.floor(length / 2);
  const [sentence, blank] = [nearestCut(text, SENTENCE_END, middle), nearestCut(text, BLANK, middle)];
  if (sentence && sentence.away <= Math.floor(length / 4)) return sentence.cut;
  const there = Array.from(text).slice(0, middle).join("").length;
  return blank?.cut ?? [there, there];
}

/** @param {string} text @param {RegExp} pattern @param {number} middle in characters, as Python counts them */
function nearestCut(text, pattern, middle) {
  /** @type {{cut: [number, number], away: number} | null} */
  let nearest = null;
  let [known, characters] = [0, 0];
  for (const cut of cutsOf(text, pattern)) {
    characters += Array.from(text.slice(known, cut[0])).length;
    known = cut[0];
    const away = Math.abs(characters - middle);
    if (!nearest || away < nearest.away) nearest = { cut, away };
  }
  return nearest;
}

/** The cuts that leave something on both sides. @param {string} text @param {RegExp} pattern @returns {[number, number][]} */
function cutsOf(text, pattern) {
  const found = Array.from(text.matchAll(pattern), (match) => /** @type {any} */ (match).indices[1] ?? /** @type {any} */ (match).indices[2]);
  return found.filter(([start, end]) => start > 0 && end < text.length);
}
