// @ts-check
// Text to ids and back: what `text/tokens/tokenizer.py` learns, byte-level BPE, in the words of its `tokenizer.json`; and
// the characters of a language model.

/** @typedef {{forms: string[], lowercase: boolean, front: string, unknown: number | null, pieces: string[], merges: string[], special: number[], declared: Record<string, string>}} Content front: put before a text; unknown: the id of other characters, null for BPE */

// `WORDS` of text/tokens/tokenizer.py; what is blank for the tokenizers library is so by Unicode, and not what `\s` is here.
const WORDS = / ?\p{L}[\p{L}\p{M}\u200c\u200d]*| ?\p{N}| ?([^\p{White_Space}\p{L}\p{N}])\1*|\p{White_Space}/gu;
const REMEMBERED_WORDS = 100_000;

/** GPT-2's letter for each byte. */
function byteLetters() {
  const visible = (/** @type {number} */ byte) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let hidden = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(visible(byte) ? byte : hidden++));
}

const LETTERS = byteLetters();
const BYTES = new Map(LETTERS.map((letter, byte) => [letter, byte]));

export class Tokenizer {
  /** @param {Content} content */
  constructor(content) {
    this.content = content;
    this.ids = new Map(content.pieces.map((piece, id) => [piece, id]));
    this.ranks = new Map(content.merges.map((pair, rank) => [pair, rank]));
    this.special = new Set(content.special);
    this.declared = new Map(Object.entries(content.declared).map(([id, text]) => [text, Number(id)]));
    const longestFirst = [...this.declared.keys()].sort((a, b) => b.length - a.length);
    this.marks = longestFirst.length ? new RegExp(`(${longestFirst.map(escaped).join("|")})`, "u") : null;
    /** @type {Map<string, number[]>} */
    this.known = new Map();
  }

  /** Whether a token is part of a word. @param {number} id */
  spells(id) {
    return !this.special.has(id) && !(id in this.content.declared);
  }

  /** The ids of a text, without start or end marks. @param {string} text @returns {number[]} */
  encode(text) {
    const parts = (this.marks ? text.split(this.marks) : [text]).filter(Boolean);
    return parts.flatMap((part) => {
      const mark = this.declared.get(part);
      return mark === undefined ? this.encodePlain(part) : [mark];
    });
  }

  /** @param {string} text @returns {number[]} */
  encodePlain(text) {
    let normal = this.content.forms.reduce((found, form) => found.normalize(form), text);
    if (this.content.lowercase) normal = Array.from(normal, (letter) => letter.toLowerCase()).join("");
    const { front, unknown } = this.content;
    if (unknown !== null) return Array.from(normal, (letter) => this.ids.get(letter) ?? unknown);
    return (`${front}${normal}`.match(WORDS) ?? []).flatMap((word) => this.word(word));
  }

  /** @param {string} word @returns {number[]} */
  word(word) {
    const known = this.known.get(word);
    if (known) return known;
    if (this.known.size >= REMEMBERED_WORDS) this.known.clear();
    const symbols = this.merged(Array.from(new TextEncoder().encode(word), (byte) => LETTERS[byte]));
    const ids = symbols.map((symbol) => /** @type {number} */ (this.ids.get(symbol)));
    this.known.set(word, ids);
    return ids;
  }

  /** The best merge that there is, the leftmost of several, until there is none. @param {string[]} symbols */
  merged(symbols) {
    for (;;) {
      let [best, at] = [Infinity, -1];
      for (let i = 0; i + 1 < symbols.length; i++) {
        const rank = this.ranks.get(`${symbols[i]} ${symbols[i + 1]}`) ?? Infinity;
        if (rank < best) [best, at] = [rank, i];
      }
      if (at < 0) return symbols;
      symbols.splice(at, 2, symbols[at] + symbols[at + 1]);
    }
  }

  /** The text of ids; special ones vanish, declared ones are kept, broken UTF-8 becomes U+FFFD. @param {Iterable<number>} ids */
  decode(ids) {
    let [text, stretch] = ["", /** @type {string[]} */ ([])];
    for (const id of ids) {
      const declared = this.content.declared[id];
      if (declared !== undefined) [text, stretch] = [text + this.textOf(stretch) + declared, []];
      else if (!this.special.has(id)) stretch.push(this.content.pieces[id]);
    }
    return text + this.textOf(stretch);
  }

  /** @param {string[]} pieces */
  textOf(pieces) {
    return this.content.unknown === null ? textOfLetters(pieces, this.content.front) : pieces.join("");
  }

  /** One readable string per id: blanks as ▁, bytes that are no text on their own as <0xE3>. @param {Iterable<number>} ids */
  readable(ids) {
    return Array.from(ids, (id) => {
      const piece = this.content.pieces[id];
      return this.special.has(id) || this.content.declared[id] !== undefined || this.content.unknown !== null ? piece : readableBytes(bytesOf([piece]));
    });
  }
}

/** @param {string} text */
function escaped(text) {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}

/** @param {string[]} pieces */
function bytesOf(pieces) {
  return Uint8Array.from(Array.from(pieces.join(""), (letter) => BYTES.get(letter) ?? 0x3f));
}

/** What letters of bytes spell, without what was put in front. @param {string[]} pieces @param {string} front */
function textOfLetters(pieces, front) {
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytesOf(pieces));
  return text.startsWith(front) ? text.slice(front.length) : text;
}

/** @param {Uint8Array} bytes */
function readableBytes(bytes) {
  let shown = "";
  for (let at = 0, width; at < bytes.length; at += width) {
    width = bytes[at] < 0x80 ? 1 : bytes[at] < 0xe0 ? 2 : bytes[at] < 0xf0 ? 3 : 4;
    const letter = letterOf(bytes.slice(at, at + width));
    if (letter === null) width = 1;
    shown += letter === " " ? "▁" : letter && !/[\p{C}\p{Z}]/u.test(letter) ? letter : byteNames(bytes.slice(at, at + width));
  }
  return shown;
}

/** The one letter that bytes spell; null if they spell none. @param {Uint8Array} bytes */
function letterOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** @param {Uint8Array} bytes */
function byteNames(bytes) {
  return Array.from(bytes, (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`).join("");
}
