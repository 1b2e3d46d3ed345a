// @ts-check
// One translation on the page: its texts, the view that was chosen, and what the chosen token attends to.

import { AlignmentView } from "./alignment.js";
import { BeamView } from "./beam.js";
import { element } from "./dom.js";
import { GridView } from "./grid.js";
import { ATTENTIONS } from "./inspection.js";
import { LinesView } from "./lines.js";
import { MatrixView } from "./matrix.js";
import { PictureView } from "./picture.js";
import { changes, named, textsOf } from "./pieces.js";
import { ProbabilitiesView } from "./probabilities.js";
import { Readout } from "./readout.js";
import { ScrollBox } from "./scroll.js";
import { SoundView } from "./sound.js";
import { t } from "./texts.js";
import { TourView } from "./tour.js";
import { WalkView } from "./walk.js";
import { unitsAlong } from "./words.js";

/**
 * What a view receives when something has changed.
 * @typedef {object} Seen
 * @property {import("./inspection.js").Weights | null} weights
 * @property {import("./state.js").State} state
 * @property {string} theme "light" or "dark", for views that keep pictures
 * @property {string} what the weights are, in words
 */

/**
 * @typedef {object} View
 * @property {HTMLElement} node
 * @property {(seen: Seen) => void} update
 * @property {(seen: Seen) => {weights: any, queries: string[], keys: string[]}} [read] what the readout is to read
 * @property {(by: number) => void} [move] to the step before or after
 */

/** @typedef {{reads: string, writes: boolean, traced: boolean, walk: boolean}} About what an encoder reads ("pieces", "patches", "times", or ""), whether there is a decoder, whether a trace was recorded, and whether there are walks */

/** @param {Pane} pane @returns {View} */
function walkOf(pane) {
  const view = new WalkView(pane.walkHost());
  const update = (/** @type {Seen} */ { state, theme }) => view.update({ state: { ...state, layer: state.walkLayer, head: state.walkHead }, theme });
  return { node: view.node, update, move: (by) => view.move(by) };
}

/** @param {Pane} pane @returns {View} */
function tourOf(pane) {
  const { data } = pane.inspection;
  const host = { ...pane.walkHost(), text: () => data.text, aligns: data.aligns, search: pane.search ?? undefined };
  return new TourView(host);
}

const ofPairs = (/** @type {About} */ { reads, writes }) => reads === "pieces" && writes;

/** @type {Record<string, {choices: string[], fits?: (about: About) => boolean, make: (pane: Pane, part: string, unit: string) => View}>} */
export const VIEWS = {
  picture: { choices: ["layer", "head"], fits: ({ reads }) => reads === "patches", make: (pane) => new PictureView(pane) },
  sound: { choices: ["part", "layer", "head"], fits: ({ reads }) => reads === "times", make: (pane, part) => new SoundView(pane, part) },
  lines: { choices: ["part", "layer", "head", "unit"], make: (pane, part, unit) => new LinesView(pane, part, unit) },
  matrix: { choices: ["part", "layer", "head", "unit"], make: (pane, part, unit) => new MatrixView(pane, part, unit) },
  grid: { choices: ["part"], make: (pane, part) => new GridView(pane, part) },
  alignment: { choices: ["layer", "head", "row", "unit"], fits: ofPairs, make: (pane, _, unit) => new AlignmentView(pane, unit) },
  beam: { choices: [], fits: (about) => ofPairs(about) && about.traced, make: (pane) => new BeamView(pane) },
  probabilities: { choices: [], fits: ({ traced }) => traced, make: (pane) => new ProbabilitiesView(pane) },
  walk: { choices: ["stack", "layer", "head"], fits: ({ walk }) => walk, make: walkOf },
  tour: { choices: [], fits: ({ walk }) => walk, make: tourOf },
};
const ATTENTION = ["picture", "sound", "lines", "matrix", "grid", "alignment"]; // views of attention weights
const UNIT = { lines: "tokens", matrix: "tokens", alignment: "words" }; // that these views begin with; all others show tokens
const READ_OUT = ["picture", "sound", "lines", "matrix", "alignment"];

/**
 * The part that a view shows: alignment is about source and translation, a walk about all of them.
 * @param {import("./state.js").State} state
 */
export function partOf(state) {
  const overSound = state.part === "decoder" ? "cross" : state.part; // a decoder's own attention is on no time
  return { alignment: "cross", picture: "encoder", sound: overSound, walk: "" }[state.view] ?? state.part;
}

/** What attention is shown between: "words" or "tokens". @param {import("./state.js").State} state */
export function unitOf({ view, unit }) {
  return view in UNIT ? unit || UNIT[/** @type {keyof typeof UNIT} */ (view)] : "tokens";
}

