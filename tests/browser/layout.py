"""What a picture of a page would show, asked of the page itself: nothing is wider than the window, no text is cut or
lies on another, every outline of the focus is inside. Pictures differ between fonts and browsers; these facts do not.

Screenshots are in build/screenshots, for a person to look at.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from browser.test_page import CUT_OUTLINES

HEIGHTS = {390: 844, 768: 1024, 1366: 768}  # of a window, by its width
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
# Texts that are cut, that leave their button or their pane, or that overlap. Text that scrolls or has an ellipsis
# may be longer than its box, arrows stand over such boxes, and what is sticky stands over what is scrolled.
TEXT_FAULTS = """() => {
  const texts = [], faults = [];
  const meet = (a, b) => ({ left: Math.max(a.left, b.left), top: Math.max(a.top, b.top),
    right: Math.min(a.right, b.right), bottom: Math.min(a.bottom, b.bottom) });
  const within = (a, b, room) => a.left >= b.left - room && a.right <= b.right + room
    && a.top >= b.top - room && a.bottom <= b.bottom + room;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    const unseen = "script, style, noscript, .spoken, .scroll-arrow, math, option";
    if (!node.data.trim() || parent.closest(unseen) || !parent.checkVisibility({ visibilityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const lines = [...range.getClientRects()];
    let open = { left: -1e9, top: -1e9, right: 1e9, bottom: 1e9 }, sticky = null;
    for (let at = parent; at && at !== document.body; at = at.parentElement) {
      const { overflow, overflowX, position, textOverflow } = getComputedStyle(at);
      if (position === "sticky") sticky ??= at;
      if (overflow === "visible") continue;
      const box = at.getBoundingClientRect();
      const longer = ["auto", "scroll"].includes(overflowX) || textOverflow === "ellipsis" || at.tagName === "svg";
      if (!longer && lines.some((line) => !within(line, box, 1))) faults.push(`cut: ${node.data}`);
      open = meet(open, box);
    }
    const seen = lines.map((line) => meet(line, open)).filter((a) => a.right - a.left > 1 && a.bottom - a.top > 1);
    const holder = parent.closest("button, .box, .pane, .top, .live, summary");
    const outer = (holder?.querySelector(":scope > rect") ?? holder)?.getBoundingClientRect();
    if (outer && seen.some((line) => !within(line, outer, 2))) faults.push(`outside: ${node.data}`);
    texts.push(...seen.map((line) => ({ node, sticky, line })));
  }
  texts.forEach((one, at) => texts.slice(at + 1).forEach((other) => {
    if (one.node === other.node || one.sticky !== other.sticky) return;
    const { left, top, right, bottom } = meet(one.line, other.line);
    const least = Math.min(one.line.bottom - one.line.top, other.line.bottom - other.line.top);
    if (right - left > 2 && bottom - top > 0.3 * least) faults.push(`${one.node.data} on ${other.node.data}`);
  }));
  return faults;
}"""
# All that is drawn, and where. Pixels of two loads may differ in antialiasing: the browser paints in parts.
DRAWN = """() => [...document.body.querySelectorAll("*")].map((node) => {
  const { x, y, width, height } = node.getBoundingClientRect();
  const texts = [...node.childNodes].filter(({ nodeType }) => nodeType === Node.TEXT_NODE).map(({ data }) => data);
  const values = [...node.attributes].map(({ value }) => value);
  return [node.tagName, ...values, x, y, width, height, ...texts, node.toDataURL?.() ?? ""].join(" ");
})"""


def check_layout(open_page: Callable[[int], Any], name: str) -> None:
    """Check a page at every width, and that it is the same when `open_page` opens it anew."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for width in HEIGHTS:
        before, shown = open_page(width), open_page(width)
        settled(before)
        settled(shown)
        drawn = (before.evaluate(DRAWN), shown.evaluate(DRAWN))
        shown.screenshot(path=SCREENSHOTS / f"{name}-{width}.png", full_page=True, animations="disabled")
        assert [pair for pair in zip(*drawn, strict=True) if pair[0] != pair[1]] == [], width
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        assert shown.evaluate(TEXT_FAULTS) == [], width
        assert shown.evaluate(CUT_OUTLINES) == [], width


def settled(shown: Any) -> None:
    """Wait until nothing is drawn any more: the boxes measure themselves once more after a frame."""
    for _ in range(3):
        shown.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
