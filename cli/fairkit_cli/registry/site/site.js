(() => {
  const held = document.getElementById("numbers");
  if (!held) return;
  const data = JSON.parse(held.textContent), rows = new Map(data.versions.map(row => [row[0], row]));
  const before = document.getElementById("before"), after = document.getElementById("after"), out = document.getElementById("sides");
  const make = (name, text, cls) => { const one = document.createElement(name); if (text !== undefined) one.textContent = text; if (cls) one.className = cls; return one; };
  const number = value => value === null ? "-" : value.toFixed(3);
  const shown = one => one ? `${number(one[1])}${one[2] === null ? "" : ` [${number(one[2])}, ${number(one[3])}]`}` : "-";
  const change = (a, b, za, zb, better) => {
    if (!a || !b || a[1] === null || b[1] === null) return ["-", "unknown", ""];
    const d = b[1] - a[1];
    if (a[2] === null || b[2] === null) return [d.toFixed(3), "unknown", ""];
    const scale = zb / za, below = scale * Math.max(0, a[1] - a[2]), above = scale * Math.max(0, a[3] - a[1]);
    const low = d - Math.hypot(b[1] - b[2], above), high = d + Math.hypot(b[3] - b[1], below);
    const word = low <= 0 && 0 <= high ? "not significant" : better === "none" ? "different" : (high < 0) === (better === "lower") ? "better" : "worse";
    return [`${d.toFixed(3)} [${low.toFixed(3)}, ${high.toFixed(3)}]`, word, { better: "better", worse: "worse", different: "changed" }[word] || ""];
  };
  const said = row => {
    const p = make("p");
    const link = make("a", `version ${row[0]}`);
    link.href = `${row[0]}.html`;
    p.append(link, row[1] === null && row.length === 2 ? ": no certificate, so its numbers are not known" :
      `: audited ${row[3]} UTC, verdict ${row[2] || "none"}, table ${row[4]}, evidence ${row[1] === true ? "holds" : row[1] === false ? "DOES NOT HOLD" : "not checked"}`);
    return p;
  };
  const show = () => {
    const pair = [before, after].map(field => rows.get(Number(field.value)));
    out.replaceChildren();
    if (!pair[0] || !pair[1]) { out.append(make("p", "There is no such version.", "verdict inconclusive")); return; }
    out.append(said(pair[0]), said(pair[1]));
    if (pair.some(row => row.length === 2)) return;
    if (pair[0][4] !== pair[1][4]) out.append(make("p", "The audits are on different tables: differences mix models and data.", "gap"));
    const sides = pair.map(row => new Map(row[6].map(one => [one[0], one])));
    const table = make("table"), head = make("tr"), body = make("tbody");
    table.setAttribute("aria-label", "The two versions");
    for (const text of ["number", `version ${pair[0][0]}`, `version ${pair[1][0]}`, "difference", "change"]) { const th = make("th", text); th.scope = "col"; head.append(th); }
    data.titles.forEach((title, place) => {
      const [a, b] = sides.map(side => side.get(place));
      if (!a && !b) return;
      const [d, word, cls] = change(a, b, pair[0][5], pair[1][5], data.better[place]), row = make("tr"), th = make("th", title);
      th.scope = "row";
      row.append(th, make("td", shown(a)), make("td", shown(b)), make("td", d));
      const cell = make("td");
      cell.append(make("span", word, cls));
      row.append(cell);
      body.append(row);
    });
    const thead = make("thead");
    thead.append(head);
    table.append(thead, body);
    const scroll = make("div", undefined, "scroll");
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "group");
    scroll.setAttribute("aria-label", "The two versions, scrolls sideways");
    scroll.append(table);
    out.append(scroll);
  };
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.get("before")) before.value = asked.get("before");
  if (asked.get("after")) after.value = asked.get("after");
  for (const field of [before, after]) field.addEventListener("input", () => { show(); history.replaceState(null, "", `#before=${before.value}&after=${after.value}`); });
  show();
})();
