// @ts-check
// View: attention over the seconds of a sound: a curve for the chosen piece or time, and all rows below it.

import { WEIGHTS, colour, css, fitted, pixels, scale } from "./colours.js";
import { element } from "./dom.js";
import { Heatmap } from "./heatmap.js";
import { weightAt } from "./inspection.js";
import { label, percent } from "./pieces.js";
import { active, sameMark } from "./state.js";
import { t } from "./texts.js";

const CURVE_HEIGHT = 130; // CSS pixels, with the seconds below
const SECONDS_HEIGHT = 22; // height of those
const TICK_WIDTH = 64; // pixels between two of them, at least
const NAMES_WIDTH = 64; // of the encoder's square

export class SoundView {
  /** @param {import("./pane.js").Pane} pane @param {string} part */
  constructor(pane, part) {
    this.store = pane.store;
    this.part = part;
    this.times = pane.inspection.data.src.times;
    this.queries = pane.inspection.queries(part);
    this.keys = pane.inspection.keys(part);
    this.curve = element("canvas", { role: "img" });
    this.heatmap = new Heatmap(this.queries, [], { point: (cell) => this.point(cell?.row ?? -1), click: (cell) => this.fix(cell.row) });
    this.square = element("canvas", { role: "img", tabindex: "0", class: "picture" });
    this.square.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => this.point(this.rowAt(event)));
    this.square.addEventListener("pointerleave", () => this.point(-1));
    this.square.addEventListener("click", (/** @type {PointerEvent} */ event) => this.fix(this.rowAt(event)));
    this.note = element("p", { class: "note" });
    const legend = t(part === "encoder" ? "sound-square" : "sound-rows");
    const behind = this.keys.length > this.times.loudness.length ? [t("sound-silence")] : [];
    this.node = element("div", { class: "sound-view" }, this.note, this.curve, part === "encoder" ? this.square : this.heatmap.node, element("p", { class: "note" }, [legend, ...behind, t("sound-scale")].join(" ")));
    this.kept = { weights: /** @type {any} */ (null), theme: "", image: /** @type {any} */ (null) };
  }

  /** @param {import("./pane.js").Seen} seen */
  update({ weights, state, theme, what }) {
    if (!weights) return;
    const mark = active(state);
    if (this.part === "encoder") this.drawSquare(weights, mark, theme);
    else this.heatmap.draw(weights, this.place(weights), WEIGHTS, mark, theme);
    const canvas = this.part === "encoder" ? this.square : this.heatmap.canvas;
    canvas.setAttribute("aria-label", t("sound-of", { what }));
    const { left, size } = this.part === "encoder" ? { left: NAMES_WIDTH, size: this.size(weights) } : this.heatmap;
    this.drawCurve(weights, mark, left, size);
    this.say(weights, mark);
  }

  /** @param {import("./inspection.js").Weights} weights */
  size({ columns }) {
    return Math.min(600, this.node.clientWidth - NAMES_WIDTH - 2) / columns;
  }

  /** Where weights are on the scale: beside the greatest one of the sound, for each is small. @param {import("./inspection.js").Weights} weights */
  place({ columns, values }) {
    let greatest = 1e-9;
    values.forEach((weight, at) => at % columns < this.times.loudness.length && (greatest = Math.max(greatest, weight)));
    return (/** @type {number} */ weight) => Math.sqrt(weight / greatest);
  }

  /** The share of each stretch for the chosen row, or of all rows on average. @param {import("./inspection.js").Weights} weights @param {import("./state.js").Mark | null} mark */
  shares(weights, mark) {
    if (mark?.side === "q") return Array.from({ length: weights.columns }, (_, k) => weightAt(weights, mark, k));
    const sums = new Array(weights.columns).fill(0);
    weights.values.forEach((weight, at) => (sums[at % weights.columns] += weight / weights.rows));
    return sums;
  }

  /** @param {import("./inspection.js").Weights} weights @param {import("./state.js").Mark | null} mark @param {number} left @param {number} size */
  drawCurve(weights, mark, left, size) {
    const shares = this.shares(weights, mark);
    const greatest = Math.max(...shares.slice(0, this.times.loudness.length), 1e-9); // the silence may go beyond
    const context = fitted(this.curve, left + size * shares.length + 2, CURVE_HEIGHT);
    const floor = CURVE_HEIGHT - SECONDS_HEIGHT;
    context.fillStyle = css(colour("--line"));
    this.times.loudness.forEach((/** @type {number} */ loud, /** @type {number} */ i) => context.fillRect(left + i * size, floor - loud * 0.45 * floor, Math.max(1, size - 0.5), loud * 0.45 * floor));
    context.fillStyle = css(colour("--accent"), 0.85);
    shares.forEach((share, i) => {
      const height = Math.min(1, share / greatest) * (floor - 4);
      context.fillRect(left + i * size, floor - height, Math.max(1, size - 0.5), height);
    });
    this.drawSeconds(context, left, size, floor);
  }

  /** @param {CanvasRenderingContext2D} context @param {number} left @param {number} size @param {number} floor */
  drawSeconds(context, left, size, floor) {
    const { step, loudness } = this.times;
    const apart = [0.1, 0.2, 0.5, 1, 2, 5, 10].find((seconds) => (seconds / step) * size >= TICK_WIDTH) ?? 30;
    context.fillStyle = context.strokeStyle = css(colour("--grey"));
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "center";
    for (let n = 0; n * apart <= loudness.length * step + 1e-6; n++) {
      const x = left + ((n * apart) / step) * size;
      context.fillRect(x, floor, 1, 4);
      context.fillText(`${Number((n * apart).toFixed(1))} s`, x, CURVE_HEIGHT - 6);
    }
  }

  /** @param {import("./inspection.js").Weights} weights @param {import("./state.js").Mark | null} mark @param {string} theme */
  drawSquare(weights, mark, theme) {
    if (this.kept.weights !== weights || this.kept.theme !== theme) this.kept = { weights, theme, image: pixels(weights, this.place(weights), scale(WEIGHTS)) };
    const side = this.size(weights) * weights.columns;
    const context = fitted(this.square, NAMES_WIDTH + side + 2, side + 2);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.kept.image, NAMES_WIDTH, 0, side, side);
    context.fillStyle = css(colour("--grey"));
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    const every = Math.max(1, Math.ceil((24 * weights.rows) / side));
    for (let row = 0; row < weights.rows; row += every) context.fillText(label(this.queries[row]), NAMES_WIDTH - 6, Math.max(7, ((row + 0.5) * side) / weights.rows), NAMES_WIDTH - 8);
    if (mark?.side !== "q") return;
    context.strokeStyle = css(colour("--accent"));
    context.lineWidth = 1.5;
    context.strokeRect(NAMES_WIDTH, (mark.index * side) / weights.rows, side, Math.max(2, side / weights.rows));
  }

  /** @param {import("./inspection.js").Weights} weights @param {import("./state.js").Mark | null} mark */
  say(weights, mark) {
    const who = mark?.side === "q" ? label(this.queries[mark.index] ?? "") : t("all-rows");
    const shares = this.shares(weights, mark);
    const best = shares.indexOf(Math.max(...shares));
    this.note.textContent = t("most-at", { who, place: label(this.keys[best]), share: percent(shares[best]) });
    this.curve.setAttribute("aria-label", this.note.textContent);
  }

  /** @param {PointerEvent} event */
  rowAt(event) {
    const box = this.square.getBoundingClientRect();
    return Math.max(0, Math.min(this.queries.length - 1, Math.floor(((event.clientY - box.top) / box.height) * this.queries.length)));
  }

  /** @param {number} row -1 = none */
  point(row) {
    /** @type {import("./state.js").Mark | null} */
    const mark = row >= 0 ? { side: "q", index: row } : null;
    if (!sameMark(mark, this.store.state.hover)) this.store.set({ hover: mark });
  }

  /** @param {number} row */
  fix(row) {
    /** @type {import("./state.js").Mark | null} */
    const mark = row >= 0 ? { side: "q", index: row } : null;
    this.store.set({ fix: sameMark(mark, this.store.state.fix) ? null : mark });
  }
}
