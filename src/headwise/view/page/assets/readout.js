// @ts-check
// Beside the attention views: what the chosen token attends to, in words and numbers; also for screen readers.

import { element } from "./dom.js";
import { greatest } from "./inspection.js";
import { numbered, percent } from "./pieces.js";
import { active } from "./state.js";
import { t } from "./texts.js";

const SHOWN = 6;

export class Readout {
  constructor() {
    this.title = element("h3", {});
    this.bars = element("ol", { class: "bars" });
    this.spoken = element("p", { class: "spoken", "aria-live": "polite" });
    this.node = element("div", { class: "readout", role: "group", "aria-label": t("chosen-token") }, this.title, this.bars, this.spoken);
    this.said = "";
  }

  /**
   * @param {import("./inspection.js").Weights} weights
   * @param {string[]} queries texts of the rows
   * @param {string[]} keys texts of the columns
   * @param {import("./pane.js").Seen} seen
   */
  update(weights, queries, keys, { state, what }) {
    const mark = active(state);
    const [own, others] = mark?.side === "k" ? [keys, queries] : [queries, keys];
    if (!mark || mark.index >= own.length) {
      this.title.textContent = t("point-at-token");
      this.bars.replaceChildren();
      return;
    }
    const verb = t(mark.side === "q" ? "attends-to" : "attended-by");
    const found = greatest(weights, mark, SHOWN);
    this.title.replaceChildren(element("bdi", {}, numbered(own, mark.index)), ` ${verb}`);
    this.bars.replaceChildren(...found.map(({ index, weight }) => bar(numbered(others, index), weight)));
    if (state.fix && !state.hover) this.say(`${what}: ${numbered(own, mark.index)} ${verb} ${found.slice(0, 3).map(({ index, weight }) => `${numbered(others, index)} ${percent(weight)}`).join(", ")}`);
  }

  /** @param {string} text */
  say(text) {
    if (text !== this.said) this.spoken.textContent = text;
    this.said = text;
  }
}

/** @param {string} text @param {number} weight */
function bar(text, weight) {
  const fill = element("span", { class: "bar" });
  fill.style.setProperty("--weight", `${100 * weight}%`);
  return element("li", {}, element("span", { dir: "auto" }, text), fill, element("span", { class: "numbers" }, percent(weight)));
}
