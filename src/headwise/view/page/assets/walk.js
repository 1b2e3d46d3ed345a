// @ts-check
// View: a walk through the network along figure 1 of the paper, with the numbers of this input at each step. A cell shows
// what it was computed from. The host says where walks come from: the page itself, or a server.

import { explainCell, mayAttend, sum, titleOf, written } from "./cell.js";
import { SIGNED, WEIGHTS } from "./colours.js";
import { element } from "./dom.js";
import { FigureView } from "./figure.js";
import { formula } from "./formula.js";
import { Heatmap } from "./heatmap.js";
import { named } from "./pieces.js";
import { ScrollBox } from "./scroll.js";
import { Walks, lacking } from "./steps.js";
import { t } from "./texts.js";

/** @typedef {import("./steps.js").Step} Step */
/** @typedef {{stack: string, layer: number | null, head: number | null, step: string, cell: [number, number] | null}} WalkState */
/**
 * @typedef {object} WalkHost
 * @property {import("./figure.js").Figure} figure
 * @property {(stack: string, layer: number, head: number) => Promise<{walk?: any, error?: string}>} ask
 * @property {(changes: any) => void} set what the reader chose; the host then calls `update`
 */

const SHARES = ["softmax", "probabilities"]; // numbers from 0 to 1

export class WalkView {
  /** @param {WalkHost} host */
  constructor(host) {
    this.host = host;
    this.figure = new FigureView(host.figure, (stack, box) => this.enter(stack, box));
    this.steps = element("div", { class: "steps", role: "group", "aria-label": t("walk-steps") });
    this.title = element("h2", {});
    this.sentence = element("p", { class: "sentence" });
    this.formula = element("div", { class: "formula" });
    this.legend = element("p", { class: "note" });
    this.stage = element("div", { class: "walk-numbers" });
    this.cellTitle = element("h3", {});
    this.cellText = element("div", {});
    this.terms = new ScrollBox(t("walk-terms"));
    this.account = element("div", { class: "account", role: "group", "aria-label": t("walk-account") }, element("div", { "aria-live": "polite" }, this.cellTitle, this.cellText), this.terms.node);
    this.note = element("p", { class: "note" });
    this.spoken = element("p", { class: "spoken", "aria-live": "polite" });
    const step = element("div", { class: "walk-step" }, this.title, this.sentence, this.formula, this.stage, this.legend);
    const panel = element("div", { class: "walk-panel" }, this.steps, element("div", { class: "walk-beside" }, step, this.account), this.note, this.spoken);
    this.node = element("div", { class: "walk" }, this.figure.node, panel);
    /** @type {{of: string, walks: Walks, layer: number, head: number, steps: Step[]} | null} */
    this.walk = null;
    this.asked = "";
    /** @type {{step: Step, heatmap: Heatmap, extent: number} | null} */
    this.shown = null;
    /** @type {import("./heatmap.js").Cell | null} */
    this.pointed = null;
    /** @type {((id: string) => boolean) | null} the box that was clicked, until its steps are there */
    this.entering = null;
    this.theme = "light";
    /** @type {WalkState | null} */
    this.state = null;
    this.drawn = "";
  }

  /** Ask again: the input has changed. */
  forget() {
    this.asked = "";
  }

  /** @param {{state: WalkState, theme: string}} seen */
  update({ state, theme }) {
    this.theme = theme;
    this.state = state;
    const stack = this.stackOf(state);
    const { heads } = this.host.figure[stack];
    const layer = (state.layer ?? 0) < heads.length ? (state.layer ?? 0) : 0;
    this.ask(stack, layer, (state.head ?? 0) < heads[layer] ? (state.head ?? 0) : 0);
    if (this.walk?.of === this.asked) this.show(this.walk, stack, state); // or it is still on its way
  }

  /** @param {WalkState} state */
  stackOf({ stack }) {
    return stack in this.host.figure ? stack : Object.keys(this.host.figure)[0];
  }

