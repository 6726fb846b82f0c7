"use strict";
// The list of grades, its filters, and one grade. Text from candidates is only ever set as text: no markup is parsed here.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const VERDICTS = ["pass", "fail", "void"];
  const SIGNS = { pass: "✓", fail: "✗", void: "○" };
  const STATES = ["checked", "unchecked", "broken"];
  const STATE_SIGNS = { checked: "✓", unchecked: "–", broken: "✗" };
  const FACETS = ["benchmark", "condition", "verdict", "signature", "flag"];
  const BEYOND = 8; // rows kept above and below what is seen
  const PRINTED = 1000;
  const text = (place) => data.strings[place];
  const by = (id) => document.getElementById(id);

  const grades = data.rows.map((row, index) => {
    const grade = {
      index,
      benchmark: text(row[0]),
      condition: text(row[1]),
      instance: text(row[2]),
      repeat: row[3],
      verdict: VERDICTS[row[4]],
      status: text(row[5]),
      reason: text(row[6]),
      score: row[7],
      seconds: row[8],
      signatures: row[9].map(text),
      flags: row[10].map(text),
      snapshot: text(row[11]),
    };
    grade.id = `${grade.benchmark}/${grade.condition}/${grade.instance}/${grade.repeat}`;
    grade.search = [grade.id, grade.status, grade.reason, grade.snapshot, ...grade.signatures, ...grade.flags]
      .join("\n")
      .toLowerCase();
    return grade;
  });

  const values = {
    benchmark: (grade) => [grade.benchmark],
    condition: (grade) => [grade.condition],
    verdict: (grade) => [grade.verdict],
    signature: (grade) => grade.signatures,
    flag: (grade) => grade.flags,
  };
  const orders = {
    verdict: (a, b) => a.verdict.localeCompare(b.verdict),
    instance: (a, b) => a.instance.localeCompare(b.instance, "en", { numeric: true }),
    score: (a, b) => (a.score ?? -1) - (b.score ?? -1),
    seconds: (a, b) => (b.seconds ?? -1) - (a.seconds ?? -1),
  };

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key === "class") made.className = value;
      else made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  const badge = (verdict) => element("span", { class: `verdict ${verdict}` }, `${SIGNS[verdict]} ${verdict}`);
  // A reason may begin with its status.
  const why = (grade) => (grade.reason.startsWith(`${grade.status}: `) ? grade.reason : `${grade.status}: ${grade.reason}`);
  const shown = (score) => (score === null ? "" : Number.isInteger(score) ? `${score}` : score.toFixed(3));

  // Filters: what is chosen, and how many grades each further choice would leave.

  const chosen = { search: "", order: "" };
  let found = grades;

  function passes(grade, but) {
    if (chosen.search && !chosen.search.split(/\s+/).every((word) => grade.search.includes(word))) return false;
    return FACETS.every((name) => name === but || !chosen[name] || values[name](grade).includes(chosen[name]));
  }

  function fill(name) {
    const counts = new Map();
    for (const grade of grades) for (const value of values[name](grade)) if (!counts.has(value)) counts.set(value, 0);
    for (const grade of grades)
      if (passes(grade, name)) for (const value of values[name](grade)) counts.set(value, counts.get(value) + 1);
    let entries = [...counts];
    if (name === "signature" || name === "flag") entries.sort((a, b) => b[1] - a[1]);
    const select = by(`by-${name}`);
    const all = element("option", { value: "" }, name === "flag" || name === "signature" ? "any" : "all");
    const options = entries.map(([value, count]) => {
      const label = value.length > 90 ? `${value.slice(0, 89)}…` : value;
      const option = element("option", { value }, `${label} (${count})`);
      option.disabled = count === 0 && value !== chosen[name];
      return option;
    });
    select.replaceChildren(all, ...options);
    select.value = chosen[name] || "";
    select.disabled = entries.length === 0;
    select.classList.toggle("on", Boolean(chosen[name]));
  }

  function apply() {
    found = grades.filter((grade) => passes(grade));
    if (chosen.order) found = [...found].sort(orders[chosen.order]);
    FACETS.forEach(fill);
    by("search").classList.toggle("on", Boolean(chosen.search));
    by("count").textContent =
      found.length === grades.length
        ? `${grades.length} grades`
        : `${found.length} of ${grades.length} grades`;
    cursor = Math.max(0, found.findIndex((grade) => grade === opened));
    list.scrollTop = 0;
    draw();
  }

  // The list: only the rows that can be seen exist.

  const list = by("list");
  const spacer = by("spacer");
  let cursor = 0;
  let opened = null;
  let height = 0;

  function draw() {
    height = parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row"));
    spacer.style.height = `${found.length * height}px`;
    // Headings stand over their columns, whether a scroll bar takes room or not.
    by("heads").style.marginRight = `${list.offsetWidth - list.clientWidth}px`;
    const first = Math.max(0, Math.floor(list.scrollTop / height) - BEYOND);
    const last = Math.min(found.length, Math.ceil((list.scrollTop + list.clientHeight) / height) + BEYOND);
    if (!found.length) {
      spacer.replaceChildren(element("p", { class: "empty" }, "No grade is like that."));
      list.removeAttribute("aria-activedescendant");
      return;
    }
    const rows = [];
    for (let place = first; place < last; place++) rows.push(rowAt(place));
    spacer.replaceChildren(...rows);
    if (cursor >= first && cursor < last) list.setAttribute("aria-activedescendant", `case-${cursor}`);
    else list.removeAttribute("aria-activedescendant");
  }

  function rowAt(place) {
    const grade = found[place];
    const marks = grade.flags.length ? element("span", { class: "mark", title: grade.flags.join(", ") }, " ⚑") : null;
    const more = grade.signatures.length > 1 ? ` (+${grade.signatures.length - 1})` : "";
    const reasons = element("span", { class: "why" }, element("bdi", {}, why(grade)));
    // A grade without failed checks has its reason for a signature: once is enough.
    const signatures = grade.signatures.filter((signature) => !signature.startsWith(`${grade.status}: `));
    if (signatures.length) reasons.append(element("bdi", { class: "mono" }, signatures[0] + more));
    const row = element(
      "div",
      {
        class: place === cursor ? "case at" : "case",
        id: `case-${place}`,
        role: "option",
        "aria-selected": String(grade === opened),
        "aria-setsize": found.length,
        "aria-posinset": place + 1,
      },
      element("span", {}, badge(grade.verdict)),
      element("span", {}, element("bdi", {}, grade.condition), marks),
      element("span", { class: "instance" }, element("bdi", {}, grade.instance), element("span", { class: "sub" }, ` · ${grade.repeat}`)),
      reasons,
      element("span", { class: "number score" }, shown(grade.score)),
    );
    row.style.top = `${place * height}px`;
    row.dataset.place = place;
    return row;
  }

  function reveal(place) {
    cursor = Math.min(Math.max(place, 0), found.length - 1);
    const top = cursor * height;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + height > list.scrollTop + list.clientHeight) list.scrollTop = top + height - list.clientHeight;
    draw();
  }

  // One grade.

  function section(title, ...children) {
    return [element("h3", {}, title), ...children];
  }

  // A name of a file that leads anywhere but below the grade's own folder, or to another scheme, is text and no link.
  function fileLink(folder, name, label) {
    const parts = name.split("/");
    const inside = parts.every((part) => part && part !== "." && part !== ".." && !/[\\\u0000-\u001f]/.test(part));
    if (!inside) return element("bdi", { class: "mono" }, name);
    const href = [folder, ...parts.map(encodeURIComponent)].join("/");
    const link = element("a", { href, rel: "noopener noreferrer", target: "_blank" }, element("bdi", {}, label || name));
    // What a browser might run is saved, not opened.
    if (!/\.(json|log|txt|csv)$/.test(name)) link.setAttribute("download", "");
    return link;
  }

  function command(lines) {
    const block = element("pre", {}, lines);
    const button = element("button", { type: "button" }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(lines);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(block);
        button.textContent = "Selected";
      }
    });
    return element("div", { class: "command" }, block, button);
  }

  function checksTable(checks, total) {
    const passed = checks.filter((check) => check[1] === 0).length;
    const body = checks.map(([id, verdict, signature, note]) =>
      element(
        "tr",
        {},
        element("td", {}, badge(VERDICTS[verdict])),
        element("td", {}, element("bdi", {}, text(id))),
        element("td", {}, element("bdi", { class: "mono" }, text(signature)), element("div", { class: "soft" }, text(note))),
      ),
    );
    const said =
      total > checks.length
        ? `${checks.length} of ${total} checks, those that did not pass first; all of them are in grade.json`
        : `${passed} of ${total} pass`;
    return element(
      "div",
      { class: "wide" },
      element(
        "table",
        {},
        element("caption", {}, said),
        element("thead", {}, element("tr", {}, ...["verdict", "check", "signature"].map((name) => element("th", { scope: "col" }, name)))),
        element("tbody", {}, ...body),
      ),
    );
  }

  function chainList(links) {
    return element(
      "ul",
      { class: "chain" },
      ...links.map(([name, state, value, note]) =>
        element(
          "li",
          { class: STATES[state] },
          element("span", { class: "state", role: "img", "aria-label": STATES[state], title: STATES[state] }, STATE_SIGNS[STATES[state]]),
          element(
            "span",
            {},
            element("strong", {}, text(name)),
            " ",
            element("span", { class: "note" }, element("bdi", {}, text(note))),
            element("div", { class: "value" }, text(value)),
          ),
        ),
      ),
    );
  }

  function flagList(flags) {
    return element("ul", { class: "chips", "aria-label": "Flags" }, ...flags.map((flag) => element("li", {}, element("bdi", {}, flag))));
  }

  function factList(facts) {
    const pairs = facts.flatMap(([name, value]) => [
      element("dt", {}, text(name)),
      element("dd", {}, element("bdi", {}, text(value))),
    ]);
    return element("dl", {}, ...pairs);
  }

  function render(grade) {
    const [facts, checks, total, links, evidence, ran] = data.details[grade.index];
    const folder = `episodes/${[grade.benchmark, grade.condition, grade.instance, grade.repeat].map(encodeURIComponent).join("/")}`;
    const path = `${data.root}/episodes/${grade.id}`;
    const close = element("button", { type: "button" }, "Close");
    close.addEventListener("click", () => shut());
    const title = `${grade.condition} / ${grade.instance} / ${grade.repeat}`;
    const inState = (state) => links.filter((link) => STATES[link[1]] === state).length;
    const chained = inState("broken")
      ? `Chain: ${inState("broken")} of ${links.length} links broken`
      : `Chain: ${inState("checked")} of ${links.length} links checked`;
    const again = `rm ${path}/grade.json\nsnakemake ${path}/grade.json ${data.workflow}`;
    const whole = `rm -r ${path}\nsnakemake ${path}/grade.json ${data.workflow}`;
    const records = ["grade.json", "snapshot.json", "submission.tar.gz", "solved.json", "prepared.json"];
    return [
      element(
        "div",
        { class: "top" },
        element("h2", { id: "detail-title", tabindex: "-1" }, badge(grade.verdict), " ", element("bdi", {}, title)),
        close,
      ),
      element("p", { class: "soft" }, `benchmark ${grade.benchmark}`),
      element("p", { class: "reason" }, element("bdi", {}, why(grade))),
      grade.flags.length ? flagList(grade.flags) : null,
      ...(total ? section("Checks", checksTable(checks, total)) : []),
      ...(links.length ? section(chained, chainList(links)) : []),
      ...(facts.length ? section("How it was made", factList(facts)) : []),
      ...section("Run this grade again, on the same snapshot", command(again)),
      ...(grade.verdict === "void" ? section("Make the whole episode again, once the cause is gone", command(whole)) : []),
      ...(text(ran) ? section("The command that ran", command(text(ran))) : []),
      ...section(
        "Files",
        element(
          "ul",
          { class: "files" },
          ...evidence.map((name) => element("li", {}, fileLink(folder, text(name)))),
          ...(facts.length ? records : []).map((name) => element("li", {}, fileLink(folder, name))),
        ),
      ),
    ].filter(Boolean);
  }

  function open(grade, focus) {
    opened = grade;
    by("desk").classList.add("open");
    by("detail").hidden = false;
    by("detail").replaceChildren(...render(grade));
    by("detail").scrollTop = 0;
    const hash = `#${grade.id}`;
    if (decoded() !== grade.id) history.replaceState(null, "", hash);
    reveal(found.indexOf(grade));
    if (focus) by("detail-title").focus({ preventScroll: true });
  }

  function shut() {
    opened = null;
    by("desk").classList.remove("open");
    by("detail").hidden = true;
    by("detail").replaceChildren();
    history.replaceState(null, "", location.pathname + location.search);
    draw();
    list.focus({ preventScroll: true });
  }

  function decoded() {
    try {
      return decodeURIComponent(location.hash.slice(1));
    } catch {
      return location.hash.slice(1);
    }
  }

  function follow() {
    const id = decoded();
    if (!id.includes("/")) return;
    const grade = grades.find((item) => item.id === id);
    if (!grade) {
      by("count").textContent = `No such grade: ${id}`;
      return;
    }
    if (!found.includes(grade)) clear();
    open(grade, true);
    by("grades").scrollIntoView();
  }

  function clear() {
    by("filters").reset();
    for (const name of [...FACETS, "search", "order"]) chosen[name] = "";
    apply();
  }

  // What the reader does.

  let waiting = 0;
  by("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      chosen.search = event.target.value.trim().toLowerCase();
      apply();
    }, 80);
  });
  for (const name of FACETS)
    by(`by-${name}`).addEventListener("change", (event) => {
      chosen[name] = event.target.value;
      apply();
    });
  by("order").addEventListener("change", (event) => {
    chosen.order = event.target.value;
    apply();
  });
  by("filters").addEventListener("submit", (event) => event.preventDefault());
  by("clear").addEventListener("click", (event) => {
    event.preventDefault();
    clear();
  });
  let drawing = 0;
  list.addEventListener("scroll", () => {
    cancelAnimationFrame(drawing);
    drawing = requestAnimationFrame(draw);
  });
  list.addEventListener("click", (event) => {
    const row = event.target.closest(".case");
    if (!row) return;
    cursor = Number(row.dataset.place);
    open(found[cursor], matchMedia("(max-width: 900px)").matches);
  });
  list.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor(list.clientHeight / height) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves && found.length) {
      event.preventDefault();
      reveal(Math.min(Math.max(cursor + moves[event.key], 0), found.length - 1));
      if (opened) open(found[cursor], false);
    } else if ((event.key === "Enter" || event.key === " ") && found.length) {
      event.preventDefault();
      open(found[cursor], true);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && opened) shut();
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      event.preventDefault();
      by("search").focus();
    }
  });
  addEventListener("hashchange", follow);
  addEventListener("resize", draw);
  addEventListener("beforeprint", () => {
    const rows = found.slice(0, PRINTED).map((grade) =>
      element("tr", {}, ...[grade.verdict, grade.id, grade.status, grade.reason, shown(grade.score)].map((value) => element("td", {}, value))),
    );
    const cut = found.length > PRINTED ? `The first ${PRINTED} of ${found.length} grades` : `${found.length} grades`;
    const heads = ["verdict", "episode", "status", "reason", "score"].map((name) => element("th", { scope: "col" }, name));
    by("printed").replaceChildren(
      element("caption", {}, cut),
      element("thead", {}, element("tr", {}, ...heads)),
      element("tbody", {}, ...rows),
    );
  });
  addEventListener("afterprint", () => by("printed").replaceChildren());

  for (const button of document.querySelectorAll("button[data-flag]"))
    button.addEventListener("click", () => {
      clear();
      chosen.flag = button.dataset.flag;
      apply();
      by("grades").scrollIntoView();
    });

  clear();
  follow();
})();
