// @ts-check
// View: attention as lines between the pieces.

import { Columns } from "./columns.js";
import { kind, label } from "./pieces.js";

export class LinesView {
  /** @param {import("./pane.js").Pane} pane @param {string} part */
  constructor(pane, part) {
    const titles = pane.inspection.titles(part);
    const items = (/** @type {string[]} */ pieces) => pieces.map((piece) => ({ text: label(piece), kind: kind(piece) }));
    const texts = {
      keys: items(pane.inspection.keys(part)),
      queries: items(pane.inspection.queries(part)),
      keysTitle: `${titles.keys} (keys)`,
      queriesTitle: `${titles.queries} (queries)`,
    };
    this.columns = new Columns(texts, pane.store);
    this.node = this.columns.node;
  }

  /** @param {import("./pane.js").Seen} seen */
  update({ weights, state, theme }) {
    if (weights) this.columns.update(weights, state, theme);
  }
}
