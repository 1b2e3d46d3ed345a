// @ts-check
// View, where a server can be asked: a walk through the model as the paper draws it, with the numbers of this sentence.

import { SIGNED, WEIGHTS } from "./colours.js";
import { element } from "./dom.js";
import { Heatmap } from "./heatmap.js";
import { label } from "./pieces.js";

/** @typedef {{place: string, name: string, formula: string, rows: string[], columns: string[], shape: number[], data: string}} Stop */

// Figure 1 from bottom to top.
const FIGURE = {
  encoder: [["embedding", "Input embedding"], ["positions", "Positional encoding"], ["self_attn", "Multi-head attention"], ["ffn", "Feed-forward"], ["output", "Memory"]],
  decoder: [["embedding", "Output embedding"], ["positions", "Positional encoding"], ["self_attn", "Masked multi-head attention"], ["cross_attn", "Multi-head attention over the memory"], ["ffn", "Feed-forward"], ["output", "Linear, softmax"]],
};
const SHARES = ["Softmax", "Output probabilities"];
const NUMBERS_SHOWN = 12;

export class WalkView {
  /** @param {import("./pane.js").Pane} pane */
  constructor(pane) {
    this.pane = pane;
    this.store = pane.store;
    this.figure = element("div", { class: "figure" });
    this.steps = element("div", { class: "steps", role: "group", "aria-label": "stops here" });
    this.title = element("h2", {});
    this.formula = element("p", { class: "formula" });
    this.stage = element("div", { class: "walk-numbers" });
    this.row = element("p", { class: "cell-text", "aria-live": "polite" });
    const panel = element("div", { class: "walk-panel" }, this.steps, this.title, this.formula, this.stage, this.row);
    this.node = element("div", { class: "walk" }, this.figure, panel);
    /** @type {Stop[]} */
    this.stops = [];
    this.asked = "";
    /** @type {any} */
    this.shown = null;
    /** @type {import("./heatmap.js").Cell | null} */
    this.cell = null;
  }

  /** @param {import("./pane.js").Seen} seen */
  update({ state, theme }) {
    this.ask(state);
    if (!this.stops.length) return;
    const number = Math.min(state.stop, this.stops.length - 1);
    if (number !== state.stop) this.store.set({ stop: number });
    const stop = this.stops[number];
    if (this.shown?.stop !== stop) this.open(stop, number, state);
    const { heatmap, numbers, extent } = this.shown;
    const share = SHARES.includes(stop.name);
    const place = share ? Math.sqrt : (/** @type {number} */ value) => (Number.isFinite(value) ? 0.5 + value / extent / 2 : Number.NaN); // masked
    const mark = this.cell && this.cell.row >= 0 ? { side: /** @type {"q"} */ ("q"), index: this.cell.row } : state.fix?.side === "q" ? state.fix : null;
    const known = mark && mark.index < numbers.rows ? mark : null;
    heatmap.draw(numbers, place, share ? WEIGHTS : SIGNED, known, theme);
    this.row.textContent = this.cell || known ? describe(stop, numbers, this.cell ?? { row: known?.index ?? 0, column: -1 }) : "Point at a row to read its numbers.";
  }

  /** Ask the server once for each stack, layer and head. @param {import("./state.js").State} state */
  async ask(state) {
    const { layer, head } = this.pane.inspection.one(state.stack, state);
    const wanted = `${state.stack} ${layer} ${head}`;
    if (wanted === this.asked || !this.pane.walk) return;
    this.asked = wanted;
    const { stops, error } = await this.pane.walk(state.stack, layer, head);
    if (wanted !== this.asked) return;
    this.stops = stops ?? [];
    this.shown = null;
    if (error) this.stage.replaceChildren(element("p", { class: "empty" }, error));
    this.store.set({});
  }

