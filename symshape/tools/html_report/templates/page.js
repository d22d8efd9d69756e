(() => {
const graphs = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

function element(name, attributes, ...children) {
  const made = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return (unit ? count.toPrecision(4) : String(count)) + " " + units[unit];
}
/* Sizes that a slider or an axis stops at: every small one, then sixteen for each doubling. */
function stops(min, max) {
  const found = [];
  for (let size = Math.max(min, 0); size <= max;) {
    found.push(size);
    const next = size < 1 ? 1 : Math.round(size * 2 ** (1 / 16));
    size = next > size ? next : size + 1;
  }
  if (found[found.length - 1] !== max) found.push(max);
  return found;
}
function nearest(list, value) {
  let best = 0;
  list.forEach((one, i) => { if (Math.abs(one - value) < Math.abs(list[best] - value)) best = i; });
  return best;
}

class Graph {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    this.values = {};
    this.watchers = [];
    for (const symbol of data.symbols) this.values[symbol.name] = symbol.value;
    this.kernels = new Map(data.kernels.map(kernel => [kernel.name, new Kernel(kernel)]));
    this.sliders();
    this.figures = new Figures(this);
    if (root.querySelector('[data-plot="map"]')) this.map = new SizeMap(this);
    this.changed();
  }
  sliders() {
    for (const symbol of this.data.symbols) {
      const slider = this.root.querySelector(`[data-symbol="${symbol.name}"]`);
      const exact = this.root.querySelector(`[data-exact="${symbol.name}"]`);
      const list = stops(symbol.min, symbol.max);
      slider.min = 0;
      slider.max = list.length - 1;
      slider.value = nearest(list, symbol.value);
      const show = () => slider.setAttribute("aria-valuetext", String(this.values[symbol.name]));
      show();
      slider.addEventListener("input", () => {
        exact.value = this.values[symbol.name] = list[slider.value];
        show();
        this.changed();
      });
      exact.addEventListener("input", () => {
        const value = Math.min(Math.max(Math.round(Number(exact.value)) || 0, symbol.min), symbol.max);
        this.values[symbol.name] = value;
        slider.value = nearest(list, value);
        show();
        this.changed();
      });
    }
  }
  environment() {
    const processors = this.root.querySelector('[data-field="processors"]');
    const aligned = this.root.querySelector('[data-field="aligned"]');
    return { processors: processors ? Math.max(Number(processors.value), 1) : 1, address: !aligned || aligned.checked ? 0 : 4 };
  }
  changed() {
    this.figures.draw();
    if (this.map) this.map.draw();
  }
}

class Kernel {
  constructor(data) {
    this.data = data;
    this.bytes = compiled(data.bytes.js);
    this.launches = data.map.launches.map(launch => launch.values.map(([name, js]) => [name, compiled(js)]));
    this.choices = data.map.choices.map(choice => choice.js === null ? null : compiled(choice.js));
  }
  own(launch, values) {
    const own = {};
    for (const [name, run] of this.launches[launch]) own[name] = run(values);
    return own;
  }
  moved(own) { return this.bytes(own); }
  /* Number of the way that is taken; -1 where that cannot be said here. */
  taken(launch, values, environment) {
    const own = this.own(launch, values);
    own.processors = environment.processors;
    for (const name of this.data.map.addresses) own[name] = environment.address;
    for (let i = 0; i < this.choices.length; i++) {
      if (this.choices[i] === null) return -1;
      if (this.choices[i](own)) return i;
    }
    return -1;
  }
}

class Figures {
  constructor(graph) {
    this.graph = graph;
    const data = graph.data;
    this.totals = { kernels: compiled(data.totals.kernels.js), calls: compiled(data.totals.calls.js), given: compiled(data.given.js) };
    this.buffers = data.buffers.map(buffer => compiled(buffer.bytes.js));
    this.steps = data.steps.map(step => step.kind === "kernel" ? this.launch(step) : compiled(step.bytes ? step.bytes.js : "0"));
    this.plot = graph.root.querySelector('[data-plot="memory"]');
    this.rows = [...graph.root.querySelectorAll("[data-step]")];
  }
  launch(step) {
    const kernel = this.graph.kernels.get(step.name);
    const given = step.arguments.map(one => compiled(one.js));
    return values => kernel.moved(Object.fromEntries(kernel.data.symbols.map((name, i) => [name, given[i](values)])));
  }
  draw() {
    const { root, values, kernels, data } = this.graph;
    for (const [name, run] of Object.entries(this.totals)) {
      root.querySelector(`[data-total="${name}"]`).textContent = bytes(run(values));
    }
    const environment = this.graph.environment();
    for (const row of root.querySelectorAll("tr[data-kernel]")) {
      const kernel = kernels.get(row.dataset.kernel);
      if (!kernel.launches.length) continue;
      const taken = new Set(kernel.launches.map((_, i) => kernel.taken(i, values, environment)));
      row.querySelector(".taken").textContent = [...taken].map(i => i < 0 ? "?" : data.kernels.find(k => k.name === row.dataset.kernel).map.choices[i].name).join(", ");
      row.querySelector(".moved").textContent = bytes(kernel.moved(kernel.own(0, values)));
    }
    const alive = new Array(this.steps.length).fill(0);
    data.buffers.forEach((buffer, i) => {
      const size = this.buffers[i](values);
      for (let step = buffer.first; step <= Math.min(buffer.last, alive.length - 1); step++) alive[step] += size;
    });
    this.rows.forEach((row, i) => {
      row.querySelector(".moved").textContent = bytes(this.steps[i](values));
      row.querySelector(".alive").textContent = bytes(alive[i]);
    });
    this.memory(alive);
  }
  memory(alive) {
    const peak = Math.max(0, ...alive);
    const text = this.graph.root.querySelector(".peak");
    text.textContent = alive.length ? `Most memory besides the arguments: ${bytes(peak)}, at step ${alive.indexOf(peak)} of ${alive.length}.` : "It has no steps.";
    const width = this.plot.clientWidth, height = alive.length ? 140 : 0;
    if (!width || !height) return;
    const x = i => i * width / alive.length, y = size => height - 18 - (peak ? size / peak : 0) * (height - 36);
    let path = `M0,${height - 18}`;
    alive.forEach((size, i) => { path += `L${x(i).toFixed(1)},${y(size).toFixed(1)}L${x(i + 1).toFixed(1)},${y(size).toFixed(1)}`; });
    path += `L${width},${height - 18}Z`;
    const drawn = element("svg:svg", { width, height, role: "img", "aria-label": text.textContent },
      element("svg:path", { class: "area", d: path }),
      element("svg:line", { class: "axis", x1: 0, x2: width, y1: height - 18, y2: height - 18 }),
      element("svg:text", { x: 2, y: 12 }, bytes(peak)), element("svg:text", { x: 2, y: height - 4 }, "step 0"),
      element("svg:text", { x: width - 2, y: height - 4, "text-anchor": "end" }, `step ${alive.length - 1}`));
    this.plot.replaceChildren(drawn);
  }
}

class SizeMap {
  constructor(graph) {
    this.graph = graph;
    this.plot = graph.root.querySelector('[data-plot="map"]');
    this.fields = {};
    for (const field of graph.root.querySelectorAll("[data-field]")) {
      this.fields[field.dataset.field] = field;
      field.addEventListener("input", () => {
        if (field.dataset.field === "kernel") this.list();
        if (["processors", "aligned"].includes(field.dataset.field)) graph.changed(); else this.draw();
      });
    }
    const counts = graph.data.kernels.map(kernel => kernel.map.choices.length);
    this.fields.kernel.value = String(counts.indexOf(Math.max(...counts)));
    this.list();
  }
  get kernel() { return this.graph.data.kernels[Number(this.fields.kernel.value)]; }
  list() {
    const launches = this.kernel.map.launches;
    this.fields.launch.replaceChildren(...launches.map((launch, i) => element("option", { value: i },
      (launch.values.map(([name, , text]) => `${name} = ${text}`).join(", ") || "no sizes") + (launch.count > 1 ? ` (${launch.count} times)` : ""))));
    const used = launches.length ? this.graph.data.symbols.filter(symbol => launches[0].values.some(([, js]) => js.includes(`"${symbol.name}"`))) : [];
    if (used.length) this.fields.x.value = used[0].name;
    if (used.length > 1) this.fields.y.value = used[1].name;
    else if (used.length && this.fields.y.value === used[0].name) {
      const other = this.graph.data.symbols.find(symbol => symbol.name !== used[0].name);
      if (other) this.fields.y.value = other.name;
    }
  }
  axis(name) {
    const symbol = this.graph.data.symbols.find(one => one.name === name);
    const first = Math.max(symbol.min, 1), last = Math.max(symbol.max, first + 1), list = [];
    for (let size = first; size < last;) { list.push(size); size = Math.max(size + 1, Math.round(size * 2 ** 0.25)); }
    return { name, list: [...list, last], low: Math.log(first), high: Math.log(last) };
  }
  draw() {
    const data = this.kernel, kernel = this.graph.kernels.get(data.name), launch = Number(this.fields.launch.value);
    const x = this.axis(this.fields.x.value), y = this.axis(this.fields.y.value), environment = this.graph.environment();
    if (!data.map.launches.length) return;
    const at = (across, up) => kernel.taken(launch, { ...this.graph.values, [x.name]: across, [y.name]: up }, environment);
    const now = kernel.taken(launch, this.graph.values, environment);
    const text = now < 0 ? "?" : `${data.map.choices[now].name} (${data.map.choices[now].does})`;
    const sizes = Object.entries(this.graph.values).map(([name, value]) => `${name} = ${value}`).join(", ");
    this.graph.root.querySelector(".here").textContent = `At ${sizes}: ${data.name} runs as ${text}.`;
    this.svg(x, y, at);
    this.legend(data, launch);
  }
  svg(x, y, at) {
    const width = this.plot.clientWidth, height = Math.min(420, Math.max(260, width * 0.45)), left = 52, bottom = 38;
    if (!width) return;
    const px = size => left + (Math.log(size) - x.low) / (x.high - x.low) * (width - left - 12);
    const py = size => height - bottom - (Math.log(size) - y.low) / (y.high - y.low) * (height - bottom - 22);
    const drawn = element("svg:svg", { width, height, role: "img", "aria-label": `Forms over ${x.name} and ${y.name}` });
    const blocks = new Map(), largest = new Map();
    for (let j = 0; j + 1 < y.list.length; j++) {
      for (let i = 0; i + 1 < x.list.length;) {
        const found = at(x.list[i], y.list[j]);
        let end = i + 1;
        while (end + 1 < x.list.length && at(x.list[end], y.list[j]) === found) end += 1;
        const box = { x: px(x.list[i]), y: py(y.list[j + 1]), width: px(x.list[end]) - px(x.list[i]), height: py(y.list[j]) - py(y.list[j + 1]) };
        drawn.append(element("svg:rect", { class: found < 0 ? "ground" : "c" + found % 12, x: box.x, y: box.y, width: box.width + 0.5, height: box.height + 0.5 }));
        const alike = blocks.get(`${found} ${i} ${end}`) || { found, area: 0, rows: [] };
        alike.rows.push(box);
        alike.area += box.width * box.height;
        blocks.set(`${found} ${i} ${end}`, alike);
        i = end;
      }
    }
    for (const block of blocks.values()) if (block.area > (largest.get(block.found) || { area: 0 }).area) largest.set(block.found, block);
    for (const { found, rows } of largest.values()) {
      const middle = rows[Math.floor(rows.length / 2)];
      if (middle.width > 9 && found >= 0 && rows.reduce((sum, row) => sum + row.height, 0) > 11) drawn.append(element("svg:text", { class: "on", x: middle.x + middle.width / 2, y: middle.y + middle.height / 2 + 4, "text-anchor": "middle" }, LETTERS[found % 26]));
    }
    this.ticks(drawn, x, y, px, py, { width, height, left, bottom });
    const here = [Math.max(this.graph.values[x.name], x.list[0]), Math.max(this.graph.values[y.name], y.list[0])];
    for (const kind of ["ring", "ring inner"]) drawn.append(element("svg:circle", { class: kind, cx: px(here[0]), cy: py(here[1]), r: 7 }));
    this.plot.replaceChildren(drawn);
  }
  ticks(drawn, x, y, px, py, box) {
    const base = box.height - box.bottom, factor = box.width < 600 ? 16 : 4;
    drawn.append(element("svg:line", { class: "axis", x1: box.left, x2: box.width - 12, y1: base, y2: base }), element("svg:line", { class: "axis", x1: box.left, x2: box.left, y1: 22, y2: base }));
    for (let size = 1; size <= x.list[x.list.length - 1]; size *= factor) {
      if (size >= x.list[0]) drawn.append(element("svg:text", { x: px(size), y: base + 15, "text-anchor": px(size) > box.width - 30 ? "end" : "middle" }, String(size)));
    }
    for (let size = 1; size <= y.list[y.list.length - 1]; size *= 8) {
      if (size >= y.list[0]) drawn.append(element("svg:text", { x: box.left - 5, y: py(size) + 4, "text-anchor": "end" }, String(size)));
    }
    drawn.append(element("svg:text", { x: (box.width + box.left) / 2, y: box.height - 6, "text-anchor": "middle" }, x.name),
      element("svg:text", { x: 2, y: 14 }, y.name));
  }
  legend(data, launch) {
    const rows = data.map.choices.map((choice, i) => {
      const text = data.map.launches[launch].texts[i];
      return element("li", {}, element("span", { class: `swatch c${i % 12}` }, LETTERS[i % 26]), element("b", {}, choice.name), ` (${choice.does}): `,
        text === "True" ? "everywhere else" : element("code", {}, text));
    });
    this.graph.root.querySelector(".choices").replaceChildren(...rows);
  }
}

class Stages {
  constructor(graph, data, lines) {
    this.graph = graph;
    this.data = data;
    this.root = graph.root.querySelector(".stages");
    this.kernel = "";
    this.line = null;
    for (const button of this.root.querySelectorAll("button[data-kernel]")) button.addEventListener("click", () => this.choose(button.dataset.kernel));
    for (const button of this.root.querySelectorAll("button[data-line]")) {
      button.addEventListener("click", () => this.mark(Number(button.dataset.line)));
    }
    for (const button of graph.root.querySelectorAll("button.show")) button.addEventListener("click", () => {
      this.choose(button.dataset.show);
      this.root.scrollIntoView();
      this.root.querySelector(`button[data-kernel="${button.dataset.show}"]`).focus();
    });
    for (const cell of graph.root.querySelectorAll("td[data-line]")) {
      const row = cell.dataset.line === "" ? null : lines[Number(cell.dataset.line)];
      if (!row) continue;
      const code = element("code", { class: "py" });
      code.innerHTML = row.html;  // written by pygments, which escapes the source
      cell.replaceChildren(element("span", { class: "where" }, row.where), " ", code);
    }
    if (graph.data.kernels.length) this.choose(graph.data.kernels[0].name); else this.draw();
  }
  choose(kernel) {
    this.kernel = kernel;
    this.line = null;
    this.draw();
  }
  mark(line) {
    this.line = this.line === line ? null : line;
    this.draw();
    for (const scroll of this.root.querySelectorAll(".scroll")) {
      const first = scroll.querySelector(".marked");
      if (first) scroll.scrollTop = first.offsetTop - scroll.offsetTop;
    }
  }
  draw() {
    for (const button of this.root.querySelectorAll("button[data-kernel]")) button.setAttribute("aria-pressed", String(button.dataset.kernel === this.kernel));
    for (const button of this.root.querySelectorAll("button[data-line]")) {
      button.hidden = this.kernel !== "" && !button.dataset.kernels.includes(` ${this.kernel} `);
      button.setAttribute("aria-pressed", String(Number(button.dataset.line) === this.line));
    }
    const panels = Object.keys(this.data.stages).map(stage => this.panel(stage));
    if (this.kernel !== "") panels.push(this.code());
    this.root.querySelector(".panels").replaceChildren(...panels);
  }
  panel(stage) {
    const same = typeof this.data.stages[stage] === "string" ? this.data.stages[stage] : null;
    const rows = this.data.stages[same || stage];
    const shown = this.kernel !== "" ? this.data.kernels[this.kernel].stages[stage]
      : rows.map((_, i) => i).filter(i => this.line !== null && rows[i][1].includes(this.line));
    const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": stage });
    if (same) scroll.append(element("p", { class: "note" }, `Nothing has changed since stage ${same}.`));
    else for (const i of shown) scroll.append(this.operation(rows[i]));
    if (!same && !shown.length) scroll.append(element("p", { class: "note" }, this.kernel === "" && this.line === null ? "Choose a line." : "Nothing of it is here."));
    const head = element("h4", {}, stage, " ", element("span", {}, same ? "" : `${shown.length} operations`));
    return element("div", { class: "panel", "data-stage": stage }, head, scroll);
  }
  operation([number, lines, text]) {
    const made = element("div", { class: lines.includes(this.line) ? "op marked" : "op" }, element("small", {}, String(number)), element("pre", {}, text));
    if (lines.length) made.addEventListener("click", () => { if (!String(getSelection())) this.mark(lines[0]); });
    return made;
  }
  code() {
    const text = this.data.kernels[this.kernel].code;
    const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "code" }, element("pre", {}, text));
    return element("div", { class: "panel", "data-stage": "code" }, element("h4", {}, "code"), scroll);
  }
}

async function unpacked() {
  const text = atob(document.getElementById("packed").textContent);
  const raw = Uint8Array.from(text, letter => letter.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const roots = [...document.querySelectorAll("section.graph")];
const shown = roots.map((root, i) => new Graph(root, graphs[i]));
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; shown.forEach(graph => graph.changed()); } });
unpacked().then(packed => {
  shown.forEach((graph, i) => new Stages(graph, packed.graphs[i], packed.lines));
  document.documentElement.dataset.ready = "yes";
});
})();