  /** Ask the host once for each stack, layer and head. @param {string} stack @param {number} layer @param {number} head */
  async ask(stack, layer, head) {
    const wanted = `${stack} ${layer} ${head}`;
    if (wanted === this.asked) return;
    this.asked = wanted;
    const { walk, error } = await this.host.ask(stack, layer, head);
    const walks = walk ? await Walks.read(walk) : null;
    if (wanted !== this.asked) return;
    const found = walks?.steps(stack, layer, head) ?? null;
    this.walk = walks && found ? { of: wanted, walks, ...found } : null;
    this.shown = null;
    if (!found) this.stage.replaceChildren(element("p", { class: "empty" }, error ?? lacking(walk)));
    else this.host.set({});
  }

  /** @param {{walks: Walks, layer: number, head: number, steps: Step[]}} walk @param {string} stack @param {WalkState} state */
  show(walk, stack, state) {
    if (this.entering) {
      const first = walk.steps.find((step) => this.entering?.(step.id));
      this.entering = null;
      if (first && first.id !== state.step) return this.host.set({ step: first.id, cell: null });
    }
    const step = walk.steps.find(({ id }) => id === state.step) ?? walk.steps[0];
    if (this.shown?.step !== step) this.open(step, walk, stack);
    this.draw(step, state);
  }

  /** @param {Step} step @param {{walks: Walks, layer: number, head: number, steps: Step[]}} walk @param {string} stack */
  open(step, walk, stack) {
    const { values } = step.numbers;
    const extent = Math.max(1e-9, ...[...values].map((value) => (Number.isFinite(value) ? Math.abs(value) : 0)));
    const choose = (/** @type {import("./heatmap.js").Cell} */ { row, column }) => row >= 0 && column >= 0 && this.host.set({ cell: [row, column] });
    const point = (/** @type {any} */ cell) => {
      this.pointed = cell;
      if (this.state) this.draw(step, this.state);
    };
    const heatmap = new Heatmap(step.rows, step.columns, { point, click: choose, choose });
    this.shown = { step, heatmap, extent };
    this.pointed = null;
    this.title.textContent = step.name;
    this.sentence.textContent = step.sentence;
    this.formula.replaceChildren(formula(step.formula), element("span", { class: "numbers" }, this.shapes(step, walk)));
    this.stage.replaceChildren(heatmap.node);
    this.drawLegend(step, heatmap, extent);
    this.steps.replaceChildren(...this.stepButtons(step, walk.steps));
    const where = [t(`stack-${stack}`), ...(step.layer === null ? [] : [named(step.layer, "layer")]), ...(step.head === null ? [] : [named(step.head, "head")])].join(", ");
    this.figure.show(stack, step.id, walk.layer, t("walk-here", { where }));
    this.note.textContent = walk.walks.notes.join(" ");
    if (this.drawn) this.spoken.textContent = `${step.name}, ${where}. ${step.sentence}`;
    this.drawn = step.id;
  }

  /** The shapes of operands and result. @param {Step} step @param {{steps: Step[]}} walk */
  shapes(step, walk) {
    const size = (/** @type {import("./steps.js").StepNumbers} */ { rows, columns }) => `${rows} × ${columns}`;
    const operands = step.operands.map((id) => walk.steps.find((one) => one.id === id)).flatMap((one) => (one ? [size(one.numbers)] : []));
    return operands.length ? `${operands.join(", ")} → ${size(step.numbers)}` : size(step.numbers);
  }

  /** @param {Step} step @param {Heatmap} heatmap @param {number} extent */
  drawLegend(step, heatmap, extent) {
    const { rows, columns } = step.numbers;
    const share = SHARES.includes(step.operation);
    const hidden = step.operation === "scores" ? rows * columns - sum(step.rows.map((_, row) => mayAttend(step, row).length)) : 0;
    const by = step.settings.mask || "masked";
    const mask = hidden ? t(`hidden-${by}`) : "";
    const across = t(step.columns.length ? "walk-of-tokens" : "walk-of-dimensions");
    const scale = share ? t(this.theme === "dark" ? "walk-lighter" : "walk-darker") : t("walk-signed", { largest: written(extent) });
    this.legend.replaceChildren(`${across} ${scale}`, ...(mask ? [" ", element("span", { class: "hatched", "aria-hidden": "true" }), ` ${t("walk-hatched", { mask })}`] : []), ` ${t("walk-click")}`);
    heatmap.canvas.setAttribute("role", "application");
    heatmap.canvas.setAttribute("aria-roledescription", t("walk-matrix"));
    heatmap.canvas.setAttribute("aria-label", t(mask ? "walk-cells-masked" : "walk-cells", { name: step.name, rows, columns, hidden, mask }));
  }

