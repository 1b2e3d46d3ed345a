// @ts-check
// A box for what may be larger than the page: its edges fade and arrows stand there where more is to be seen.

import { element } from "./dom.js";
import { t } from "./texts.js";

const STRIDE = 0.8; // share of the visible width that an arrow goes on by

export class ScrollBox {
  /** @param {string} label for screen readers @param {...(Node | string)} children */
  constructor(label, ...children) {
    this.box = element("div", { class: "scroll", role: "group", "aria-label": label, onscroll: () => this.update() }, ...children);
    this.back = this.arrow("‹", t("scroll-back"), -1);
    this.on = this.arrow("›", t("scroll-on"), 1);
    this.node = element("div", { class: "scroll-frame" }, this.box, this.back, this.on);
    new ResizeObserver(() => requestAnimationFrame(() => this.update())).observe(this.box); // not within its own round
  }

  /** @param {...(Node | string)} children in place of those before */
  fill(...children) {
    this.box.replaceChildren(...children);
    this.update();
  }

  /** Show on which sides there is more. */
  update() {
    const { scrollLeft, scrollTop, scrollWidth, scrollHeight, clientWidth, clientHeight } = this.box;
    const more = { before: scrollLeft > 1, after: scrollLeft + clientWidth < scrollWidth - 1, above: scrollTop > 1, below: scrollTop + clientHeight < scrollHeight - 1 };
    for (const [side, is] of Object.entries(more)) this.box.classList.toggle(`more-${side}`, is);
    this.back.hidden = !more.before;
    this.on.hidden = !more.after;
    if (Object.values(more).some(Boolean)) this.box.tabIndex = 0; // so that the keyboard can scroll it, too
    else this.box.removeAttribute("tabindex");
  }

  /** @param {string} text @param {string} name @param {number} direction */
  arrow(text, name, direction) {
    const go = () => this.box.scrollBy({ left: direction * STRIDE * this.box.clientWidth });
    return element("button", { type: "button", class: `scroll-arrow ${direction < 0 ? "back" : "on"}`, "aria-label": name, title: name, tabindex: "-1", hidden: true, onclick: go }, text);
  }
}
