"use strict";
// The console's only script: keys, times in the reader's zone, charts, the live tail, and checks
// before a delete. It builds elements and text nodes, never markup from text.
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const zone = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
    second: "2-digit", hour12: false,
  });

  function localTimes(from) {
    for (const one of $$("time[datetime]:not([data-local])", from)) {
      const at = new Date(one.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      one.title = `${one.dateTime.replace("T", " ").replace("Z", "")} UTC`;
      one.textContent = zone.format(at);
      one.dataset.local = "1";
    }
  }

  // --- charts -----------------------------------------------------------------------------------

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function drawCharts(from) {
    for (const figure of $$("figure[data-chart]:not([data-drawn])", from)) {
      const data = JSON.parse(figure.dataset.chart);
      figure.dataset.drawn = "1";
      const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 },
        ticks: { stroke: colour("--line"), width: 1 } };
      const width = () => Math.max(240, figure.clientWidth - 16);
      const plot = new uPlot({
        width: width(), height: 180, cursor: { y: false }, legend: { live: true },
        // Samples of one moment alone would have axes of years.
        scales: { x: { range: (_, low, high) => (high - low < 30 ? [low - 15, high + 15] : [low, high]) },
          y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [axis, { ...axis, size: 70 }],
        series: [
          { label: "Time", value: (_, at) => (at == null ? "–" : zone.format(new Date(at * 1000))) },
          { label: figure.dataset.series, stroke: colour("--accent"), width: 2,
            fill: colour("--accent-wash"), value: (_, n) => (n == null ? "–" : n.toLocaleString(
              undefined, { maximumFractionDigits: 1 })) },
        ],
      }, [data.times, data.rates], figure);
      new ResizeObserver(() => plot.setSize({ width: width(), height: 180 })).observe(figure);
    }
  }

  // --- confirmation by typing the name -----------------------------------------------------------

  function watchConfirms(from) {
    for (const field of $$("input[data-confirms]:not([data-watched])", from)) {
      field.dataset.watched = "1";
      const button = $("button", field.form);
      const check = () => { button.disabled = field.value !== field.dataset.confirms; };
      field.addEventListener("input", check);
      check();
    }
  }

  function watchFinders(from) {
    for (const field of $$("input[data-filters]:not([data-watched])", from)) {
      field.dataset.watched = "1";
      field.addEventListener("input", () => {
        const part = field.value.toLowerCase();
        for (const row of $$("tbody tr", $(field.dataset.filters))) {
          row.hidden = !row.textContent.toLowerCase().includes(part);
        }
      });
    }
  }

  // --- live tail -----------------------------------------------------------------------------------

  const ROWS_SHOWN = 300;
  let stream = null;
  let skipped = 0;
  let arrived = 0;

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function payload(one) {
    if (one.decoder === "null" || one.decoder === "empty") {
      return element("span", one.decoder, "faint");
    }
    return element("code", one.text + (one.shortened ? "…" : ""), `payload ${one.decoder}`);
  }

  function bytes(count) {
    const units = ["B", "KiB", "MiB", "GiB"];
    let left = count;
    let at = 0;
    while (left >= 1024 && at < units.length - 1) { left /= 1024; at += 1; }
    return `${at ? left.toFixed(1) : left} ${units[at]}`;
  }

  function recordRow(one, topic) {
    const row = document.createElement("tr");
    row.append(element("td", String(one.partition), "right"));
    const head = element("th", undefined, "right");
    head.scope = "row";
    const link = element("a", one.offset.toLocaleString());
    link.href = `${topic}/partitions/${one.partition}/records/${one.offset}`;
    link.dataset.open = "";
    head.append(link);
    const time = element("td");
    if (one.timestamp !== null) {
      const at = new Date(one.timestamp);
      const shown = element("time", zone.format(at));
      shown.dateTime = at.toISOString();
      shown.title = `${shown.dateTime.replace("T", " ").replace("Z", "")} UTC`;
      shown.dataset.local = "1";
      time.append(shown);
    }
    const key = element("td", undefined, "key");
    key.append(payload(one.key));
    const value = element("td", undefined, "wide");
    value.append(payload(one.value));
    row.append(head, time, key, value, element("td", bytes(one.value.bytes), "right"));
    return row;
  }

  function stopTail(words) {
    if (stream) stream.close();
    stream = null;
    const button = $("#live");
    if (button) {
      button.setAttribute("aria-pressed", "false");
      button.textContent = "Follow live";
    }
    const state = $("#tail-state");
    if (state && words) state.textContent = words;
  }

  function startTail(button) {
    const body = $("#records tbody");
    const state = $("#tail-state");
    skipped = arrived = 0;
    state.hidden = false;
    state.textContent = "Waiting for new records.";
    button.setAttribute("aria-pressed", "true");
    button.textContent = "Stop";
    stream = new EventSource(button.dataset.tail);
    stream.addEventListener("records", (event) => {
      const found = JSON.parse(event.data);
      if (!found.records.length && !found.skipped) return;
      skipped += found.skipped;
      arrived += found.records.length;
      const rows = document.createDocumentFragment();
      for (const one of found.records.slice(-ROWS_SHOWN).reverse()) rows.append(recordRow(one, button.dataset.at));
      body.prepend(rows);
      while (body.rows.length > ROWS_SHOWN) body.lastElementChild.remove();
      const none = $("#no-records");
      if (none) none.remove();
      state.textContent = `Live: ${arrived.toLocaleString()} records` +
        (skipped ? `, ${skipped.toLocaleString()} skipped` : "") + ".";
    });
    stream.addEventListener("problem", (event) => stopTail(JSON.parse(event.data).message));
    stream.onerror = () => { if (stream) state.textContent = "The connection broke; trying again."; };
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("#live");
    if (button) {
      if (stream) stopTail(`Stopped after ${arrived.toLocaleString()} records.`);
      else startTail(button);
      return;
    }
    if (event.target.closest("[data-help]")) $("#help").showModal();
    const copy = event.target.closest("[data-copy]");
    if (copy && navigator.clipboard) {
      navigator.clipboard.writeText(copy.dataset.copy).then(
        () => { copy.textContent = "Copied"; }, () => { copy.textContent = "Select and copy it"; });
    }
  });
  window.addEventListener("pagehide", () => stopTail());

  // --- keys --------------------------------------------------------------------------------------

  let chord = 0;
  let chosen = -1;

  function rows() {
    return $$("table.rows tbody tr").filter((row) => !row.hidden);
  }

  function choose(step) {
    const all = rows();
    if (!all.length) return;
    const now = all.findIndex((row) => row.classList.contains("chosen"));
    chosen = Math.min(all.length - 1, Math.max(0, (now < 0 ? -1 : now) + step));
    if (now < 0 && step < 0) chosen = all.length - 1;
    for (const row of all) row.classList.remove("chosen");
    all[chosen].classList.add("chosen");
    const link = $("a[data-open]", all[chosen]) || $("a", all[chosen]);
    if (link) link.focus({ preventScroll: true });
    all[chosen].scrollIntoView({ block: "nearest" });
  }

  function follow(selector) {
    const link = $(selector);
    if (link) link.click();
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.ctrlKey && event.target.matches("textarea[data-runs]")) {
      event.preventDefault();
      event.target.form.requestSubmit();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest("input, textarea, select, [data-editor]");
    if (event.key === "Escape" && field) { field.blur(); return; }
    if (field || $("dialog[open]")) return;
    if (chord) {
      window.clearTimeout(chord);
      chord = 0;
      const link = $(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const act = {
      "/": () => { const search = $("[data-search]"); if (search) { search.focus(); search.select?.(); } },
      "?": () => $("#help").showModal(),
      g: () => { chord = window.setTimeout(() => { chord = 0; }, 1200); },
      j: () => choose(1),
      k: () => choose(-1),
      n: () => follow("nav.pager a[rel=next]"),
      p: () => follow("nav.pager a[rel=prev]"),
      c: () => follow("[data-copy]"),
      e: () => follow("a[data-export]"),
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  function prepare(from) {
    localTimes(from);
    drawCharts(from);
    watchConfirms(from);
    watchFinders(from);
    // A region that scrolls must be reachable by keyboard.
    for (const one of $$(".table", from)) {
      if (one.scrollWidth > one.clientWidth && !$("a[href], button", one)) one.tabIndex = 0;
    }
  }

  // --- a part of the page that could not be renewed: words, and the old part stays -----------------

  function trouble(words) {
    const place = $("#trouble");
    if (!place) return;
    place.hidden = !words;
    place.textContent = words || "";
  }

  function wordsOf(text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    const found = $("main p.problem[role=alert]:not([hidden])", page);
    return found ? found.textContent : "The console could not renew this page.";
  }

  document.addEventListener("htmx:responseError", (event) => {
    trouble(wordsOf(event.detail.xhr.responseText));
  });
  document.addEventListener("htmx:sendError", () => trouble("The console does not answer."));
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.shouldSwap) trouble("");
  });

  // On a phone the navigation is one line that scrolls: show the current page's link in its middle.
  const here = $(".side nav a[aria-current]");
  if (here) {
    const list = here.closest("ul");
    const [link, line] = [here.getBoundingClientRect(), list.getBoundingClientRect()];
    list.scrollLeft += link.left - line.left - (line.width - link.width) / 2;
  }

  prepare(document);
  document.addEventListener("htmx:afterSettle", () => prepare(document));
})();
