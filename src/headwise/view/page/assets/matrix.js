// @ts-check
// View: attention as a matrix. Rows are queries, columns are keys.

import { WEIGHTS } from "./colours.js";
import { element } from "./dom.js";
import { Heatmap } from "./heatmap.js";
import { numbered, percent, textsOf } from "./pieces.js";
import { active, sameMark } from "./state.js";
import { t } from "./texts.js";
import { unitsAlong } from "./words.js";

export class MatrixView {
  /** @param {import("./pane.js").Pane} pane @param {string} part @param {string} unit */
  constructor(pane, part, unit) {
    this.store = pane.store;
    this.rows = textsOf(unitsAlong(pane.inspection, part, "q", unit));
    this.columns = textsOf(unitsAlong(pane.inspection, part, "k", unit));
    this.heatmap = new Heatmap(this.rows, this.columns, { point: (cell) => this.point(cell), click: (cell) => this.fix(cell) });
    this.cellText = element("p", { class: "cell-text", "aria-hidden": "true" }, "\u00a0");
    const titles = pane.inspection.titles(part);
    const legend = t("matrix-note", titles);
    this.node = element("div", { class: "matrix" }, element("p", { class: "note" }, legend), this.heatmap.node, this.cellText);
    /** @type {import("./heatmap.js").Cell | null} */
    this.cell = null;
  }

  /** @param {import("./pane.js").Seen} seen */
  update({ weights, state, theme, what }) {
    if (!weights) return;
    this.heatmap.draw(weights, Math.sqrt, WEIGHTS, active(state), theme);
    this.heatmap.canvas.setAttribute("aria-label", t("matrix-of", { what }));
    const { row, column } = this.cell ?? { row: -1, column: -1 };
    const weight = percent(weights.values[row * weights.columns + column]);
    this.cellText.textContent = row >= 0 && column >= 0 ? `${numbered(this.rows, row)} → ${numbered(this.columns, column)}: ${weight}` : "\u00a0";
  }

  /** @param {import("./heatmap.js").Cell | null} cell */
  point(cell) {
    this.cell = cell;
    this.store.set({ hover: cell && markOf(cell) });
  }

  /** @param {import("./heatmap.js").Cell} cell */
  fix(cell) {
    const mark = markOf(cell);
    this.store.set({ fix: sameMark(mark, this.store.state.fix) ? null : mark });
  }
}

/** The row of a cell or of a row's label; the column of a column's label. @param {import("./heatmap.js").Cell} cell @returns {import("./state.js").Mark} */
function markOf({ row, column }) {
  return row >= 0 ? { side: "q", index: row } : { side: "k", index: column };
}
