// Tabs, tables, search and charts of the report. Text is inserted as text, never as markup.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const $ = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

function element(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}
const short = (x) => (x === null ? "–" : String(Number(x.toPrecision(4))));
function tip(lines) {
  const box = element("div");
  lines.forEach((line, i) => box.append(element(i ? "div" : "strong", line)));
  return box;
}

// Charts -----------------------------------------------------------------------------------------
// The palette of Okabe and Ito is safe for colour-blind readers; shapes distinguish components beyond eight.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7f00", "#7a7a7a"];
const SHAPES = ["circle", "rect", "triangle", "diamond", "pin", "arrow"];
const colour = (g) => COLOURS[g % COLOURS.length];
const shape = (g) => SHAPES[Math.floor(g / COLOURS.length) % SHAPES.length];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const named = (name) => ({ name, nameLocation: "middle", nameTextStyle: { color: css("--soft") } });
const axis = (name, gap, more = {}) => ({
  ...named(name), nameGap: gap, axisLabel: { color: css("--soft") },
  splitLine: { lineStyle: { color: css("--line") } }, axisLine: { lineStyle: { color: css("--line") } }, ...more,
});
const GRID = { left: 64, right: 20, top: 24, bottom: 48 };
const sequential = (low, high) => ({
  min: low, max: high, calculable: false, orient: "horizontal", left: "center", bottom: 0, text: [short(high), short(low)], textStyle: { color: css("--soft") },
  inRange: { color: ["--v1", "--v2", "--v3", "--v4", "--v5"].map(css) },
});
const diverging = (size) => ({ ...sequential(-size, size), inRange: { color: [css("--d1"), css("--d2"), css("--d3")] } });

// Axes with equal units, so that distances are comparable in every direction.
function squared(box, points) {
  const w = box.clientWidth - 84, h = box.clientHeight - 72;
  const range = (k) => [Math.min(...points.map((p) => p[k])), Math.max(...points.map((p) => p[k]))];
  const [x, y] = [range(0), range(1)];
  const unit = Math.max((x[1] - x[0]) / w, (y[1] - y[0]) / h, 1e-9) * 1.12;
  const around = ([low, high], length) => {
    const middle = (low + high) / 2;
    return { min: middle - (unit * length) / 2, max: middle + (unit * length) / 2 };
  };
  return [around(x, w), around(y, h)];
}

function heat(rows, columns, values, visual, names, say) {
  const cells = values.flatMap((row, i) => row.map((value, k) => [k, i, value]));
  return {
    grid: { left: 64, right: 20, top: 10, bottom: 96 },
    xAxis: axis(names[0], 30, { type: "category", data: columns, splitLine: { show: false } }),
    yAxis: axis(names[1], 40, { type: "category", data: rows, inverse: true, splitLine: { show: false } }),
    visualMap: visual, tooltip: { formatter: ({ value }) => tip(say(...value)) },
    series: [{ type: "heatmap", data: cells, itemStyle: { borderColor: css("--card"), borderWidth: 1 } }],
  };
}