  /** @param {Step} step @param {WalkState} state */
  draw(step, state) {
    if (!this.shown) return;
    const { heatmap, extent } = this.shown;
    const { numbers } = step;
    const share = SHARES.includes(step.operation);
    const place = share ? Math.sqrt : (/** @type {number} */ value) => (Number.isFinite(value) ? 0.5 + value / extent / 2 : Number.NaN); // masked
    const chosen = state.cell && state.cell[0] < numbers.rows && state.cell[1] < numbers.columns ? { row: state.cell[0], column: state.cell[1] } : null;
    const own = step.operation === "concat" ? this.ownColumns() : null;
    const row = this.pointed?.row ?? chosen?.row ?? -1;
    heatmap.draw(numbers, place, share ? WEIGHTS : SIGNED, row >= 0 ? { side: "q", index: row } : null, this.theme, chosen, own);
    this.explain(step, chosen);
  }

  /** The columns of the chosen head in those of all heads. @returns {[number, number] | null} */
  ownColumns() {
    const operand = this.shown && this.operand(this.shown.step.operands[0]);
    return operand ? [(operand.head ?? 0) * operand.numbers.columns, operand.numbers.columns] : null;
  }

  /** @param {string} id */
  operand(id) {
    return /** @type {Step} */ (this.walk?.steps.find((step) => step.id === id));
  }

  /** @param {Step} step @param {import("./heatmap.js").Cell | null} chosen */
  explain(step, chosen) {
    const key = chosen ? `${this.asked} ${step.id} ${chosen.row} ${chosen.column}` : "";
    if (this.pointed && this.pointed.row >= 0 && this.pointed.column >= 0 && !chosen) {
      this.account.dataset.cell = "";
      this.cellTitle.textContent = titleOf(step, this.pointed);
      return;
    }
    if (!chosen) {
      this.account.dataset.cell = "";
      this.cellTitle.textContent = t("walk-no-cell");
      this.cellText.replaceChildren();
      this.terms.node.hidden = true;
      return;
    }
    if (this.account.dataset.cell === key) return;
    this.account.dataset.cell = key;
    const { title, text, table } = explainCell(step, chosen, (id) => this.operand(id));
    this.cellTitle.textContent = title;
    this.cellText.replaceChildren(text);
    this.terms.node.hidden = !table;
    if (table) this.terms.fill(table);
  }

  /** The steps in the same box of the figure, and the way on. @param {Step} step @param {Step[]} steps */
  stepButtons(step, steps) {
    const at = steps.indexOf(step);
    const go = (/** @type {number} */ to, /** @type {string} */ text, /** @type {any} */ more) => element("button", { type: "button", disabled: to < 0 || to >= steps.length, onclick: () => this.choose(steps[to]), ...more }, text);
    const box = this.figure.buttons.find((one) => one.stack === this.stackOf(/** @type {any} */ (this.state)) && one.box.holds(step.id));
    const here = steps.flatMap((other, number) => (box?.box.holds(other.id) || other === step ? [go(number, other.name, { "aria-pressed": String(other === step) })] : []));
    return [go(at - 1, t("walk-back"), { class: "way" }), ...here, go(at + 1, t("walk-next"), { class: "way" })];
  }

  /** Another step, from the keyboard. @param {number} by */
  move(by) {
    const steps = this.walk?.steps ?? [];
    const at = this.shown ? steps.indexOf(this.shown.step) + by : 0;
    if (steps[at]) this.choose(steps[at]);
  }

  /** Also while the walk of a box is on its way: then this step of it. @param {Step} step */
  choose(step) {
    this.entering = null;
    this.host.set({ step: step.id, cell: null });
  }

  /** @param {string} stack @param {import("./figure.js").FigureBox} box */
  enter(stack, box) {
    this.entering = box.holds;
    this.host.set({ stack, cell: null });
  }
}
