// @ts-check
// The tour for a chosen sentence, made when it is first opened. The address has its card and settings.

import { element } from "./dom.js";
import { readHash } from "./state.js";
import { t } from "./texts.js";
import { TourView } from "./tour.js";

export class Guide {
  /**
   * @param {Omit<import("./tour.js").TourHost, "set">} host
   * @param {() => string} theme
   * @param {(place: any, shown: boolean, reader: boolean) => void} keep what is shown, for the address, and whether the reader chose it
   */
  constructor(host, theme, keep) {
    this.host = host;
    this.theme = theme;
    this.keep = keep;
    const { card, knob, language, cell } = readHash(location.hash);
    this.place = { card, knob, language, cell };
    this.button = element("button", { type: "button", id: "guide", "aria-expanded": "false", "aria-controls": "tour-panel", onclick: () => this.open(this.panel.hidden) }, t("open-tour"));
    this.panel = element("div", { id: "tour-panel", hidden: true });
    this.node = element("section", { class: "look-inside", "aria-label": t("open-tour") }, element("p", {}, this.button, element("span", { class: "quiet" }, ` ${t("about-tour")}`)), this.panel);
    /** @type {TourView | null} */
    this.view = null;
  }

  /** Show or hide the tour. @param {boolean} now @param {boolean} [reader] whether the reader wants it */
  open(now, reader = true) {
    this.panel.hidden = !now;
    this.button.setAttribute("aria-expanded", String(now));
    if (now && !this.view) {
      this.view = new TourView(Object.assign(this.host, { set: (/** @type {any} */ changes) => this.set(changes) }));
      this.panel.replaceChildren(this.view.node);
    }
    this.set({}, reader);
  }

  /** Where the address leads. @param {import("./state.js").State} state */
  go({ view, card, knob, cell }) {
    Object.assign(this.place, { card, knob, cell });
    this.open(view === "tour", false);
  }

  /** Another sentence. @param {import("./tour.js").TourHost["aligns"]} aligns the head that aligns its words */
  forget(aligns) {
    this.host.aligns = aligns;
    this.view?.forget();
    if (!this.panel.hidden) this.set({ cell: null });
  }

  /** @param {any} changes @param {boolean} [reader] */
  set(changes, reader = true) {
    Object.assign(this.place, changes);
    this.keep(this.place, !this.panel.hidden, reader);
    this.update();
  }

  update() {
    if (!this.panel.hidden) this.view?.update({ state: this.place, theme: this.theme() });
  }
}
