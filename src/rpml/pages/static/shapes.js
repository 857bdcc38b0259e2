"use strict";
/* Shapes and colors of points. */
(() => {
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

  Object.assign(window.rpml, { SHAPES, stamp, trace, cross, css, pixel, parse });
})();
