"use strict";
/* Points drawn on a canvas. Few points in view are drawn as shapes; a crowd is blended pixel by
   pixel, which keeps 200,000 points smooth and shows their density; thumbnails appear where there
   is room. */
(() => {
  const { Cells, SHAPES, color, cross, css, pixel, stamp, trace } = window.rpml;
  const CROWD = 5000; // points in view beyond which they are blended
  const OPAQUE = 15000; // points in view beyond which they become translucent
  const ROOM = 90; // points in view below which thumbnails are drawn
  const MAX_ZOOM = 400;
  const SLOW = 16, FAST = 6; // milliseconds a frame: beyond and below, fewer or more points
  const REST = 140; // milliseconds after the last move until every point is drawn again

  class Drawing {
    /* x, y: Float32Array in the unit square. options: onView(view),
       thumb(i) -> image or null. */
    constructor(canvas, x, y, options = {}) {
      Object.assign(this, { canvas, x, y, options, n: x.length });
      this.context = canvas.getContext("2d");
      this.view = { x: 0.5, y: 0.5, zoom: 1 };
      this.colors = new Uint32Array(this.n).fill(0xff94887d);
      this.shapes = this.behind = null;
      this.faint = 0xffd5d0cc;
      this.filters = new Map();
      this.mask = null; // what passes every filter
      this.selection = null; // Uint8Array of selected points
      this.tool = "move"; // or "box" or "lasso": what dragging does
      this.outline = []; // of the box or lasso being drawn
      this.hover = -1;
      this.selected = -1;
      this.rings = [];
      this.query = null; // place of a query that is no point: [x, y]
      this.stride = 1; // while moving, every how many points one is drawn
      this.blended = false; // whether the image shows the points as they are now
      this.setPoints(x, y);
      new ResizeObserver(() => this.resize()).observe(canvas);
      this.resize();
    }

    setPoints(x, y) {
      this.x = x;
      this.y = y;
      this.cells = new Cells(x, y);
      this.redraw();
    }

    /* colors: Uint32Array of opaque little-endian RGBA; faint: the color of masked points;
       shapes: Uint8Array of indices into SHAPES, or null for circles; behind: Uint8Array of the
       points that others may cover, or null. */
    setColors(colors, faint, shapes = null, behind = null) {
      Object.assign(this, { colors, faint, shapes, behind });
      this.redraw();
    }

    /* rings: [{rows, color}]; query: [x, y] or null. */
    mark({ hover = this.hover, selected = this.selected, rings = this.rings, query = this.query }) {
      Object.assign(this, { hover, selected, rings, query });
      this.draw();
    }

    setSelection(selection) {
      if (!selection && !this.selection) return;
      this.selection = selection;
      this.accent = pixel(color("--selection"));
      this.redraw();
    }

    colorOf(i, faint) {
      if (this.selection && this.selection[i]) return this.accent;
      return faint ? this.faint : this.colors[i];
    }

    /* Points outside a filter stand back; mask: Uint8Array, or null to remove the filter. */
    filter(name, mask) {
      if (!mask && !this.filters.has(name)) return;
      if (mask) this.filters.set(name, mask);
      else this.filters.delete(name);
      const [first = null, ...others] = this.filters.values();
      this.mask = others.length ? first.map((on, i) => on && others.every((other) => other[i])) : first;
      this.redraw();
    }

    setView(view, quiet = false) {
      const zoom = Math.max(1, Math.min(MAX_ZOOM, view.zoom));
      const slack = 0.5 / zoom;
      const inside = (v) => Math.max(Math.min(0.5, slack), Math.min(Math.max(0.5, 1 - slack), v));
      this.view = { x: inside(view.x), y: inside(view.y), zoom };
      clearTimeout(this.resting);
      this.moving = true;
      this.resting = setTimeout(() => { this.moving = false; if (this.thinned) this.redraw(); }, REST);
      this.redraw();
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
      this.blended = false;
      this.paint(); // at once: a canvas that changes its size is empty
    }

    /* The points have changed, not only the marks on them. */
    redraw() {
      this.blended = false;
      this.draw();
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
      if (count > CROWD) {
        if (!this.blended) this.blend(runs, count);
        this.blended = true;
        this.context.putImageData(this.image, 0, 0);
      }
      this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      this.framed = 0; // side of the thumbnails, if they are drawn
      if (count <= CROWD) this.outlines(runs);
      if (count <= ROOM && this.options.thumb) this.thumbs(runs);
      this.overlay();
    }

    /* A pass for what stands back, one for what others may cover, one for what stands out. */
    passes(each) {
      const { mask, behind } = this;
      if (mask) each((i) => !mask[i], true);
      if (behind) each((i) => behind[i] && (!mask || mask[i]), false);
      if (behind) each((i) => !behind[i] && (!mask || mask[i]), false);
      else each(mask ? (i) => mask[i] : null, false);
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
      pixels.fill(pixel(color("--canvas")));
      const radius = this.radius() * this.ratio;
      const stamps = SHAPES.map((_, shape) => stamp(radius, shape));
      const scale = this.scale * this.ratio, order = this.cells.order;
      const left = W / 2 - this.view.x * scale, top = H / 2 + this.view.y * scale;
      const stride = this.moving ? this.stride : 1;
      this.thinned = stride > 1;
      const alpha = Math.max(0.3, Math.min(1, Math.sqrt((OPAQUE * stride) / count)));
      this.passes((wanted, faint) => {
        for (const [start, stop] of runs) {
          for (let k = start; k < stop; k += stride) {
            const i = order[k];
            if (wanted && !wanted(i)) continue;
            const px = Math.round(left + this.x[i] * scale);
            const py = Math.round(top - this.y[i] * scale);
            const paint = this.colorOf(i, faint);
            const offsets = stamps[this.shapes ? this.shapes[i] : 0];
            const red = paint & 255, green = (paint >> 8) & 255, blue = (paint >> 16) & 255;
            for (let o = 0; o < offsets.length; o += 2) {
              const cx = px + offsets[o], cy = py + offsets[o + 1];
              if (cx < 0 || cx >= W || cy < 0 || cy >= H) continue;
              const at = cy * W + cx;
              if (alpha === 1) { pixels[at] = paint; continue; }
              bytes[4 * at] += (red - bytes[4 * at]) * alpha;
              bytes[4 * at + 1] += (green - bytes[4 * at + 1]) * alpha;
              bytes[4 * at + 2] += (blue - bytes[4 * at + 2]) * alpha;
            }
          }
        }
      });
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
      if (this.query) cross(this.context, ...this.toScreen(...this.query), [color("--canvas"), text]);
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
  }

  window.rpml.Drawing = Drawing;
})();
