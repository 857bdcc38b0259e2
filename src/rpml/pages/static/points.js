"use strict";
/* Points of the unit square: which of them are where, their shapes and colors; and elements of a page. */
window.rpml = {};
(() => {
  function element(name, properties = {}, ...children) {
    const { dataset, attributes, ...rest } = properties;
    const node = Object.assign(document.createElement(name), rest);
    Object.assign(node.dataset, dataset || {});
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

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

  const SHAPES = ["circle", "square", "triangle", "diamond"];

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

  /* A cross in a color, with a rim in another. */
  function cross(context, x, y, [rim, color]) {
    for (const [style, width] of [[rim, 7], [color, 3]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.beginPath();
      for (const dy of [9, -9]) {
        context.moveTo(x - 9, y - dy);
        context.lineTo(x + 9, y + dy);
      }
      context.stroke();
    }
  }

  const styles = new Map();
  function css(pixel) {
    if (!styles.has(pixel)) styles.set(pixel, `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`);
    return styles.get(pixel);
  }

  /* A color of the style sheet, in the theme of the page. */
  const probe = document.body.appendChild(element("i", { hidden: true }));
  function color(name) {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  }

  /* A color as a pixel: opaque little-endian RGBA. */
  const pixels = new Map();
  function pixel(value) {
    if (!pixels.has(value)) {
      const painted = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
      painted.fillStyle = value;
      painted.fillRect(0, 0, 1, 1);
      pixels.set(value, new Uint32Array(painted.getImageData(0, 0, 1, 1).data.buffer)[0]);
    }
    return pixels.get(value);
  }

  Object.assign(window.rpml, { Cells, SHAPES, color, cross, css, element, pixel, stamp, trace, unpack });
})();
