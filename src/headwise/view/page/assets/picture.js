// @ts-check
// View: attention over the patches of a picture. Patches without attention are dark.

import { colour, css, fitted } from "./colours.js";
import { choice, element } from "./dom.js";
import { weightAt } from "./inspection.js";
import { label, percent } from "./pieces.js";
import { active, sameMark } from "./state.js";
import { t } from "./texts.js";

const PICTURE_WIDTH = 560; // CSS pixels of the picture
const DARK = 0.86;

export class PictureView {
  /** @param {import("./pane.js").Pane} pane */
  constructor(pane) {
    this.store = pane.store;
    this.names = pane.inspection.queries("encoder");
    this.patches = pane.inspection.data.src.patches;
    this.canvas = element("canvas", { role: "img", tabindex: "0", class: "picture" });
    this.canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => this.store.set({ hover: null }));
    this.canvas.addEventListener("click", (/** @type {PointerEvent} */ event) => this.fix(this.markAt(event)));
    this.image = new Image();
    this.image.onload = () => this.store.set({});
    this.image.src = this.patches.picture;
    this.who = element("div", { class: "choices" });
    this.note = element("p", { class: "note" });
    this.node = element("div", { class: "picture-view" }, this.who, this.canvas, this.note);
    this.chosen = "";
  }

  /** @param {import("./pane.js").Seen} seen */
  update({ weights, state, what }) {
    if (!weights) return;
    this.choose(state.fix);
    const mark = active(state);
    const shares = this.shares(weights, mark);
    const greatest = Math.max(...shares, 1e-9);
    this.draw(shares, greatest, mark);
    const who = mark ? label(this.names[mark.index]) : t("all-positions");
    const rest = 1 - shares.reduce((sum, share) => sum + share, 0);
    const elsewhere = mark?.side === "k" ? [] : [t("on-no-patch", { share: percent(Math.max(0, rest)) })];
    this.note.textContent = [t("brightest-patch", { who, share: percent(greatest) }), ...elsewhere, t("picture-note")].join(" ");
    this.canvas.setAttribute("aria-label", t("picture-under", { what, note: this.note.textContent }));
  }

  /** The weight of each patch: from the chosen position, or from all. @param {import("./inspection.js").Weights} weights @param {import("./state.js").Mark | null} mark */
  shares(weights, mark) {
    const { rows, columns, before } = this.patches;
    return Array.from({ length: rows * columns }, (_, patch) => {
      if (mark) return weightAt(weights, mark, before + patch);
      let sum = 0;
      for (let q = 0; q < weights.rows; q++) sum += weights.values[q * weights.columns + before + patch];
      return sum / weights.rows;
    });
  }

  /** @param {number[]} shares @param {number} greatest @param {import("./state.js").Mark | null} mark */
  draw(shares, greatest, mark) {
    const { rows, columns, before } = this.patches;
    const width = Math.min(PICTURE_WIDTH, this.node.clientWidth);
    const height = this.image.width ? (width * this.image.height) / this.image.width : width;
    const [w, h] = [width / columns, height / rows];
    const context = fitted(this.canvas, width, height);
    context.imageSmoothingEnabled = this.image.width > 64;
    if (this.image.width) context.drawImage(this.image, 0, 0, width, height);
    shares.forEach((share, patch) => {
      context.fillStyle = `rgb(0 0 0 / ${DARK * (1 - Math.sqrt(share / greatest))})`;
      const [x, y] = [Math.round((patch % columns) * w), Math.round(Math.floor(patch / columns) * h)];
      context.fillRect(x, y, Math.round(((patch % columns) + 1) * w) - x, Math.round((Math.floor(patch / columns) + 1) * h) - y);
    });
    if (!mark || mark.index < before) return;
    const patch = mark.index - before;
    context.strokeStyle = css(colour("--greatest"));
    context.lineWidth = 2.5;
    context.strokeRect((patch % columns) * w + 1, Math.floor(patch / columns) * h + 1, w - 2, h - 2);
  }

  /** Buttons for what is no patch, and for all together. @param {import("./state.js").Mark | null} fixed */
  choose(fixed) {
    const { before } = this.patches;
    const chosen = !fixed ? "mean" : fixed.side === "q" && fixed.index < before ? fixed.index : "patch";
    if (String(chosen) === this.chosen) return; // rebuilding buttons would take the focus away from them
    const focused = this.who.contains(document.activeElement);
    this.chosen = String(chosen);
    const ones = Array.from({ length: before }, (_, index) => ({ value: index, text: t("special-token", { name: this.names[index].replace(/[<>]/g, "") }) }));
    const options = [...ones, { value: "mean", text: t("mean-of-all") }, ...(chosen === "patch" ? [{ value: "patch", text: label(this.names[/** @type {any} */ (fixed).index]) }] : [])];
    this.who.replaceChildren(choice(t("choose-looks"), options, chosen, (value) => value !== "patch" && this.store.set({ fix: value === "mean" ? null : { side: "q", index: value }, hover: null })));
    if (focused) this.who.querySelector('[aria-pressed="true"]')?.focus();
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const mark = event.pointerType === "touch" ? null : this.markAt(event);
    if (!sameMark(mark, this.store.state.hover)) this.store.set({ hover: mark });
  }

  /** @param {import("./state.js").Mark} mark */
  fix(mark) {
    this.chosen = "";
    this.store.set({ fix: sameMark(mark, this.store.state.fix) ? null : mark });
  }

  /** @param {PointerEvent} event @returns {import("./state.js").Mark} */
  markAt(event) {
    const { rows, columns, before } = this.patches;
    const box = this.canvas.getBoundingClientRect();
    const place = (/** @type {number} */ at, /** @type {number} */ size, /** @type {number} */ count) => Math.max(0, Math.min(count - 1, Math.floor((at / size) * count)));
    const [row, column] = [place(event.clientY - box.top, box.height, rows), place(event.clientX - box.left, box.width, columns)];
    return { side: "q", index: before + row * columns + column };
  }
}