const CHARTS = {
  path: () => {
    const { points, chosen } = DATA.path;
    const right = Math.max(points.at(-1)[0], chosen ? chosen.penalty : 0) * 1.5;
    const step = (at) => {
      const i = Math.min(at, points.length - 1);
      return [`${points[i][1]} components`, `penalty from ${i ? short(points[i][0]) : 0}` + (i + 1 < points.length ? ` to ${short(points[i + 1][0])} nats` : " nats")];
    };
    return {
      grid: { ...GRID, left: 72 }, xAxis: axis("penalty (nats, log scale)", 28, { type: "log", min: points[0][0], max: right, axisLabel: { color: css("--soft"), showMinLabel: false, showMaxLabel: false, formatter: (v) => short(v) } }),
      yAxis: axis("components", 54, { min: 0 }),
      tooltip: { trigger: "axis", axisPointer: { type: "line" }, formatter: (items) => {
        const item = items.find((i) => i.seriesIndex === 0);
        return item ? tip(step(item.dataIndex)) : tip(["this fusion"]);
      } },
      series: [
        { type: "line", step: "end", data: [...points, [right, points.at(-1)[1]]], showSymbol: false, color: css("--accent") },
        { type: "scatter", symbolSize: 16, z: 5, data: chosen ? [[chosen.penalty, chosen.n_components]] : [], itemStyle: { color: css("--card"), borderColor: css("--warn"), borderWidth: 3 },
          label: { show: true, position: "top", formatter: ({ value }) => `${value[1]} components`, color: css("--warn"), fontWeight: 600 }, tooltip: { formatter: ({ value }) => tip(["this fusion", `${value[1]} components`]) } },
      ],
    };
  },
  evidence: () => {
    const { points, chosen } = DATA.evidence;
    return {
      grid: { ...GRID, left: 72, top: 36 }, xAxis: axis("components", 28, { min: "dataMin", max: "dataMax", minInterval: 1, splitLine: { show: false } }),
      yAxis: axis("log-evidence (nats)", 54, { scale: true }),
      tooltip: { trigger: "axis", axisPointer: { type: "line" }, formatter: ([item]) => tip([`${item.value[0]} components`, `log-evidence ${item.value[1].toFixed(1)} nats`]) },
      series: [
        { type: "line", data: points, symbolSize: 6, color: css("--accent") },
        { type: "scatter", symbolSize: 16, z: 5, data: chosen ? [chosen] : [], itemStyle: { color: "transparent", borderColor: css("--warn"), borderWidth: 3 },
          label: { show: true, position: "top", align: chosen && chosen[0] < (points[0][0] + points.at(-1)[0]) / 2 ? "left" : "right", formatter: ({ value }) => `${value[0]} components`, color: css("--warn"), fontWeight: 600 } },
      ],
    };
  },
  trace: () => ({
    grid: { ...GRID, left: 84 }, xAxis: axis("sweep", 28, { min: "dataMin", max: "dataMax", minInterval: 1 }), yAxis: axis("objective (nats)", 66, { scale: true }),
    tooltip: { trigger: "axis", formatter: ([item]) => tip([`${short(item.value[1])} nats`, `after sweep ${item.value[0]}`]) },
    series: [{ type: "line", data: DATA.trace, color: css("--accent"), symbolSize: 6 }],
  }),
  map: (box) => {
    const { global, local } = DATA.map;
    const [x, y] = squared(box, [...global, ...local.map((l) => l.at)]);
    const plain = { type: "value", axisLabel: { show: false }, axisTick: { show: false } };
    return {
      grid: GRID, xAxis: axis("", 0, { ...plain, ...x }), yAxis: axis("", 0, { ...plain, ...y }), tooltip: {},
      dataZoom: ["xAxisIndex", "yAxisIndex"].map((which) => ({ type: "inside", [which]: 0, zoomOnMouseWheel: "ctrl", moveOnMouseMove: true })),
      series: [
        { type: "lines", coordinateSystem: "cartesian2d", silent: true, z: 2, lineStyle: { opacity: 0.35, width: 1 },
          data: local.map((l) => ({ coords: [l.at, global[l.component]], lineStyle: { color: colour(l.component) } })) },
        { type: "scatter", symbolSize: 8, z: 3, data: local.map((l) => ({ value: l.at, symbol: shape(l.component), itemStyle: { color: colour(l.component), opacity: 0.75 } })),
          tooltip: { formatter: ({ dataIndex: i }) => tip([local[i].silo, `local component ${local[i].local_component}, matched to ${local[i].component}`, `divergence ${short(local[i].divergence)} nats`]) } },
        { type: "scatter", symbolSize: 22, z: 1, data: global.map((at, g) => ({ value: at, symbol: shape(g), itemStyle: { color: css("--card"), borderColor: colour(g), borderWidth: 4 } })),
          label: { show: true, position: "top", distance: 2, formatter: ({ dataIndex: g }) => String(g), color: css("--ink"), fontWeight: 700, textBorderColor: css("--card"), textBorderWidth: 3 },
          tooltip: { formatter: ({ dataIndex: g }) => tip([`component ${g}`, `${DATA.components[g]} silos`]) } },
      ],
    };
  },
  ellipses: (box) => {
    const v = DATA.view;
    const [x, y] = squared(box, [...v.outlines, ...v.local.map((l) => l.outline)].flat());
    const say = (g) => tip([`component ${g}`, ...(v.weights ? [`${(100 * v.weights[g]).toFixed(1)}% of observations`] : []), `${DATA.components[g]} silos`]);
    const digits = (value) => String(Number(value.toPrecision(3)));
    const labelled = { type: "value", axisLabel: { color: css("--soft"), formatter: digits, showMinLabel: false, showMaxLabel: false } };
    return {
      grid: GRID, xAxis: axis(v.axes[0], 28, { ...labelled, ...x }), yAxis: axis(v.axes[1], 44, { ...labelled, ...y }), tooltip: {},
      series: [
        { type: "custom", clip: true, silent: true, data: v.local.map((l) => l.outline[0]), renderItem: ({ dataIndex: i }, api) => ({
          type: "polygon", shape: { points: v.local[i].outline.map((p) => api.coord(p)) }, style: { fill: "none", stroke: colour(v.local[i].component), lineWidth: 1, opacity: 0.6 } }) },
        { type: "custom", clip: true, data: v.centres, tooltip: { formatter: ({ dataIndex: g }) => say(g) }, renderItem: ({ dataIndex: g }, api) => {
          return { type: "polygon", shape: { points: v.outlines[g].map((p) => api.coord(p)) }, style: { fill: colour(g), fillOpacity: 0.18, stroke: colour(g), lineWidth: 2 } };
        } },
        { type: "scatter", symbolSize: 9, z: 4, data: v.centres.map((c, g) => ({ value: c, symbol: shape(g), itemStyle: { color: colour(g) } })), tooltip: { formatter: ({ dataIndex: g }) => say(g) },
          label: { show: true, position: "top", formatter: ({ dataIndex: g }) => String(g), color: css("--ink"), fontWeight: 700, textBorderColor: css("--card"), textBorderWidth: 3 } },
      ],
    };
  },
  weights: () => ({
    grid: GRID, xAxis: axis("component", 28, { type: "category", data: DATA.view.weights.map((_, g) => g) }), yAxis: axis("share of observations", 44),
    tooltip: { formatter: ({ dataIndex: g, value }) => tip([`component ${g}`, `${(100 * value).toFixed(2)}%`]) },
    series: [{ type: "bar", data: DATA.view.weights.map((value, g) => ({ value, itemStyle: { color: colour(g) } })) }],
  }),
  transitions: () => {
    const { transition, start, min_edge } = DATA.view;
    const links = transition.flatMap((row, i) => row.map((p, k) => ({ source: i, target: k, p })).filter((e) => e.source !== e.target && e.p >= min_edge));
    return {
      tooltip: { formatter: ({ dataType, data }) => tip(dataType === "edge" ? [`${data.source} → ${data.target}`, `probability ${short(data.p)}`]
        : [`state ${data.name}`, `stay probability ${short(transition[data.name][data.name])}`, `start probability ${short(start[data.name])}`, `${DATA.components[data.name]} silos`]) },
      series: [{ type: "graph", layout: "circular", left: 60, right: 60, top: 40, bottom: 40, edgeSymbol: ["none", "arrow"], edgeSymbolSize: 9,
        data: transition.map((row, i) => ({ name: String(i), symbolSize: 20 + 26 * row[i], itemStyle: { color: colour(i) } })),
        label: { show: true, color: css("--ink"), fontWeight: 700, textBorderColor: css("--card"), textBorderWidth: 3 },
        links: links.map((e) => ({ ...e, lineStyle: { width: 1 + 7 * e.p, color: colour(e.source), curveness: 0.18, opacity: 0.75 } })), emphasis: { focus: "adjacency" } }],
    };
  },
  transition_matrix: () => {
    const states = DATA.view.transition.map((_, i) => i);
    return heat(states, states, DATA.view.transition, sequential(0, 1), ["to state", "from state"], (k, i, p) => [`${i} → ${k}`, `probability ${short(p)}`]);
  },
  emissions: () => {
    const { emissions, columns } = DATA.view;
    const flat = emissions.flat(), low = Math.min(...flat), size = Math.max(...flat.map(Math.abs), 1e-12);
    return heat(emissions.map((_, i) => i), columns, emissions, low < 0 ? diverging(size) : sequential(0, size), ["", "state"], (k, i, value) => [`state ${i}, ${columns[k]}`, short(value)]);
  },
  outgoing: () => {
    const { outgoing } = DATA.view, size = Math.max(...outgoing.flat().map(Math.abs), 1e-12);
    return heat(outgoing[0].map((_, k) => k), outgoing.map((_, g) => g), outgoing[0].map((_, k) => outgoing.map((row) => row[k])), diverging(size), ["unit", "output"], (g, k, value) => [`unit ${g} to output ${k}`, `weight ${short(value)}`]);
  },
  shared: () => {
    const counts = new Map();
    DATA.components.forEach((n) => counts.set(n, (counts.get(n) || 0) + 1));
    const keys = [...counts.keys()].sort((a, b) => a - b);
    return {
      grid: GRID, xAxis: axis("silos per unit", 28, { type: "category", data: keys }), yAxis: axis("units", 44, { minInterval: 1 }),
      tooltip: { formatter: ({ name, value }) => tip([`${value} units`, `shared by ${name} silos`]) },
      series: [{ type: "bar", data: keys.map((k) => counts.get(k)), color: css("--accent") }],
    };
  },
};

