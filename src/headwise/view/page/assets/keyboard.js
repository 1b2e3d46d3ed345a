// @ts-check
// Keys. The arrows move from token to token, head to head and layer to layer; `?` shows the list.

import { available, nextTheme } from "./controls.js";
import { element } from "./dom.js";
import { partOf, unitOf } from "./pane.js";
import { t } from "./texts.js";
import { linkedUnits, unitsAlong } from "./words.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("./inspection.js").Inspection} Inspection */

const KEYS = [ // and keys of texts
  ["↑ ↓", "key-arrows"],
  ["Tab", "key-tab"],
  ["s", "key-side"],
  ["← →", "key-head"],
  ["Shift ← →", "key-layer"],
  ["a", "key-mean"],
  ["1 … 9", "key-view"],
  ["e  d  c", "key-part"],
  ["t", "key-theme"],
  ["Esc", "key-escape"],
  ["?", "key-help"],
];
const NOTES = ["note-rows", "note-why", "note-address"];

/** The dialog with keys and notes. @returns {HTMLDialogElement} */
export function helpDialog() {
  const rows = KEYS.map(([key, text]) => element("tr", {}, element("th", { scope: "row" }, element("kbd", {}, key)), element("td", {}, t(text))));
  const close = element("button", { type: "button", onclick: () => dialog.close() }, t("close"));
  const dialog = element("dialog", { "aria-label": t("help") }, element("h2", {}, t("keys-title")), element("table", { class: "keys" }, element("tbody", {}, ...rows)), ...NOTES.map((note) => element("p", {}, t(note))), close);
  return dialog;
}

/**
 * What a key changes; null where it means nothing here.
 * @param {KeyboardEvent} event
 * @param {State} state
 * @param {Inspection[]} inspections
 * @param {string[]} views names of those on this page
 * @returns {Partial<State> | null}
 */
export function keyChange(event, state, inspections, views) {
  const { layers, heads, parts } = available(inspections, state);
  const part = { e: "encoder", d: "decoder", c: "cross" }[event.key];
  if (part && parts.includes(part)) return { part, fix: null, hover: null };
  if (/^[1-9]$/.test(event.key) && views[Number(event.key) - 1]) return { view: views[Number(event.key) - 1], hover: null };
  const [across, along] = [{ ArrowLeft: -1, ArrowRight: 1 }[event.key], { ArrowUp: -1, ArrowDown: 1 }[event.key]];
  const numbers = Array.from({ length: heads }, (_, head) => head);
  if (across && state.view === "walk") return event.shiftKey ? { walkLayer: beside(layers, state.walkLayer, across), cell: null } : { walkHead: beside(numbers, state.walkHead, across), cell: null };
  if (across && event.shiftKey) return { layer: neighbour(layers, state.layer, across) };
  const { layer, head } = state.view === "alignment" ? inspections[0].alignmentHead(state) : state;
  if (across) return { layer, head: neighbour(numbers, head, across) };
  if (along && state.view === "walk") return null; // the view itself knows its steps
  if (along) return { fix: nextMark(state, inspections[0], along), hover: null };
  return { a: { layer: null, head: null }, t: { theme: nextTheme(state.theme) }, s: { fix: otherSide(state), hover: null }, Escape: { fix: null, hover: null } }[event.key] ?? null;
}

/** The number before or after. @param {number[]} numbers @param {number} now @param {number} step */
function beside(numbers, now, step) {
  return numbers[Math.min(numbers.length - 1, Math.max(0, numbers.indexOf(now) + step))] ?? 0;
}

/** The number before or after; the mean stands before the first. @param {number[]} numbers @param {number | null} now @param {number} step */
function neighbour(numbers, now, step) {
  const all = [null, ...numbers];
  return all[Math.min(all.length - 1, Math.max(0, all.indexOf(now) + step))];
}

/** @param {State} state @param {Inspection} inspection @param {number} step */
function nextMark(state, inspection, step) {
  const side = state.fix?.side ?? "q";
  const length = count(state, inspection, side);
  const index = state.fix ? state.fix.index + step : step > 0 ? 0 : length - 1;
  return { side, index: Math.min(length - 1, Math.max(0, index)) };
}

/** @param {State} state @param {Inspection} inspection @param {"q" | "k"} side */
function count(state, inspection, side) {
  if (state.view === "alignment") return linkedUnits(inspection, side === "q" ? "tgt" : "src", unitOf(state)).length;
  return unitsAlong(inspection, partOf(state), side, unitOf(state)).length;
}

/** @param {State} state @returns {import("./state.js").Mark} */
function otherSide({ fix }) {
  return { side: fix?.side === "q" ? "k" : "q", index: fix?.index ?? 0 };
}