export class Pane {
  /**
   * @param {import("./state.js").Store} store
   * @param {((position: number, piece: string) => void) | null} force continue with another token, where a server can
   */
  constructor(store, force = null) {
    this.store = store;
    this.force = force;
    /** @type {((stack: string, layer: number, head: number) => Promise<any>) | null} a walk, where a server can be asked */
    this.walk = null;
    /** @type {((beam: number) => Promise<any>) | null} the best output with this beam size, where a server can be asked */
    this.search = null;
    this.texts = element("header", { class: "texts" });
    this.stage = element("div", { class: "stage" });
    this.readout = new Readout();
    this.node = element("article", { class: "pane" }, this.texts, element("div", { class: "pane-body" }, this.stage, this.readout.node));
    /** @type {import("./inspection.js").Inspection} */
    this.inspection = /** @type {any} */ (null); // until `show`
    /** @type {View | null} */
    this.view = null;
    this.made = "";
  }

  /**
   * @param {import("./inspection.js").Inspection} inspection
   * @param {string | null} [unmasked] the translation without silenced heads, where some are
   */
  show(inspection, unmasked = null) {
    const { view, layer, head } = this.store.state;
    const best = this.inspection?.data.aligns;
    if (view === "alignment" && best?.layer === layer && best?.head === head) this.store.set({ layer: null, head: null }); // the best of the new text
    this.inspection = inspection;
    this.made = "";
    const { model, text, translation } = inspection.data;
    this.node.setAttribute("aria-label", model || t("translation"));
    this.texts.replaceChildren(
      element("h2", { class: model ? "model" : "spoken" }, model || t("input")),
      new ScrollBox(t("source-text"), element("p", { class: "source", dir: "auto" }, text)).node,
      ...(translation ? [new ScrollBox(t("translated-text"), element("p", { class: "translation", dir: "auto" }, ...(unmasked === null ? [translation] : compared(translation, unmasked)))).node] : []),
      ...(unmasked === null ? [] : [element("p", { class: "unmasked", dir: "auto" }, `${t("all-heads")} `, ...compared(unmasked, translation))]),
    );
  }

  /** @param {import("./state.js").State} state @param {string} theme */
  update(state, theme) {
    if (!this.inspection) return;
    const part = partOf(state);
    const attention = ATTENTION.includes(state.view);
    const fits = VIEWS[state.view].fits?.(this.inspection.data.about) ?? true;
    const missing = !fits || (attention && !this.inspection.parts().includes(part));
    const unit = unitOf(state);
    const wanted = missing ? `no ${part}` : `${state.view} ${part} ${unit}`;
    if (wanted !== this.made) this.make(wanted, state, part, missing);
    const aligning = state.view === "alignment"; // which groups tokens itself
    const { layer, head } = aligning ? this.inspection.alignmentHead(state) : state;
    const weights = attention && !missing ? this.inspection.weights(part, layer, head, aligning ? "tokens" : unit) : null;
    const what = `${ATTENTIONS[part]}, ${named(layer, "layer")}, ${named(head, "head")}`;
    const seen = { weights, state: { ...state, layer, head }, theme, what };
    this.view?.update(seen);
    this.readOut(seen, part, unit);
  }

  /** Where the view Walk gets its numbers. @returns {import("./walk.js").WalkHost} */
  walkHost() {
    const { inspection, walk } = this;
    return { figure: inspection.figure, set: (changes) => this.store.set(changes), ask: walk ?? (async () => ({ walk: inspection.data.walk })) };
  }

  /** @param {string} wanted @param {import("./state.js").State} state @param {string} part @param {boolean} missing */
  make(wanted, state, part, missing) {
    const { view } = state;
    this.made = wanted;
    this.view = missing ? null : VIEWS[view].make(this, part, unitOf(state));
    const why = VIEWS[view].fits?.(this.inspection.data.about) === false ? t("other-model") : t("no-attention", { attention: ATTENTIONS[part] });
    const nothing = () => element("p", { class: "empty" }, why);
    this.stage.replaceChildren(this.view?.node ?? nothing());
    this.readout.node.hidden = !this.view || !READ_OUT.includes(view);
  }

  /** @param {Seen} seen @param {string} part @param {string} unit */
  readOut(seen, part, unit) {
    if (this.readout.node.hidden || !seen.weights) return;
    const names = (/** @type {"q" | "k"} */ side) => textsOf(unitsAlong(this.inspection, part, side, unit));
    const pieces = { weights: seen.weights, queries: names("q"), keys: names("k") };
    const { weights, queries, keys } = this.view?.read?.(seen) ?? pieces;
    this.readout.update(weights, queries, keys, seen);
  }
}

/** A text with the words marked that another has not. @param {string} text @param {string} other */
function compared(text, other) {
  return changes(text, other).flatMap(({ word, changed }) => [changed ? element("mark", {}, word) : word, " "]);
}
