// @ts-check
// View: every head of every layer at a glance. A click goes to the head.

import { WEIGHTS, fitted, pixels, scale } from "./colours.js";
import { element } from "./dom.js";
import { entropy } from "./inspection.js";
import { pointed, t } from "./texts.js";

const [SMALLEST_HEAD, LARGEST_HEAD] = [60, 144]; // CSS pixels of a picture: a layer's heads in one row, where they can be
const BESIDE = 20;

export class GridView {
  /** @param {import("./pane.js").Pane} pane @param {string} part */
  constructor(pane, part) {
    this.inspection = pane.inspection;
    this.part = part;
    this.store = pane.store;
    /** @type {{layer: number, head: number, button: HTMLElement, canvas: HTMLCanvasElement}[]} */
    this.cells = [];
    const rows = pane.inspection.layers(part).map((layer) => this.row(layer));
    const note = t("grid-note");
    this.node = element("div", { class: "grid" }, element("p", { class: "note" }, note), ...rows);
    this.drawn = "";
  }

  /** @param {number} layer @returns {HTMLElement} */
  row(layer) {
    const heads = Array.from({ length: this.inspection.heads(this.part, layer) }, (_, head) => this.cell(layer, head));
    return element("div", { class: "grid-row", role: "group", "aria-label": t("number-layer", { number: layer }) }, element("h3", {}, t("number-layer", { number: layer })), ...heads);
  }

  /** @param {number} layer @param {number} head @returns {HTMLElement} */
  cell(layer, head) {
    const weights = this.inspection.weights(this.part, layer, head);
    const nats = pointed((weights ? entropy(weights) : 0).toFixed(1));
    const canvas = element("canvas", { "aria-hidden": "true" });
    const button = element(
      "button",
      {
        type: "button",
        class: "grid-cell",
        "aria-label": t("grid-cell", { layer, head, nats }),
        onclick: () => this.store.set({ layer, head }),
        ondblclick: () => this.store.set({ layer, head, view: "matrix" }),
      },
      canvas,
      element("span", { class: "caption" }, element("b", {}, String(head)), ` ${t("nats", { nats })}`),
    );
    this.cells.push({ layer, head, button, canvas });
    return button;
  }

  /** @param {import("./pane.js").Seen} seen */
  update({ state, theme }) {
    const drawn = `${theme} ${this.node.clientWidth}`;
    if (this.drawn !== drawn) this.draw();
    this.drawn = drawn;
    for (const { layer, head, button } of this.cells) {
      const chosen = (state.layer === null || state.layer === layer) && (state.head === null || state.head === head);
      button.setAttribute("aria-pressed", String(chosen && !(state.layer === null && state.head === null)));
    }
  }

  draw() {
    const table = scale(WEIGHTS);
    const most = Math.max(...this.cells.map(({ head }) => head)) + 1;
    const size = Math.min(LARGEST_HEAD, Math.max(SMALLEST_HEAD, Math.floor(this.node.clientWidth / most) - BESIDE));
    for (const { layer, head, canvas } of this.cells) {
      const weights = this.inspection.weights(this.part, layer, head);
      if (!weights) continue;
      const context = fitted(canvas, size, size);
      context.imageSmoothingEnabled = weights.columns > size;
      context.drawImage(pixels(weights, Math.sqrt, table), 0, 0, size, size);
    }
  }
}
