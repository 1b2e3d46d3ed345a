// @ts-check
// "Look inside" a chosen sentence: the walk through the network, made when it is first opened.

import { element } from "./dom.js";
import { t } from "./texts.js";
import { WalkView } from "./walk.js";

/** @typedef {{stack: string, layer: number, head: number, step: string, cell: [number, number] | null}} Place */

export class Inside {
  /**
   * @param {import("./figure.js").Figure} figure
   * @param {(where: {stack: string, layer: number, head: number}) => Promise<{walk?: any, error?: string}>} ask
   * @param {() => string} theme
   */
  constructor(figure, ask, theme) {
    Object.assign(this, { figure, ask, theme });
    /** @type {Place} */
    this.place = { stack: Object.keys(figure)[0], layer: 0, head: 0, step: "", cell: null };
    this.button = element("button", { type: "button", id: "look", "aria-expanded": "false", "aria-controls": "inside", onclick: () => this.open(this.panel.hidden) }, t("look-inside"));
    this.layer = element("select", { onchange: () => this.set({ layer: Number(this.layer.value) }) });
    this.head = element("select", { onchange: () => this.set({ head: Number(this.head.value) }) });
    this.choices = element("div", { class: "actions" }, element("label", {}, `${t("layer")} `, this.layer), element("label", {}, `${t("head")} `, this.head));
    this.panel = element("div", { id: "inside", hidden: true });
    this.node = element("section", { class: "look-inside", "aria-label": t("inside") }, element("p", {}, this.button, element("span", { class: "quiet" }, ` ${t("about-inside")}`)), this.panel);
    /** @type {WalkView | null} */
    this.view = null;
    this.waiting = false;
  }

  /** Show or hide the walk. @param {boolean} now @param {Place} [place] */
  open(now, place = this.place) {
    this.place = place;
    this.panel.hidden = !now;
    this.button.setAttribute("aria-expanded", String(now));
    if (!now) return;
    if (!this.view) {
      const host = { figure: this.figure, ask: (/** @type {string} */ stack, /** @type {number} */ layer, /** @type {number} */ head) => this.ask({ stack, layer, head }), set: (/** @type {Partial<Place>} */ changes) => this.set(changes) };
      this.view = new WalkView(host);
      this.panel.replaceChildren(this.choices, this.view.node);
    }
    this.update();
  }

  /** Another sentence. */
  forget() {
    this.view?.forget();
    this.place.cell = null;
    this.update();
  }

  /** @param {Partial<Place>} changes */
  set(changes) {
    Object.assign(this.place, changes);
    const { layers, heads } = this.figure[this.place.stack];
    this.place.layer = Math.min(this.place.layer, layers - 1);
    this.place.head = Math.min(this.place.head, heads[this.place.layer] - 1);
    if (this.waiting) return;
    this.waiting = true;
    queueMicrotask(() => {
      this.waiting = false;
      this.update();
    });
  }

  update() {
    if (!this.view || this.panel.hidden) return;
    const { layers, heads } = this.figure[this.place.stack];
    fill(this.layer, layers, this.place.layer);
    fill(this.head, heads[this.place.layer], this.place.head);
    this.view.update({ state: this.place, theme: this.theme() });
  }
}

/** Numbers to choose from. @param {HTMLSelectElement} select @param {number} count @param {number} chosen */
function fill(select, count, chosen) {
  if (select.options.length !== count) select.replaceChildren(...Array.from({ length: count }, (_, i) => element("option", { value: i }, String(i))));
  select.value = String(chosen);
}
