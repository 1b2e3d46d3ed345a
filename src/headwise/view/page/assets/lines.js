// @ts-check
// View: attention as lines between the pieces.

import { Columns } from "./columns.js";
import { kind, label } from "./pieces.js";
import { t } from "./texts.js";
import { unitsAlong } from "./words.js";

export class LinesView {
  /** @param {import("./pane.js").Pane} pane @param {string} part @param {string} unit */
  constructor(pane, part, unit) {
    const titles = pane.inspection.titles(part);
    const texts = {
      keys: itemsOf(unitsAlong(pane.inspection, part, "k", unit)),
      queries: itemsOf(unitsAlong(pane.inspection, part, "q", unit)),
      keysTitle: t("keys-of", { title: titles.keys }),
      queriesTitle: t("queries-of", { title: titles.queries }),
    };
    this.columns = new Columns(texts, pane.store);
    this.node = this.columns.node;
  }

  /** @param {import("./pane.js").Seen} seen */
  update({ weights, state, theme }) {
    if (weights) this.columns.update(weights, state, theme);
  }
}

/** @param {import("./inspection.js").Span[]} units */
export function itemsOf(units) {
  return units.map(({ text }) => ({ text: label(text), kind: kind(text) }));
}
