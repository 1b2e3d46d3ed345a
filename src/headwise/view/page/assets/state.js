// @ts-check
// What the reader chose: one flat object, kept in the URL's hash so that a view can be bookmarked and shared. The
// browser's Back leads to the view, card or model before.

import { ROWS, UNITS } from "./inspection.js";

/** @typedef {{side: "q" | "k", index: number}} Mark a query or a key */

/**
 * @typedef {object} State
 * @property {string} view
 * @property {string} part "encoder", "decoder" or "cross"
 * @property {number | null} layer null is the mean of the layers
 * @property {number | null} head null is the mean of the heads
 * @property {string} row of the alignment: "predicts", "reads", or "" for the clearer one
 * @property {string} unit that attention is shown between: "words", "tokens", or "" for that of the view
 * @property {Mark | null} fix the piece that was clicked
 * @property {Mark | null} hover the piece under the pointer; not in the URL
 * @property {string} theme "auto", "light" or "dark"
 * @property {boolean} pruned whether the beam shows what it gave up
 * @property {number} walkLayer layer of the walk
 * @property {number} walkHead head of the walk
 * @property {string} step of the walk; "" for the first
 * @property {[number, number] | null} cell of the step: row and column
 * @property {string} stack of the walk: "encoder" or "decoder"
 * @property {string} card of the tour; "" for the first
 * @property {string} knob what the card changes in its step; "" for nothing
 * @property {string} language chosen for the texts; "" for that of the browser
 * @property {string} text of the explorer
 * @property {string} prefix of the explorer: what the translation must begin with
 * @property {number} beam size of the explorer's beam
 * @property {string} masks of the explorer, as `maskText` writes them
 */

/** @type {State} */
export const START = {
  view: "lines",
  part: "cross",
  layer: null,
  head: null,
  row: "",
  unit: "",
  fix: null,
  hover: null,
  theme: "auto",
  pruned: true,
  walkLayer: 0,
  walkHead: 0,
  step: "",
  cell: null,
  stack: "encoder",
  card: "",
  knob: "",
  language: "",
  text: "",
  prefix: "",
  beam: 4,
  masks: "",
};

/** What a page without a hash begins with. @param {Partial<State>} chosen */
export function beginWith(chosen) {
  Object.assign(START, chosen);
}

const LONGEST_TEXT = 8000; // characters of an address: some programs cut off longer ones

const asText = { read: (/** @type {string} */ text) => text, write: String };
const asFlag = { read: (/** @type {string} */ text) => text === "1", write: (/** @type {boolean} */ v) => (v ? "1" : "0") };
const asNumber = { read: (/** @type {string} */ text) => (/^\d{1,6}$/.test(text) ? Number(text) : 0), write: String };
const asIndex = {
  read: (/** @type {string} */ text) => (/^\d{1,6}$/.test(text) ? Number(text) : null),
  write: (/** @type {number | null} */ index) => (index === null ? "mean" : String(index)),
};
const asMark = {
  /** @param {string} text @returns {Mark | null} */
  read: (text) => (/^[qk]\d{1,6}$/.test(text) ? { side: text[0] === "q" ? "q" : "k", index: Number(text.slice(1)) } : null),
  write: (/** @type {Mark | null} */ mark) => (mark ? mark.side + mark.index : ""),
};

/** @param {string[]} names one of these, or "" */
function oneOf(names) {
  return { read: (/** @type {string} */ text) => (names.includes(text) ? text : ""), write: String };
}

const asCell = {
  /** @param {string} text @returns {[number, number] | null} */
  read: (text) => {
    const found = /^(\d{1,5}),(\d{1,5})$/.exec(text);
    return found && [Number(found[1]), Number(found[2])];
  },
  write: (/** @type {[number, number] | null} */ cell) => cell?.join(",") ?? "",
};

