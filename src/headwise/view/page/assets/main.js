// @ts-check
// Where the page begins: data, state, panes, and what changes them.

import { forgetColours } from "./colours.js";
import { Controls } from "./controls.js";
import { element } from "./dom.js";
import { Inspection } from "./inspection.js";
import { helpDialog, keyChange } from "./keyboard.js";
import { Live } from "./live.js";
import { Pane, VIEWS } from "./pane.js";
import { START, Store, beginWith, keepAddress, pointsOut, readHash, writeHash } from "./state.js";
import { translatePage } from "./texts.js";

/** @type {{inspections: any[], live: any, start: any}} */
const data = JSON.parse(document.getElementById("data")?.textContent ?? "{}");
const abouts = (data.live?.models ?? data.inspections).map((/** @type {any} */ { about }) => about);
const views = Object.keys(VIEWS).filter((name) => abouts.some(VIEWS[name].fits ?? (() => true)));
beginWith({ view: views[0] ?? START.view, part: firstPart(abouts[0]), ...data.start });
let opened = pointsOut(location.hash) || "layer" in data.start;
const store = new Store(addressed());
const darkness = matchMedia("(prefers-color-scheme: dark)");
const help = helpDialog();
const controls = new Controls(store, views, () => help.showModal());
const live = data.live ? new Live(store, data.live, () => refresh()) : null;
const panes = live?.panes ?? data.inspections.map(() => new Pane(store));
const body = element("div", { class: panes.length > 1 ? "panes several" : "panes" }, ...panes.map((pane) => pane.node));
let theme = "";

/** Draw what the state says. */
function refresh() {
  const inspections = panes.flatMap((pane) => (pane.inspection ? [pane.inspection] : []));
  if (inspections.length && !opened) open(inspections[0]);
  const { state } = store;
  useTheme(state.theme);
  controls.update(inspections, state);
  for (const pane of panes) pane.update(state, theme);
  live?.update(state);
  keepAddress(writeHash(state));
}

/** Begin where something is to be seen: on the head that aligns words, with the first piece held. @param {Inspection} inspection */
function open(inspection) {
  opened = true;
  const { layer, head } = store.state.part === "cross" && store.state.view !== "alignment" ? inspection.data.aligns : store.state;
  store.set({ layer, head, fix: { side: "q", index: 0 } });
}

/** @param {string} wanted */
function useTheme(wanted) {
  document.documentElement.dataset.theme = wanted;
  const now = wanted === "auto" ? (darkness.matches ? "dark" : "light") : wanted;
  if (now !== theme) forgetColours();
  theme = now;
}

/** The attention to begin with: between two texts, else the only one. @param {import("./pane.js").About | undefined} about */
function firstPart({ reads, writes } = { reads: "pieces", writes: true, traced: true, walk: false }) {
  return reads && writes ? "cross" : reads ? "encoder" : "decoder";
}

/** The state of the address, whose view exists. */
function addressed() {
  const state = readHash(location.hash);
  if (!views.includes(state.view)) state.view = START.view;
  keepAddress(writeHash(state), false);
  return state;
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
  if (event.key === "?") return help.showModal();
  if (store.state.view === "tour" && event.key.startsWith("Arrow")) return; // they scroll
  const along = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const walking = panes.find((pane) => pane.view?.move)?.view;
  if (along && walking?.move) {
    event.preventDefault();
    return walking.move(along);
  }
  const inspections = panes.flatMap((pane) => (pane.inspection ? [pane.inspection] : []));
  const change = inspections.length ? keyChange(event, store.state, inspections, views) : null;
  if (!change) return;
  event.preventDefault();
  store.set(change);
}

document.getElementById("page")?.append(controls.node, ...(live ? [live.node] : []), body, help);
translatePage();
store.subscribe(refresh);
addEventListener("keydown", onKey);
addEventListener("hashchange", () => store.set(addressed()));
addEventListener("resize", () => store.set({}));
darkness.addEventListener("change", () => store.set({}));
const read = await Promise.all(data.inspections.map(Inspection.read));
read.forEach((inspection, index) => panes[index].show(inspection));
refresh();
document.documentElement.dataset.ready = "1";