  /** @param {Stop} stop @param {number} number @param {import("./state.js").State} state */
  open(stop, number, state) {
    const [rows, columns] = stop.shape;
    const values = new Float32Array(Uint8Array.from(atob(stop.data), (letter) => letter.charCodeAt(0)).buffer);
    const extent = Math.max(1e-9, ...values.map((value) => (Number.isFinite(value) ? Math.abs(value) : 0)));
    const reader = {
      point: (/** @type {any} */ cell) => ((this.cell = cell), this.store.set({})),
      click: (/** @type {any} */ { row }) => this.store.set({ fix: row >= 0 ? { side: "q", index: row } : null }),
    };
    const heatmap = new Heatmap(stop.rows, stop.columns, reader);
    const masked = values.filter((value) => !Number.isFinite(value)).length;
    heatmap.canvas.setAttribute("aria-label", `${stop.name}: ${rows} rows, ${columns} columns, numbers up to ${extent.toFixed(2)}${masked ? `, ${masked} masked` : ""}`);
    this.shown = { stop, heatmap, numbers: { rows, columns, values }, extent };
    this.cell = null;
    this.title.textContent = stop.name;
    this.formula.replaceChildren(element("code", {}, stop.formula), element("span", { class: "numbers" }, `${rows} × ${columns}; ${SHARES.includes(stop.name) ? "stronger is more" : `blue above zero, orange below${masked ? ", hatched where masked" : ""}`}`));
    this.stage.replaceChildren(heatmap.node);
    this.steps.replaceChildren(...this.stepButtons(stop, number));
    this.figure.replaceChildren(...Object.keys(FIGURE).map((stack) => this.column(stack, state.stack, stop.place)));
  }

  /** The stops in the same box of the figure, and the way on. @param {Stop} stop @param {number} number */
  stepButtons(stop, number) {
    const go = (/** @type {number} */ to, /** @type {string} */ text, /** @type {boolean} */ chosen) =>
      element("button", { type: "button", disabled: to < 0 || to >= this.stops.length, "aria-pressed": String(chosen), onclick: () => this.store.set({ stop: to }) }, text);
    const here = this.stops.flatMap((other, at) => (other.place === stop.place ? [go(at, other.name, at === number)] : []));
    return [go(number - 1, "←", false), ...here, go(number + 1, "→", false)];
  }

  /** @param {string} stack @param {string} chosen @param {string} place */
  column(stack, chosen, place) {
    const boxes = /** @type {any} */ (FIGURE)[stack].map((/** @type {string[]} */ [name, text]) =>
      element("button", { type: "button", class: `box ${name}`, "aria-pressed": String(stack === chosen && name === place), onclick: () => this.enter(stack, name) }, text),
    );
    return element("div", { class: "figure-column", role: "group", "aria-label": stack }, element("h3", {}, stack), ...boxes.reverse());
  }

  /** @param {string} stack @param {string} place */
  enter(stack, place) {
    const same = stack === this.store.state.stack;
    const stop = same ? this.stops.findIndex((found) => found.place === place) : 0;
    this.store.set({ stack, stop: Math.max(0, stop) });
  }
}

/** A row, or one of its numbers, in words. @param {Stop} stop @param {{columns: number, values: Float32Array}} numbers @param {import("./heatmap.js").Cell} cell */
function describe(stop, numbers, { row, column }) {
  const name = row >= 0 ? label(stop.rows[row]) : "";
  const from = row * numbers.columns;
  if (row >= 0 && column >= 0) {
    const where = stop.columns.length ? label(stop.columns[column]) : `dimension ${column}`;
    return `${name}, ${where}: ${written(numbers.values[from + column])}`;
  }
  if (row < 0) return stop.columns.length ? label(stop.columns[column]) : `dimension ${column}`;
  const some = [...numbers.values.subarray(from, from + Math.min(NUMBERS_SHOWN, numbers.columns))].map(written).join("  ");
  return `${name}: ${some}${numbers.columns > NUMBERS_SHOWN ? " …" : ""}`;
}

/** @param {number} value */
function written(value) {
  return Number.isFinite(value) ? value.toFixed(3).replace("-", "−") : "masked";
}
