// @ts-check
// View: for each word (or token) of the translation the source word that it attends to most, in the decoder step that
// predicts the word or in the one that reads it.

import { Columns } from "./columns.js";
import { element } from "./dom.js";
import { ROWS } from "./inspection.js";
import { itemsOf } from "./lines.js";
import { named, textsOf } from "./pieces.js";
import { t } from "./texts.js";
import { grouped, linkedUnits } from "./words.js";

export class AlignmentView {
  /** @param {import("./pane.js").Pane} pane @param {string} unit */
  constructor(pane, unit) {
    this.inspection = pane.inspection;
    this.sources = linkedUnits(pane.inspection, "src", unit);
    this.targets = linkedUnits(pane.inspection, "tgt", unit);
    const texts = { keys: itemsOf(this.sources), queries: itemsOf(this.targets), keysTitle: t(`source-${unit}`), queriesTitle: t(`translation-${unit}`) };
    this.columns = new Columns(texts, pane.store);
    this.step = element("p", { class: "note" });
    this.links = element("output", { class: "links" });
    const note = t(`links-${unit}`);
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
    this.made = { from: weights, chosen: state.row, ...linked(grouped(weights, this.targets, this.sources, ROWS.indexOf(row))) };
    const { layer, head } = state;
    this.step.textContent = t(`weights-${row}`, { layer: named(layer, "layer"), head: named(head, "head") });
  }

  /** What the readout reads: all weights, not the links alone. */
  read() {
    return { weights: this.made.all, queries: textsOf(this.targets), keys: textsOf(this.sources) };
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
