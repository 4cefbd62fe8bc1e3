// A picture of accesses that one can zoom into: drag to zoom, shift-drag to move, double-click or Escape for all of it.
// Until then the still picture stays. zoom.py says what the data are; cells show ranks as raster.py's weave does.
"use strict";
(() => {
  const LEFT = 78, RIGHT = 8, TOP = 8, BOTTOM = 34, PANEL = 250, CELL = 2;

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  }

  async function load(panel) {
    const raw = await unpack(panel.data), n = panel.extents;
    if (n === undefined) return { ...panel, shown: new Uint8Array(raw) };
    const column = (k) => new Float64Array(raw, 8 * n * k, n);
    return { ...panel, begin: column(0), end: column(1), offset: column(2), length: column(3), group: new Uint8Array(raw, 32 * n, n) };
  }

  const UNITS = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];
  function bytes(value, step = value) {
    const [name, unit] = UNITS.find(([, u]) => Math.abs(step) >= u && Number.isInteger(value / Math.min(u, step))) ?? UNITS[4];
    return `${(value / unit).toLocaleString("en", { maximumFractionDigits: 3 })} ${name}`;
  }
  const seconds = (value, step) => value.toFixed(Math.max(0, Math.min(9, 1 - Math.floor(Math.log10(step)))));

  function ticks([low, high], step) {
    const found = [];
    for (let tick = Math.ceil(low / step); tick <= Math.floor(high / step); tick++) found.push(tick * step);
    return found;
  }
  const byteStep = (span) => 2 ** Math.max(0, Math.ceil(Math.log2(span / 6)));
  function timeStep(span) {
    const power = 10 ** Math.floor(Math.log10(span / 6));
    return power * [1, 2, 5, 10].find((k) => k * power >= span / 6);
  }

  // Which groups touch each cell, two 32-bit words of them; then one group a cell, in turns.
  function weave(panel, view, columns, rows) {
    const low = new Uint32Array(columns * rows), high = new Uint32Array(columns * rows);
    const [x0, x1] = view.x, [y0, y1] = view.y, clamp = (v, n) => Math.max(0, Math.min(n - 1, v));
    for (let i = 0; i < panel.extents; i++) {
      const begin = panel.begin[i], end = panel.end[i], from = panel.offset[i], to = from + panel.length[i];
      if (end < x0 || begin > x1 || to <= y0 || from > y1) continue;
      const first = Math.floor(((from - y0) / (y1 - y0)) * rows), last = Math.max(first, Math.ceil(((to - y0) / (y1 - y0)) * rows) - 1);
      const left = ((begin - x0) / (x1 - x0)) * columns, width = ((end - begin) / (x1 - x0)) * columns, high_ = last - first + 1;
      const word = panel.group[i] < 32 ? low : high, bit = 1 << (panel.group[i] & 31);
      for (let row = Math.max(first, 0); row <= Math.min(last, rows - 1); row++) {
        const a = Math.floor(left + ((row - first) * width) / high_), b = Math.max(a, Math.ceil(left + ((row - first + 1) * width) / high_) - 1);
        if (b < 0 || a >= columns) continue;
        for (let column = clamp(a, columns); column <= clamp(b, columns); column++) word[row * columns + column] |= bit;
      }
    }
    const shown = new Uint8Array(columns * rows).fill(255);
    for (let cell = 0; cell < shown.length; cell++) {
      const groups = [];
      for (let word = low[cell]; word; word &= word - 1) groups.push(31 - Math.clz32(word & -word));
      for (let word = high[cell]; word; word &= word - 1) groups.push(63 - Math.clz32(word & -word));
      const turn = (Math.floor(cell / columns) >> 1) + ((cell % columns) >> 1);
      if (groups.length) shown[cell] = groups[turn % groups.length];
    }
    return shown;
  }

  // Of a grid of cells, those in view.
  function enlarge(panel, data, view, columns, rows) {
    const [across, up] = panel.cells, shown = new Uint8Array(columns * rows);
    const at = (value, [low, high], n) => Math.floor(((value - low) / (high - low)) * n);
    for (let row = 0; row < rows; row++) {
      const y = at(view.y[0] + ((row + 0.5) / rows) * (view.y[1] - view.y[0]), data.y, up);
      for (let column = 0; column < columns; column++) {
        const x = at(view.x[0] + ((column + 0.5) / columns) * (view.x[1] - view.x[0]), data.x, across);
        shown[row * columns + column] = panel.shown[Math.min(y, up - 1) * across + Math.min(x, across - 1)];
      }
    }
    return shown;
  }

  class Picture {
    constructor(figure, data, panels) {
      Object.assign(this, { figure, data, panels, view: { x: data.x, y: data.y } });
      this.canvas = document.createElement("canvas");
      this.canvas.tabIndex = 0;
      this.words = document.createElement("figcaption");
      this.words.className = "note";
      this.still = figure.querySelector("svg");
      this.key = this.makeKey();
      figure.append(this.canvas, this.key, this.words);
      this.canvas.hidden = true;
      this.say();
      for (const target of [this.canvas, this.still]) {
        target.addEventListener("pointerdown", (event) => this.press(event, target));
        target.addEventListener("dblclick", () => this.reset());
      }
      this.canvas.addEventListener("pointermove", (event) => this.tell(event));
      this.canvas.addEventListener("keydown", (event) => event.key === "Escape" && this.reset());
      addEventListener("resize", () => this.canvas.hidden || this.draw());
    }

    // Which colour is which rank: a name for each, or the ends of the scale if there are many.
    makeKey() {
      const key = document.createElement("div"), colours = this.data.colours, width = this.data.ranks / colours.length;
      const step = colours.length <= 10 ? 1 : Math.ceil(colours.length / 6);
      key.className = "key";
      key.hidden = true;
      colours.forEach((colour, group) => {
        if (group % step && group !== colours.length - 1) return;
        const patch = document.createElement("i"), name = document.createElement("span");
        patch.style.background = colour;
        name.append(patch, `rank ${Math.ceil(group * width)}`);
        key.append(name);
      });
      return key;
    }

    say(text) {
      this.words.textContent = text ?? "Drag over a part of the picture to zoom into it.";
    }

    reset() {
      this.view = { x: this.data.x, y: this.data.y };
      this.canvas.hidden = this.key.hidden = true;
      this.still.style.display = "";
      this.say();
    }

    // From a place on the page to seconds and bytes.
    place(event) {
      const box = this.canvas.getBoundingClientRect(), height = PANEL - TOP - 4;
      const number = Math.max(0, Math.min(this.panels.length - 1, Math.floor((event.clientY - box.top) / PANEL)));
      const across = Math.max(0, Math.min(1, (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)));
      const up = Math.max(0, Math.min(1, 1 - (event.clientY - box.top - number * PANEL - TOP) / height));
      const { x, y } = this.view;
      return { number, x: x[0] + across * (x[1] - x[0]), y: y[0] + up * (y[1] - y[0]) };
    }

    press(event, target) {
      if (event.button !== 0) return;
      event.preventDefault();
      if (target === this.still) this.show();
      this.canvas.focus({ preventScroll: true });
      const from = this.place(event), view = this.view;
      const move = (later) => {
        const to = this.place(later);
        if (event.shiftKey) {
          this.view = { x: view.x.map((v) => v + from.x - to.x), y: view.y.map((v) => v + from.y - to.y) };
          this.draw();
          Object.assign(view, this.view);
        } else this.draw([from, { ...to, number: from.number }]);
      };
      const release = (later) => {
        removeEventListener("pointermove", move);
        const to = this.place(later), { x, y } = this.view;
        const enough = Math.abs(to.x - from.x) > 0.005 * (x[1] - x[0]) && Math.abs(to.y - from.y) > 0.005 * (y[1] - y[0]);
        if (enough && !event.shiftKey) this.view = { x: [from.x, to.x].sort((a, b) => a - b), y: [from.y, to.y].sort((a, b) => a - b) };
        this.draw();
      };
      addEventListener("pointermove", move);
      addEventListener("pointerup", release, { once: true });
    }

    show() {
      this.canvas.hidden = this.key.hidden = false;
      this.still.style.display = "none";
      this.draw();
    }

    draw(box) {
      const ratio = devicePixelRatio || 1, width = this.figure.clientWidth, height = PANEL * this.panels.length + BOTTOM;
      this.canvas.style.cssText = `display: block; width: 100%; height: ${height}px; cursor: crosshair; touch-action: none`;
      this.canvas.width = width * ratio;
      this.canvas.height = height * ratio;
      const pen = this.canvas.getContext("2d"), style = getComputedStyle(this.figure);
      pen.scale(ratio, ratio);
      pen.font = `12px ${style.fontFamily}`;
      const ink = style.getPropertyValue("--ink"), line = style.getPropertyValue("--line"), { x, y } = this.view;
      const inner = { width: width - LEFT - RIGHT, height: PANEL - TOP - 4 };
      const columns = Math.max(1, Math.floor(inner.width / CELL)), rows = Math.floor(inner.height / CELL);
      const across = (v) => LEFT + ((v - x[0]) / (x[1] - x[0])) * inner.width;
      this.panels.forEach((panel, number) => {
        const bottom = number * PANEL + TOP + inner.height, up = (v) => bottom - ((v - y[0]) / (y[1] - y[0])) * inner.height;
        pen.strokeStyle = line;
        pen.fillStyle = ink;
        pen.textAlign = "right";
        const step = byteStep(y[1] - y[0]);
        for (const tick of ticks(y, step)) {
          pen.strokeRect(LEFT, up(tick), inner.width, 0);
          pen.fillText(bytes(tick, step), LEFT - 6, up(tick) + 4);
        }
        const shown = panel.shown ? enlarge(panel, this.data, this.view, columns, rows) : weave(panel, this.view, columns, rows);
        const image = new ImageData(columns, rows);
        for (let cell = 0; cell < shown.length; cell++) {
          if (shown[cell] === 255) continue;
          const colour = parseInt(this.data.colours[shown[cell]].slice(1), 16);
          const pixel = 4 * ((rows - 1 - Math.floor(cell / columns)) * columns + (cell % columns));
          image.data.set([colour >> 16, (colour >> 8) & 255, colour & 255, 255], pixel);
        }
        const sheet = new OffscreenCanvas(columns, rows);
        sheet.getContext("2d").putImageData(image, 0, 0);
        pen.imageSmoothingEnabled = false;
        pen.drawImage(sheet, LEFT, bottom - inner.height, inner.width, inner.height);
        pen.textAlign = "left";
        pen.fillText(`${panel.op}s`, LEFT + 4, bottom - inner.height + 12);
      });
      pen.textAlign = "center";
      const step = timeStep(x[1] - x[0]);
      for (const tick of ticks(x, step)) pen.fillText(seconds(tick, step), across(tick), height - BOTTOM + 14);
      pen.fillText("seconds since MPI_Init", LEFT + inner.width / 2, height - 4);
      if (box) {
        const up = (v) => box[0].number * PANEL + TOP + inner.height * (1 - (v - y[0]) / (y[1] - y[0]));
        pen.strokeStyle = ink;
        pen.strokeRect(across(box[0].x), up(box[0].y), across(box[1].x) - across(box[0].x), up(box[1].y) - up(box[0].y));
      }
      this.figure.dataset.view = JSON.stringify(this.view);
      this.say("Drag to zoom further, shift-drag to move, double-click or Escape for the whole picture.");
    }

    // The extent, or the cell, under the pointer.
    tell(event) {
      if (event.buttons) return;
      const { number, x, y } = this.place(event), panel = this.panels[number], width = this.data.ranks / this.data.colours.length;
      const name = (group) => (width === 1 ? `rank ${group}` : `ranks ${Math.ceil(group * width)} to ${Math.ceil((group + 1) * width) - 1}`);
      const slack = (this.view.x[1] - this.view.x[0]) / this.figure.clientWidth * CELL;
      if (panel.shown) {
        const [across, up] = panel.cells, at = (v, [a, b], n) => Math.min(n - 1, Math.floor(((v - a) / (b - a)) * n));
        const group = panel.shown[at(y, this.data.y, up) * across + at(x, this.data.x, across)];
        if (group !== 255) this.say(`${name(group)}, among others perhaps: ${panel.op}s around byte ${Math.round(y).toLocaleString("en")}, ${x.toPrecision(6)} s`);
        return;
      }
      for (let i = 0; i < panel.extents; i++)
        if (x >= panel.begin[i] - slack && x <= panel.end[i] + slack && y >= panel.offset[i] && y < panel.offset[i] + panel.length[i]) {
          const call = `${panel.length[i].toLocaleString("en")} bytes at ${panel.offset[i].toLocaleString("en")}`;
          this.say(`${name(panel.group[i])} ${panel.op}s ${call}, ${panel.begin[i].toFixed(6)} to ${panel.end[i].toFixed(6)} s`);
          return;
        }
    }
  }

  // In a notebook, each picture comes with this script.
  for (const figure of document.querySelectorAll("figure.zoom:not([data-zooms])")) {
    figure.dataset.zooms = "yes";
    const data = JSON.parse(figure.querySelector("script").textContent);
    Promise.all(data.panels.map(load)).then((panels) => new Picture(figure, data, panels));
  }
})();
