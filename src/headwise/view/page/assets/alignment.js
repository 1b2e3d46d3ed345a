// @ts-check
// View: for each word of the translation the source word that it attends to most, in the decoder step that
// predicts the word or in the one that reads it.

import { Columns } from "./columns.js";
import { element } from "./dom.js";

const STEPS = {
  predicts: "Weights of the decoder step that predicts each word.",
  reads: "Weights of the decoder step that reads each word, one step after it was predicted.",
};

export class AlignmentView {
  /** @param {import("./pane.js").Pane} pane */
  constructor(pane) {
    this.inspection = pane.inspection;
    const items = (/** @type {"src" | "tgt"} */ side) =>
      pane.inspection.words(side).map(({ text }) => ({ text, kind: "start" }));
    const texts = { keys: items("src"), queries: items("tgt"), keysTitle: "source words", queriesTitle: "translation words" };
    this.columns = new Columns(texts, pane.store);
    this.step = element("p", { class: "note" });
    this.links = element("output", { class: "links" });
    const note = "Links as source-target pairs of words, counted from 0:";
    this.node = element("div", {}, this.step, this.columns.node, element("p", { class: "note" }, note, " ", this.links));
    /** @type {any} */
    this.made = null;
  }

  /** @param {import("./pane.js").Seen} seen */
  update({ weights, state, theme }) {
    if (!weights) return;
    if (this.made?.from !== weights || this.made.chosen !== state.row) this.make(weights, state);
    this.links.textContent = this.made.links.join(" ");
    this.columns.update(this.made.weights, state, theme);
  }

  /** @param {import("./inspection.js").Weights} weights @param {import("./state.js").State} state */
  make(weights, state) {
    const row = state.row || this.inspection.alignmentRow(weights, state);
    this.made = { from: weights, chosen: state.row, ...linked(this.inspection.wordWeights(weights, row)) };
    this.step.textContent = STEPS[/** @type {keyof typeof STEPS} */ (row)];
  }

  /** What the readout reads: all weights between words, not the links alone. */
  read() {
    const texts = (/** @type {"src" | "tgt"} */ side) => this.inspection.words(side).map(({ text }) => text);
    return { weights: this.made.all, queries: texts("tgt"), keys: texts("src") };
  }
}

/**
 * Of each row the greatest weight alone, and where it is.
 * @param {import("./inspection.js").Weights} weights
 */
function linked(weights) {
  const values = new Float32Array(weights.values.length);
  const links = [];
  for (let row = 0; row < weights.rows && weights.columns; row++) {
    const found = weights.values.subarray(row * weights.columns, (row + 1) * weights.columns);
    const best = found.indexOf(Math.max(...found));
    if (!found[best]) continue; // a word at the end of an unfinished translation was never read
    values[row * weights.columns + best] = found[best];
    links.push(`${best}-${row}`);
  }
  return { weights: { ...weights, values }, all: weights, links };
}