/** @type {Record<string, {read: (text: string) => any, write: (value: any) => string}>} */
const IN_THE_URL = {
  view: asText,
  part: asText,
  layer: asIndex,
  head: asIndex,
  row: oneOf(ROWS),
  unit: oneOf(UNITS),
  fix: asMark,
  theme: asText,
  pruned: asFlag,
  walkLayer: asNumber,
  walkHead: asNumber,
  step: asText,
  cell: asCell,
  stack: asText,
  card: asText,
  knob: asText,
  language: asText,
  text: asText,
  prefix: asText,
  beam: asNumber,
  masks: asText,
};

const OF_WALKS = /** @type {Record<string, string>} */ ({ layer: "walkLayer", head: "walkHead" }); // what these are in an address of a walk

/** @param {string} hash */
const pairsOf = (hash) => new URLSearchParams(hash.replace(/^#/, ""));
const ofWalk = (/** @type {URLSearchParams} */ pairs) => (pairs.get("view") ?? START.view) === "walk";

/**
 * The state that a hash such as `#view=matrix&layer=2` stands for.
 * @param {string} hash
 * @returns {State}
 */
export function readHash(hash) {
  const [state, pairs] = [/** @type {any} */ ({ ...START }), pairsOf(hash)];
  const names = ofWalk(pairs) ? OF_WALKS : {};
  for (const [name, text] of pairs) {
    const key = names[name] ?? name;
    if (Object.hasOwn(IN_THE_URL, key)) state[key] = IN_THE_URL[key].read(text);
  }
  return state;
}

/**
 * Whether a hash says what to look at: a layer, a head or a piece.
 * @param {string} hash
 */
export function pointsOut(hash) {
  const pairs = pairsOf(hash);
  return [...(ofWalk(pairs) ? [] : ["layer", "head"]), "fix"].some((key) => pairs.has(key));
}

/** Whether an address can have a text. @param {string} text */
export const inAddress = (text) => `${new URLSearchParams({ text })}`.length <= LONGEST_TEXT;

/**
 * The hash of a state; what is as at the start is left out, and a text that is too long.
 * @param {State} state
 */
export function writeHash(state) {
  const pairs = new URLSearchParams();
  const walking = state.view === "walk"; // its layer and head are those of the address
  for (const [name, { write }] of Object.entries(IN_THE_URL)) {
    if (walking && Object.values(OF_WALKS).includes(name)) continue;
    const key = walking ? (OF_WALKS[name] ?? name) : name;
    const text = write(/** @type {any} */ (state)[key]);
    if (text !== write(/** @type {any} */ (START)[key]) && inAddress(text)) pairs.set(name, text);
  }
  return `#${pairs}`;
}

const PLACES = ["view", "card", "model"];

/** Write a hash into the address: another view, card or model is a step of the browser's history. @param {string} hash @param {boolean} [reader] whether the reader went there */
export function keepAddress(hash, reader = true) {
  if (hash === (location.hash || "#") || location.protocol === "about:") return; // a frame in a notebook has no address
  const [wanted, before] = [hash, location.hash].map(pairsOf);
  const moved = reader && PLACES.some((name) => wanted.get(name) !== before.get(name));
  history[moved ? "pushState" : "replaceState"](null, "", hash);
}

/** The state of a page and who wants to know of its changes: once for all that one event changed. */
export class Store {
  /** @param {State} state */
  constructor(state) {
    this.state = state;
    /** @type {Set<(state: State) => void>} */
    this.listeners = new Set();
    this.waiting = false;
  }

  /** @param {Partial<State>} changes */
  set(changes) {
    this.state = { ...this.state, ...changes };
    if (this.waiting) return;
    this.waiting = true;
    queueMicrotask(() => {
      this.waiting = false;
      for (const listener of this.listeners) listener(this.state);
    });
  }

  /** @param {(state: State) => void} listener */
  subscribe(listener) {
    this.listeners.add(listener);
  }
}

/**
 * The piece to show more of: under the pointer, or fixed.
 * @param {State} state
 */
export function active(state) {
  return state.hover ?? state.fix;
}

/**
 * @param {Mark | null} one
 * @param {Mark | null} other
 */
export function sameMark(one, other) {
  return one?.side === other?.side && one?.index === other?.index;
}
