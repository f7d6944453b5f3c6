"use strict";
(() => {
  const tip = document.getElementById("tip");
  let on = null;
  const hide = () => { tip.hidden = true; if (on) on.classList.remove("on"); on = null; };
  const show = (mark, x, y) => {
    if (on !== mark) {
      if (on) on.classList.remove("on");
      on = mark;
      on.classList.add("on");
      tip.textContent = mark.dataset.tip;
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(Math.max(6, x + 12), innerWidth - box.width - 6);
    const top = y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18;
    tip.style.transform = `translate(${left}px, ${Math.max(6, top)}px)`;
  };
  for (const chart of document.querySelectorAll("svg.chart")) {
    const marks = [...chart.querySelectorAll("[data-tip]")];
    const near = event => {
      let best = null, least = 26;
      for (const mark of marks) {
        const box = mark.getBoundingClientRect();
        const dx = Math.max(box.left - event.clientX, 0, event.clientX - box.right);
        const dy = Math.max(box.top - event.clientY, 0, event.clientY - box.bottom);
        const far = Math.hypot(dx, dy) + (mark.tagName === "path" ? 0 : 1);
        if (far < least) { best = mark; least = far; }
      }
      if (best) show(best, event.clientX, event.clientY); else hide();
    };
    chart.addEventListener("pointermove", near);
    chart.addEventListener("pointerdown", near);
    chart.addEventListener("pointerleave", hide);
    const steps = marks.filter(mark => mark.tagName === "path");
    chart.addEventListener("keydown", event => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!by || !steps.length) return;
      event.preventDefault();
      const from = steps.indexOf(on);
      const mark = steps[from < 0 ? (by > 0 ? 0 : steps.length - 1) : (from + by + steps.length) % steps.length];
      const box = mark.getBoundingClientRect();
      show(mark, box.right, box.bottom - 12);
    });
    chart.addEventListener("blur", hide);
  }
  addEventListener("scroll", hide, { passive: true });
  const value = cell => { const text = cell.textContent.trim(); const n = parseFloat(text.replace(/,/g, "")); return /^-?[\d.]/.test(text) && !isNaN(n) ? n : text; };
  const compare = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const sorted = [...rows].sort((a, b) => compare(value(a.cells[place]), value(b.cells[place])));
        body.append(...(down ? sorted.reverse() : sorted));
      });
    });
    const label = document.createElement("label"), field = document.createElement("input");
    field.type = "search";
    label.className = "filter";
    label.append("Show rows with ", field);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
    });
    table.parentElement.before(label);
  }
  const folded = () => [...document.querySelectorAll("details")];
  let closed = [];
  addEventListener("beforeprint", () => { closed = folded().filter(one => !one.open); closed.forEach(one => { one.open = true; }); });
  addEventListener("afterprint", () => { closed.forEach(one => { one.open = false; }); });
})();
