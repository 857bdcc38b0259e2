"use strict";
/* Points of the unit square, and which of them are where. */
window.rpml = {};
(() => {
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

  Object.assign(window.rpml, { Cells, unpack });
})();