const drawn = new Map();
function draw(box, force) {
  if (!box.clientWidth || (drawn.has(box) && !force)) return;
  const chart = drawn.get(box) || echarts.init(box, null, { renderer: "svg" });
  drawn.set(box, chart);
  chart.resize();
  chart.setOption({ animation: false, textStyle: { fontFamily: "inherit" }, ...CHARTS[box.dataset.chart](box) }, true);
}
function drawAll(force) {
  all("[data-chart]").forEach((box) => draw(box, force));
  all("canvas[data-unit]").forEach(paint);
}

// Incoming weights of a unit: blue below zero, orange above, as in the charts.
function paint(canvas) {
  const [rows, columns] = DATA.view.image, pen = canvas.getContext("2d");
  canvas.width = columns; canvas.height = rows;
  const rgb = (name) => css(name).match(/\w\w/g).map((h) => parseInt(h, 16));
  const [low, middle, high] = ["--d1", "--d2", "--d3"].map(rgb);
  const image = pen.createImageData(columns, rows);
  DATA.view.incoming[canvas.dataset.unit].forEach((w, i) => {
    const end = w < 0 ? low : high, part = Math.abs(w) / 127;
    image.data.set([...middle.map((m, c) => m + part * (end[c] - m)), 255], 4 * i);
  });
  pen.putImageData(image, 0, 0);
}

