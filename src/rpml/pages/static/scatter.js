"use strict";
/* A map of points: pan, zoom, hover, pick, by mouse, touch or keyboard. */
(() => {
  const REACH = 14; // pixels within which a point counts as pointed at

  class Scatter extends window.rpml.Drawing {
    /* As a Drawing; more options: onHover(i), onPick(i), onSelect(rows, event),
       wheel: "always" or "focused". */
    constructor(canvas, x, y, options = {}) {
      super(canvas, x, y, options);
      this.pointers = new Map();
      this.listen();
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
            if ((ys[a] > y) !== (ys[b] > y) && x < ((xs[b] - xs[a]) * (y - ys[a])) / (ys[b] - ys[a]) + xs[a]) odd = !odd;
          }
          if (odd) rows.push(i);
        }
      }
      return rows;
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
        const act = event.key === " " && this.options.onToggle || this.options.onPick;
        if (act) act(this.hover);
      } else if (event.key.toLowerCase() === "a" && this.options.onSelect) {
        this.options.onSelect(this.inside([[0, 0], [this.width, 0], [this.width, this.height], [0, this.height]]), event);
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

  window.rpml.Scatter = Scatter;
})();
