"use strict";
/* A map of points on a canvas: pan, zoom, hover, pick, by mouse, touch or keyboard.
   Few points in view are drawn as shapes; a crowd is blended pixel by pixel, which keeps
   200,000 points smooth and shows their density; thumbnails appear where there is room. */
(() => {
  const CROWD = 5000; // points in view beyond which they are blended
  const OPAQUE = 15000; // points in view beyond which they become translucent
  const SHAPES = ["circle", "square", "triangle", "diamond"];
  const REACH = 14; // pixels within which a point counts as pointed at
  const ROOM = 90; // points in view below which thumbnails are drawn
  const MAX_ZOOM = 400;
  const SLOW = 16, FAST = 6; // milliseconds a frame: beyond and below, fewer or more points
  const REST = 140; // milliseconds after the last move until every point is drawn again

  /* Points sorted by the cell of a grid they are in: what is in view, and what is near. */
  class Cells {
    constructor(x, y) {
      const n = x.length;
      this.side = Math.max(1, Math.min(512, Math.ceil(Math.sqrt(n / 6))));
      this.starts = new Uint32Array(this.side * this.side + 1);
      const cells = new Uint32Array(n);
      for (let i = 0; i < n; i++) {
        cells[i] = this.clamp(y[i]) * this.side + this.clamp(x[i]);
        this.starts[cells[i] + 1]++;
      }
      for (let c = 0; c < this.side * this.side; c++) this.starts[c + 1] += this.starts[c];
      const next = this.starts.slice();
      this.order = new Uint32Array(n);
      for (let i = 0; i < n; i++) this.order[next[cells[i]]++] = i;
    }

    clamp(value) {
      return Math.max(0, Math.min(this.side - 1, Math.floor(value * this.side)));
    }

    /* Runs of `order` that may lie in the box, as [start, stop] pairs. */
    runs(left, right, low, high) {
      const found = [];
      const a = this.clamp(left), b = this.clamp(right);
      for (let row = this.clamp(low); row <= this.clamp(high); row++) {
        const start = this.starts[row * this.side + a];
        const stop = this.starts[row * this.side + b + 1];
        if (stop > start) found.push([start, stop]);
      }
      return found;
    }
  }

  class Scatter {
    /* x, y: Float32Array in the unit square. options: onHover(i), onPick(i), onView(view),
       onSelect(rows, event), thumb(i) -> image or null, wheel: "always" or "focused". */
    constructor(canvas, x, y, options = {}) {
      Object.assign(this, { canvas, x, y, options, n: x.length });
      this.context = canvas.getContext("2d");
      this.view = { x: 0.5, y: 0.5, zoom: 1 };
      this.colors = new Uint32Array(this.n).fill(0xff94887d);
      this.shapes = null;
      this.faint = 0xffd5d0cc;
      this.filters = new Map();
      this.mask = null; // what passes every filter
      this.selection = null; // Uint8Array of selected points
      this.tool = "move"; // or "box" or "lasso": what dragging does
      this.outline = []; // of the box or lasso being drawn
      this.hover = -1;
      this.selected = -1;
      this.rings = [];
      this.pointers = new Map();
      this.stride = 1; // while moving, every how many points one is drawn
      this.setPoints(x, y);
      this.listen();
      new ResizeObserver(() => this.resize()).observe(canvas);
      this.resize();
    }

    setPoints(x, y) {
      this.x = x;
      this.y = y;
      this.cells = new Cells(x, y);
      this.draw();
    }

    /* colors: Uint32Array of opaque little-endian RGBA; faint: the color of masked points;
       shapes: Uint8Array of indices into SHAPES, or null for circles. */
    setColors(colors, faint, shapes = null) {
      Object.assign(this, { colors, faint, shapes });
      this.draw();
    }

    /* rings: [{rows, color}]. */
    mark({ hover = this.hover, selected = this.selected, rings = this.rings }) {
      Object.assign(this, { hover, selected, rings });
      this.draw();
    }

    setSelection(selection) {
      this.selection = selection;
      this.accent = pixel("--selection");
      this.draw();
    }

    colorOf(i, faint) {
      if (this.selection && this.selection[i]) return this.accent;
      return faint ? this.faint : this.colors[i];
    }

    /* Points outside a filter stand back; mask: Uint8Array, or null to remove the filter. */
    filter(name, mask) {
      if (mask) this.filters.set(name, mask);
      else this.filters.delete(name);
      const masks = [...this.filters.values()];
      this.mask = masks.length ? Uint8Array.from({ length: this.n }, (_, i) => masks.every((m) => m[i])) : null;
      this.draw();
    }

    setView(view, quiet = false) {
      const zoom = Math.max(1, Math.min(MAX_ZOOM, view.zoom));
      const slack = 0.5 / zoom;
      const inside = (v) => Math.max(Math.min(0.5, slack), Math.min(Math.max(0.5, 1 - slack), v));
      this.view = { x: inside(view.x), y: inside(view.y), zoom };
      clearTimeout(this.resting);
      this.moving = true;
      this.resting = setTimeout(() => { this.moving = false; if (this.stride > 1) this.draw(); }, REST);
      this.draw();
      if (!quiet && this.options.onView) this.options.onView(this.view);
    }

    reset() { this.setView({ x: 0.5, y: 0.5, zoom: 1 }); }

    /* Zoom around the chosen item if it is in view, else around the middle. */
    zoomIn(factor) {
      const chosen = this.hover >= 0 ? this.hover : this.selected;
      if (chosen < 0) return this.zoomBy(factor);
      const [px, py] = this.toScreen(this.x[chosen], this.y[chosen]);
      const inside = px >= 0 && py >= 0 && px <= this.width && py <= this.height;
      return inside ? this.zoomBy(factor, px, py) : this.zoomBy(factor);
    }

    zoomBy(factor, px = this.width / 2, py = this.height / 2) {
      const [dx, dy] = this.toData(px, py);
      const zoom = Math.max(1, Math.min(MAX_ZOOM, this.view.zoom * factor));
      const scale = this.scaleAt(zoom);
      this.setView({
        x: dx - (px - this.width / 2) / scale,
        y: dy + (py - this.height / 2) / scale,
        zoom,
      });
    }

    /* Move the view so that point i is inside it. */
    reveal(i) {
      const [px, py] = this.toScreen(this.x[i], this.y[i]);
      const edge = 24;
      if (px < edge || py < edge || px > this.width - edge || py > this.height - edge) {
        this.setView({ x: this.x[i], y: this.y[i], zoom: this.view.zoom });
      }
    }

    scaleAt(zoom) { return Math.min(this.width, this.height) * 0.96 * zoom; }
    get scale() { return this.scaleAt(this.view.zoom); }

    toScreen(dx, dy) {
      const scale = this.scale;
      return [(dx - this.view.x) * scale + this.width / 2, this.height / 2 - (dy - this.view.y) * scale];
    }

    toData(px, py) {
      const scale = this.scale;
      return [(px - this.width / 2) / scale + this.view.x, this.view.y - (py - this.height / 2) / scale];
    }

    resize() {
      const box = this.canvas.getBoundingClientRect();
      this.width = Math.max(1, this.canvas.clientWidth || box.width);
      this.height = Math.max(1, this.canvas.clientHeight || box.height);
      this.ratio = Math.min(2, window.devicePixelRatio || 1);
      this.canvas.width = Math.round(this.width * this.ratio);
      this.canvas.height = Math.round(this.height * this.ratio);
      this.image = null;
      this.paint(); // at once: a canvas that changes its size is empty
    }

    /* Ask for a frame; many requests before it is drawn are one. */
    draw() {
      if (this.frame || !this.width) return;
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        const start = performance.now();
        this.paint();
        this.lastFrame = performance.now() - start;
        if (this.moving) this.adapt();
      });
    }

    /* Level of detail: as many points while moving as the machine can draw smoothly. */
    adapt() {
      if (this.lastFrame > SLOW) this.stride = Math.min(16, 2 * this.stride);
      else if (this.lastFrame < FAST) this.stride = Math.max(1, this.stride / 2);
    }

    radius() {
      const base = 160 / Math.sqrt(this.n) * Math.max(0.6, Math.min(1.4, this.width / 520));
      return Math.max(0.8, Math.min(6.5, base * Math.pow(this.view.zoom, 0.45)));
    }

    visible() {
      const edge = 8;
      const [left, high] = this.toData(-edge, -edge);
      const [right, low] = this.toData(this.width + edge, this.height + edge);
      const runs = this.cells.runs(left, right, low, high);
      let count = 0;
      for (const [start, stop] of runs) count += stop - start;
      return { runs, count };
    }

    paint() {
      const { runs, count } = this.visible();
      this.context.setTransform(1, 0, 0, 1, 0, 0);
      this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
      if (count > CROWD) this.blend(runs, count);
      this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      this.framed = 0; // side of the thumbnails, if they are drawn
      if (count <= CROWD) this.outlines(runs);
      if (count <= ROOM && this.options.thumb) this.thumbs(runs);
      this.overlay();
    }

    /* One pass for what stands back, one for what stands out. */
    passes(each) {
      if (this.mask) each((i) => !this.mask[i], true);
      each(this.mask ? (i) => this.mask[i] : null, false);
    }

    outlines(runs) {
      const context = this.context, radius = this.radius(), order = this.cells.order;
      this.passes((wanted, faint) => {
        for (const [start, stop] of runs) {
          for (let k = start; k < stop; k++) {
            const i = order[k];
            if (wanted && !wanted(i)) continue;
            const [px, py] = this.toScreen(this.x[i], this.y[i]);
            context.fillStyle = css(this.colorOf(i, faint));
            context.beginPath();
            trace(context, px, py, radius, this.shapes ? this.shapes[i] : 0);
            context.fill();
          }
        }
      });
    }

    blend(runs, count) {
      const W = this.canvas.width, H = this.canvas.height;
      if (!this.image) {
        this.image = this.context.createImageData(W, H);
        this.pixels = new Uint32Array(this.image.data.buffer);
      }
      const pixels = this.pixels, bytes = this.image.data;
      pixels.fill(pixel("--canvas"));
      const radius = this.radius() * this.ratio;
      const stamps = SHAPES.map((_, shape) => stamp(radius, shape));
      const scale = this.scale * this.ratio, order = this.cells.order;
      const left = W / 2 - this.view.x * scale, top = H / 2 + this.view.y * scale;
      const stride = this.moving ? this.stride : 1;
      const alpha = Math.max(0.3, Math.min(1, Math.sqrt((OPAQUE * stride) / count)));
      this.passes((wanted, faint) => {
        for (const [start, stop] of runs) {
          for (let k = start; k < stop; k += stride) {
            const i = order[k];
            if (wanted && !wanted(i)) continue;
            const px = Math.round(left + this.x[i] * scale);
            const py = Math.round(top - this.y[i] * scale);
            const color = this.colorOf(i, faint);
            const offsets = stamps[this.shapes ? this.shapes[i] : 0];
            const red = color & 255, green = (color >> 8) & 255, blue = (color >> 16) & 255;
            for (let o = 0; o < offsets.length; o += 2) {
              const cx = px + offsets[o], cy = py + offsets[o + 1];
              if (cx < 0 || cx >= W || cy < 0 || cy >= H) continue;
              const at = cy * W + cx;
              if (alpha === 1) { pixels[at] = color; continue; }
              bytes[4 * at] += (red - bytes[4 * at]) * alpha;
              bytes[4 * at + 1] += (green - bytes[4 * at + 1]) * alpha;
              bytes[4 * at + 2] += (blue - bytes[4 * at + 2]) * alpha;
            }
          }
        }
      });
      this.context.putImageData(this.image, 0, 0);
    }

    thumbs(runs) {
      const side = this.framed = Math.max(20, Math.min(44, this.width / 14));
      for (const [start, stop] of runs) {
        for (let k = start; k < stop; k++) {
          const i = this.cells.order[k];
          const image = this.options.thumb(i);
          if (!image) continue;
          const [px, py] = this.toScreen(this.x[i], this.y[i]);
          const fit = side / Math.max(image.naturalWidth, image.naturalHeight);
          const w = image.naturalWidth * fit, h = image.naturalHeight * fit;
          this.context.fillStyle = css(this.mask && !this.mask[i] ? this.faint : this.colors[i]);
          this.context.fillRect(px - w / 2 - 2, py - h / 2 - 2, w + 4, h + 4);
          this.context.drawImage(image, px - w / 2, py - h / 2, w, h);
        }
      }
    }

    overlay() {
      this.rings.forEach(({ rows, color }, level) => {
        for (const i of rows) this.ring(i, color, 3 + 3 * level, 2);
      });
      const text = getComputedStyle(this.canvas).color;
      if (this.selected >= 0) this.ring(this.selected, text, 6, 3);
      if (this.hover >= 0) this.ring(this.hover, text, 4, 2);
      if (this.outline.length) this.drawOutline(text);
    }

    drawOutline(color) {
      this.context.strokeStyle = color;
      this.context.lineWidth = 1.5;
      this.context.setLineDash([5, 4]);
      this.context.beginPath();
      this.polygon().forEach(([px, py], k) => (k ? this.context.lineTo(px, py) : this.context.moveTo(px, py)));
      this.context.closePath();
      this.context.stroke();
      this.context.setLineDash([]);
    }

    /* Corners of the box or lasso, in pixels. */
    polygon() {
      if (this.tool !== "box" || this.outline.length < 2) return this.outline;
      const [[ax, ay]] = this.outline, [bx, by] = this.outline[this.outline.length - 1];
      return [[ax, ay], [bx, ay], [bx, by], [ax, by]];
    }

    /* Points inside a polygon of pixels that pass the filters. */
    inside(corners) {
      const points = corners.map(([px, py]) => this.toData(px, py));
      const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
      const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
      const rows = [];
      for (const [start, stop] of this.cells.runs(left, right, low, high)) {
        for (let k = start; k < stop; k++) {
          const i = this.cells.order[k], x = this.x[i], y = this.y[i];
          if (x < left || x > right || y < low || y > high || (this.mask && !this.mask[i])) continue;
          let odd = false;
          for (let a = 0, b = points.length - 1; a < points.length; b = a++) {
            const [ax, ay] = points[a], [bx, by] = points[b];
            if ((ay > y) !== (by > y) && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) odd = !odd;
          }
          if (odd) rows.push(i);
        }
      }
      return rows;
    }

    /* A line around a point or its thumbnail, `gap` pixels away from it. */
    ring(i, color, gap, width) {
      const [px, py] = this.toScreen(this.x[i], this.y[i]);
      this.context.strokeStyle = color;
      this.context.lineWidth = width;
      this.context.beginPath();
      if (this.framed) {
        const half = this.framed / 2 + gap + 1;
        this.context.rect(px - half, py - half, 2 * half, 2 * half);
      } else this.context.arc(px, py, this.radius() + gap, 0, 2 * Math.PI);
      this.context.stroke();
    }

    /* The point nearest to a place on the screen, or -1. */
    nearest(px, py, reach = REACH) {
      const [dx, dy] = this.toData(px, py);
      const span = reach / this.scale;
      let best = -1, least = span * span;
      for (const [start, stop] of this.cells.runs(dx - span, dx + span, dy - span, dy + span)) {
        for (let k = start; k < stop; k++) {
          const i = this.cells.order[k];
          if (this.mask && !this.mask[i]) continue;
          const square = (this.x[i] - dx) ** 2 + (this.y[i] - dy) ** 2;
          if (square < least) [best, least] = [i, square];
        }
      }
      return best;
    }

    /* The next point from i in a direction: near, and not too far to the side. */
    step(i, ax, ay) {
      let best = -1, least = Infinity;
      const { runs } = this.visible();
      for (const [start, stop] of runs) {
        for (let k = start; k < stop; k++) {
          const j = this.cells.order[k];
          if (this.mask && !this.mask[j]) continue;
          const dx = this.x[j] - this.x[i], dy = this.y[j] - this.y[i];
          const along = dx * ax + dy * ay, aside = Math.abs(dx * ay) + Math.abs(dy * ax);
          if (along <= 0 || aside > 2 * along) continue;
          const cost = along + 2 * aside;
          if (cost < least) [best, least] = [j, cost];
        }
      }
      return best;
    }

    listen() {
      const canvas = this.canvas;
      canvas.addEventListener("pointerdown", (event) => this.down(event));
      canvas.addEventListener("pointermove", (event) => this.move(event));
      for (const name of ["pointerup", "pointercancel"]) {
        canvas.addEventListener(name, (event) => this.up(event, name === "pointercancel"));
      }
      canvas.addEventListener("pointerleave", () => { if (!this.pointers.size) this.setHover(-1); });
      canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      canvas.addEventListener("keydown", (event) => this.key(event));
    }

    place(event) {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    }

    down(event) {
      this.canvas.focus({ preventScroll: true });
      this.canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, this.place(event));
      this.dragged = this.pointers.size > 1;
      this.from = this.place(event);
    }

    move(event) {
      const at = this.place(event);
      if (!this.pointers.has(event.pointerId)) {
        this.setHover(this.nearest(...at));
        return;
      }
      const before = [...this.pointers.values()];
      const old = this.pointers.get(event.pointerId);
      this.pointers.set(event.pointerId, at);
      if (before.length === 2) {
        const after = [...this.pointers.values()];
        const gap = ([a, b]) => Math.hypot(a[0] - b[0], a[1] - b[1]) || 1;
        this.zoomBy(gap(after) / gap(before), (after[0][0] + after[1][0]) / 2, (after[0][1] + after[1][1]) / 2);
        return;
      }
      if (Math.hypot(at[0] - this.from[0], at[1] - this.from[1]) > 4) this.dragged = true;
      if (!this.dragged) return;
      if (this.tool === "move") return this.pan(at[0] - old[0], at[1] - old[1]);
      if (!this.outline.length) this.outline.push(this.from);
      this.outline.push(at);
      this.draw();
    }

    up(event, cancelled) {
      const at = this.place(event);
      const known = this.pointers.delete(event.pointerId);
      if (this.outline.length) {
        const corners = this.polygon();
        this.outline = [];
        this.draw();
        if (!cancelled && this.options.onSelect) this.options.onSelect(this.inside(corners), event);
        return;
      }
      if (!known || cancelled || this.dragged) return;
      const i = this.nearest(...at, event.pointerType === "touch" ? 24 : REACH);
      this.setHover(i);
      if (this.options.onPick) this.options.onPick(i);
    }

    pan(px, py) {
      const scale = this.scale;
      this.setView({ x: this.view.x - px / scale, y: this.view.y + py / scale, zoom: this.view.zoom });
    }

    wheel(event) {
      const wanted = this.options.wheel === "always" || event.ctrlKey || document.activeElement === this.canvas;
      if (!wanted) return;
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : 1;
      this.zoomBy(Math.exp(-event.deltaY * unit * 0.0018), ...this.place(event));
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
      if (arrows[event.key]) {
        const [ax, ay] = arrows[event.key];
        if (event.shiftKey) this.pan(-ax * this.width / 6, ay * this.height / 6);
        else this.go(ax, ay);
      } else if (event.key === "+" || event.key === "=") this.zoomIn(1.4);
      else if (event.key === "-" || event.key === "_") this.zoomIn(1 / 1.4);
      else if (event.key === "0" || event.key === "Home") this.reset();
      else if (event.key === "Enter" || event.key === " ") {
        if (this.hover < 0) return;
        if (this.options.onPick) this.options.onPick(this.hover);
      } else if (event.key === "Escape") {
        this.setHover(-1);
        if (this.options.onPick) this.options.onPick(-1);
      } else return;
      event.preventDefault();
    }

    go(ax, ay) {
      const current = this.hover >= 0 ? this.hover : this.selected;
      const next = current >= 0
        ? this.step(current, ax, ay)
        : this.nearest(this.width / 2, this.height / 2, this.width);
      if (next < 0) return;
      this.setHover(next);
      this.reveal(next);
    }

    setHover(i) {
      if (i === this.hover) return;
      this.hover = i;
      this.draw();
      if (this.options.onHover) this.options.onHover(i);
    }
  }

  /* Whether a point of the plane is inside a shape of a radius. */
  function covers(shape, dx, dy, radius) {
    if (shape === 1) return Math.max(Math.abs(dx), Math.abs(dy)) <= 0.85 * radius;
    if (shape === 2) return dy <= 0.7 * radius && dy >= -1.1 * radius + 2 * Math.abs(dx) * 0.9;
    if (shape === 3) return Math.abs(dx) + Math.abs(dy) <= 1.25 * radius;
    return dx * dx + dy * dy <= radius * radius + 0.3;
  }

  /* Offsets of the pixels of a shape. */
  function stamp(radius, shape) {
    const offsets = [], reach = Math.ceil(1.3 * radius);
    for (let dy = -reach; dy <= reach; dy++) {
      for (let dx = -reach; dx <= reach; dx++) {
        if (covers(shape, dx, dy, radius)) offsets.push(dx, dy);
      }
    }
    return offsets.length ? offsets : [0, 0];
  }

  /* The outline of a shape on a canvas. */
  function trace(context, x, y, r, shape) {
    if (shape === 0) return context.arc(x, y, r, 0, 2 * Math.PI);
    if (shape === 1) return context.rect(x - 0.88 * r, y - 0.88 * r, 1.76 * r, 1.76 * r);
    const corners = shape === 2
      ? [[0, -1.2], [1.1, 0.8], [-1.1, 0.8]]
      : [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]];
    corners.forEach(([dx, dy], i) => (i ? context.lineTo(x + dx * r, y + dy * r) : context.moveTo(x + dx * r, y + dy * r)));
    context.closePath();
  }

  const styles = new Map();
  function css(pixel) {
    let style = styles.get(pixel);
    if (!style) {
      style = `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;
      styles.set(pixel, style);
    }
    return style;
  }

  /* A color of the style sheet as a pixel. */
  const probed = new Map();
  function pixel(name) {
    const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    if (!probed.has(value)) probed.set(value, parse(value));
    return probed.get(value);
  }

  function parse(color) {
    const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    probe.fillStyle = color;
    probe.fillRect(0, 0, 1, 1);
    return new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0];
  }

  /* Unit-square coordinates from interleaved 16-bit integers. */
  function unpack(buffer) {
    const pairs = new Uint16Array(buffer), n = pairs.length / 2;
    const x = new Float32Array(n), y = new Float32Array(n);
    for (let i = 0; i < n; i++) {
      x[i] = pairs[2 * i] / 65535;
      y[i] = pairs[2 * i + 1] / 65535;
    }
    return { x, y };
  }

  window.rpml = { Scatter, SHAPES, parse, pixel, css, unpack };
})();
