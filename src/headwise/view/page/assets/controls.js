// @ts-check
// The rows of buttons above the views: which view, which part of the model, which layer, which head.

import { choice, element, focusOf } from "./dom.js";
import { ATTENTIONS, PARTS, ROWS, UNITS } from "./inspection.js";
import { VIEWS, partOf, unitOf } from "./pane.js";
import { offerLanguages, t } from "./texts.js";
import { splitsWords } from "./words.js";

export class Controls {
  /** @param {import("./state.js").Store} store @param {string[]} names of the views @param {() => void} help */
  constructor(store, names, help) {
    this.store = store;
    this.names = names;
    this.views = element("nav", { class: "views", "aria-label": t("views") });
    this.choices = element("div", { class: "choices" });
    this.theme = element("button", { type: "button", class: "quiet", onclick: () => store.set({ theme: nextTheme(store.state.theme) }) });
    const helpButton = element("button", { type: "button", class: "quiet", "aria-label": t("help"), title: t("help"), onclick: help }, "?");
    const languages = element("select", { class: "languages", "aria-label": t("choose-language"), hidden: location.protocol === "about:" }); // a frame in a notebook has no address
    offerLanguages(languages, () => location.reload());
    const name = element("h1", { class: "name" }, "Headwise");
    this.node = element("header", { class: "top" }, element("div", { class: "bar-top" }, name, this.views, element("span", { class: "space" }), languages, this.theme, helpButton), this.choices);
    this.shown = "";
  }

  /**
   * @param {import("./inspection.js").Inspection[]} inspections
   * @param {import("./state.js").State} state
   */
  update(inspections, state) {
    const options = available(inspections, state);
    const { view, part, stack, layer, head, walkLayer, walkHead, row, unit, theme } = state;
    const shown = JSON.stringify([options, view, part, stack, layer, head, walkLayer, walkHead, row, unit, theme]);
    if (shown === this.shown) return; // rebuilding buttons would take the focus away from them
    this.shown = shown;
    const focused = focusOf(this.node);
    this.theme.textContent = t(`theme-${theme}`);
    this.theme.setAttribute("aria-label", t("theme", { theme: t(`theme-${theme}`).slice(2) }));
    this.views.replaceChildren(...this.names.map((name) => this.viewButton(name, t(`view-${name}`), view)));
    this.choices.replaceChildren(...this.rows(options, state));
    focused(this.node);
  }

  /** @param {string} name @param {string} text @param {string} chosen */
  viewButton(name, text, chosen) {
    return element("button", { type: "button", "data-key": `view ${name}`, "aria-current": name === chosen ? "page" : null, onclick: () => this.store.set({ view: name, hover: null }) }, text);
  }

  /** @param {{parts: string[], stacks: string[], layers: number[], heads: number, best: {layer: number | null, head: number | null} | null, splits: boolean}} options @param {import("./state.js").State} state */
  rows({ parts, stacks, layers, heads, best, splits }, state) {
    const walking = state.view === "walk"; // through one layer and one head, never a mean
    const { stack } = state;
    const numbers = (/** @type {number[]} */ found, mean = t("mean")) => [...(walking ? [] : [{ value: null, text: mean }]), ...found.map((value) => ({ value, text: String(value) }))];
    const { layer, ...chosen } = walking ? { layer: layers.find((number) => number === state.walkLayer) ?? 0, head: state.walkHead < heads ? state.walkHead : 0 } : state;
    const shown = best ?? { layer, head: chosen.head };
    const all = {
      part: () => choice(t("choose-attention"), parts.map((value) => ({ value, text: ATTENTIONS[value] })), partOf(state), (part) => this.store.set({ part, fix: null, hover: null })),
      stack: () => choice(t("choose-stack"), stacks.map((value) => ({ value, text: t(`stack-${value}`) })), stacks.includes(stack) ? stack : stacks[0], (stack) => this.store.set({ stack, cell: null })),
      layer: () => choice(t("choose-layer"), numbers(layers, best ? t("best") : t("mean")), layer, (layer) => this.store.set(walking ? { walkLayer: layer, cell: null } : { layer })),
      row: () => choice(t("choose-step"), [{ value: "", text: t("step-auto") }, ...ROWS.map((value) => ({ value, text: t(`step-${value}`) }))], state.row, (row) => this.store.set({ row })),
      head: () => choice(t("choose-head"), numbers(Array.from({ length: heads }, (_, head) => head)), shown.head, (head) => this.store.set(walking ? { walkHead: head, cell: null } : { layer: shown.layer, head })),
      unit: () => choice(t("choose-unit"), UNITS.map((value) => ({ value, text: t(`unit-${value}`) })), unitOf(state), (unit) => this.store.set({ unit, fix: null, hover: null })),
    };
    return VIEWS[state.view].choices.filter((name) => name !== "unit" || splits).map((name) => /** @type {any} */ (all)[name]());
  }
}

/**
 * What any of the translations shown has.
 * @param {import("./inspection.js").Inspection[]} inspections
 * @param {import("./state.js").State} state
 */
export function available(inspections, state) {
  const part = partOf(state);
  const stacks = [...new Set(inspections.flatMap((inspection) => Object.keys(inspection.figure)))];
  if (state.view === "walk") {
    const walked = inspections.map((inspection) => inspection.walked(stacks.includes(state.stack) ? state.stack : stacks[0]));
    return { parts: [], stacks, best: null, splits: false, layers: [...new Set(walked.flatMap((one) => one.layers))].sort((one, other) => one - other), heads: Math.max(0, ...walked.map((one) => one.heads)) };
  }
  const layers = new Set(inspections.flatMap((inspection) => inspection.layers(part)));
  const aligning = state.view === "alignment" ? inspections.find(({ data }) => data.aligns.layer !== null) : null;
  return {
    stacks,
    best: aligning?.alignmentHead(state) ?? null,
    splits: inspections.some((inspection) => splitsWords(inspection, part)),
    parts: PARTS.filter((name) => state.view !== "sound" || name !== "decoder").filter((name) => inspections.some((inspection) => inspection.parts().includes(name))),
    layers: [...layers].sort((one, other) => one - other),
    heads: Math.max(0, ...inspections.map((inspection) => inspection.heads(part, state.layer))),
  };
}

/** @param {string} theme */
export function nextTheme(theme) {
  return { auto: "light", light: "dark" }[theme] ?? "auto";
}