// Tabs -------------------------------------------------------------------------------------------
const tabs = all("[role=tab]");
function open(tab, focus) {
  tabs.forEach((other) => {
    const chosen = other === tab;
    other.setAttribute("aria-selected", chosen);
    other.tabIndex = chosen ? 0 : -1;
    document.getElementById(other.getAttribute("aria-controls")).classList.toggle("closed", !chosen);
  });
  if (focus) tab.focus();
  drawAll();
}
const addressed = () => tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash);
const visit = (tab, focus) => {
  open(tab, focus);
  history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
};
addEventListener("hashchange", () => { if (addressed()) open(addressed()); });
tabs.forEach((tab, i) => {
  tab.addEventListener("click", () => visit(tab));
  tab.addEventListener("keydown", (event) => {
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    visit(tabs[(to + tabs.length) % tabs.length], true);
  });
});

// Tables -----------------------------------------------------------------------------------------
const key = (row, k) => {
  const cell = row.cells[k], raw = cell.dataset.v ?? cell.textContent.trim();
  return raw === "" || Number.isNaN(Number(raw)) ? raw.toLowerCase() : Number(raw);
};
all("table.sortable").forEach((table) => {
  all("thead th", table).forEach((head, k) => {
    const button = element("button", head.textContent, { type: "button" });
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].map((row) => [key(row, k), row]);
      // Numbers before words: dashes and blanks form one group.
      rows.sort(([a], [b]) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1) * (down ? -1 : 1));
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
});
all("input[data-filters]").forEach((input) => {
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let found = 0;
    for (const item of all(input.dataset.filters)) {
      item.hidden = !(item.dataset.text ?? item.textContent).toLowerCase().includes(wanted);
      found += !item.hidden;
    }
    $("[role=status]", input.closest(".finder")).textContent = wanted ? `${found} found` : "";
  });
});

const search = $("#word-search");
if (search) {
  const body = $("#word-table").tBodies[0];
  const show = () => {
    const wanted = search.value.trim().toLowerCase();
    const found = DATA.view.words.filter(({ word }) => word.toLowerCase().includes(wanted));
    $("[role=status]", search.closest(".finder")).textContent = wanted ? `${found.length} found` : "";
    body.replaceChildren(...found.slice(0, wanted ? 25 : 8).map(({ word, topics }) => {
      const row = element("tr");
      row.append(element("th", word, { scope: "row" }), element("td", topics.map(([g, p]) => `topic ${g} (${(100 * p).toPrecision(2)}%)`).join(", "), { class: "text" }));
      return row;
    }));
  };
  search.addEventListener("input", show);
  show();
}

// Page -------------------------------------------------------------------------------------------
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches("input")) return;
  const box = all("input[type=search]").find((input) => input.offsetParent);
  if (box) { event.preventDefault(); box.focus(); }
});
const dark = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;
$("#theme").addEventListener("click", () => {
  const now = root.dataset.theme || (dark.matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  drawAll(true);
});
dark.addEventListener("change", () => drawAll(true));
let waiting;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => drawAll(true), 150); });
// Print every tab, in the light theme.
let before;
addEventListener("beforeprint", () => { before = root.dataset.theme; root.dataset.theme = "light"; root.classList.add("paper"); drawAll(true); });
addEventListener("afterprint", () => { if (before) root.dataset.theme = before; else delete root.dataset.theme; root.classList.remove("paper"); drawAll(true); });
if (tabs.length) open(addressed() ?? tabs[0]);
