// The nodes and their pods, drawn on a canvas that is as large as what is seen of it.

import { called } from '/texts.js';

const SIZES = {
  large: { width: 292, pad: 14, square: 15, gap: 3, top: 46, bottom: 20, between: 14 },
  card: { width: 208, pad: 10, square: 9, gap: 2, top: 40, bottom: 16, between: 10 },
  tile: { width: 96, pad: 5, square: 6, gap: 1, top: 15, bottom: 6, between: 5 },
};
const HEADER = 30;
const EDGE = 16;
/** Up to so many nodes are drawn large, and from so many on as tiles. */
const FEW = 12;
const MANY = 60;

export class Grid {
  constructor({ scroll, spread, canvas, colour, money, onHover, onPick }) {
    Object.assign(this, { scroll, spread, canvas, colour, money, onHover, onPick });
    this.size = 'auto';
    this.nodes = [];
    this.boxes = [];
    this.headers = [];
    this.chosen = null;
    this.hovered = null;
    this.empty = '';
    this.context = canvas.getContext('2d');
    scroll.addEventListener(
      'scroll',
      () => {
        this.draw();
        this.hover(null);
      },
      { passive: true },
    );
    canvas.addEventListener('mousemove', (event) => this.hover(event));
    canvas.addEventListener('mouseleave', () => this.hover(null));
    canvas.addEventListener('click', (event) => this.pick(event));
    new ResizeObserver(() => this.layout()).observe(scroll);
  }

  show(nodes) {
    this.nodes = nodes;
    this.layout();
  }

  get name() {
    const few = this.nodes.length <= FEW && this.nodes.every(({ pods }) => pods.length <= 110);
    if (this.size === 'tile' || (this.size === 'auto' && MANY <= this.nodes.length)) return 'tile';
    return few ? 'large' : 'card';
  }

  // Where every node is: pools one below the other, nodes from left to right, each row as high as its highest node.
  layout() {
    const shape = SIZES[this.name];
    const room = this.scroll.clientWidth - 2 * EDGE + shape.between;
    const columns = Math.max(1, Math.floor(room / (shape.width + shape.between)));
    // Cards share what is left of the row.
    const width = Math.min(shape.width * 1.25, room / columns - shape.between);
    const across = Math.max(1, Math.floor((width - 2 * shape.pad + shape.gap) / (shape.square + shape.gap)));
    this.shape = { ...shape, width, across, columns };
    this.boxes = [];
    this.headers = [];
    const pools = new Map();
    for (const node of this.nodes) {
      if (!pools.has(node.pool)) pools.set(node.pool, []);
      pools.get(node.pool).push(node);
    }
    let y = 0;
    for (const [pool, nodes] of pools) {
      const price = nodes.reduce((sum, node) => sum + node.price, 0);
      this.headers.push({ y, pool, count: nodes.length, price });
      y += HEADER;
      for (let first = 0; first < nodes.length; first += columns) {
        const row = nodes.slice(first, first + columns);
        const rows = Math.max(1, ...row.map((node) => Math.ceil(node.pods.length / across)));
        const height = shape.top + rows * (shape.square + shape.gap) - shape.gap + shape.bottom;
        row.forEach((node, column) => {
          this.boxes.push({ node, x: EDGE + column * (width + shape.between), y, width, height });
        });
        y += height + shape.between;
      }
      y += 6;
    }
    this.height = y + 8;
    this.spread.style.height = `${this.height}px`;
    this.draw();
    // What is under a pointer that rests there has changed.
    if (this.last) this.hover(this.last);
  }

  draw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.paint();
    });
  }

  paint() {
    const { scroll, canvas, context } = this;
    const [width, height, ratio] = [scroll.clientWidth, scroll.clientHeight, window.devicePixelRatio || 1];
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const top = scroll.scrollTop;
    context.setTransform(ratio, 0, 0, ratio, 0, -top * ratio);
    context.clearRect(0, top, width, height);
    context.textBaseline = 'alphabetic';
    if (!this.boxes.length) {
      context.font = '13px ' + this.colour('font');
      context.fillStyle = this.colour('dim');
      context.textAlign = 'center';
      context.fillText(this.empty, width / 2, height / 2);
    }
    for (const header of this.headers) {
      if (header.y + HEADER < top || top + height < header.y) continue;
      this.header(header);
    }
    for (let index = this.firstBelow(top); index < this.boxes.length; index++) {
      const box = this.boxes[index];
      if (top + height < box.y) break;
      if (this.name === 'tile') this.tile(box);
      else this.card(box);
    }
  }

  /** The position of the first box that ends below y. Boxes are in order of rows, and rows do not overlap. */
  firstBelow(y) {
    let [low, high] = [0, this.boxes.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.boxes[middle].y + this.boxes[middle].height < y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  header({ y, pool, count, price }) {
    const { context } = this;
    const name = pool || 'not of a pool';
    context.font = '600 12px ' + this.colour('font');
    context.fillStyle = this.colour('text');
    context.textAlign = 'left';
    context.fillText(name, EDGE, y + 20);
    const at = EDGE + context.measureText(name).width + 10;
    context.font = '12px ' + this.colour('font');
    context.fillStyle = this.colour('dim');
    context.fillText(`${count} ${count === 1 ? 'node' : 'nodes'}${price ? ' · ' + this.money(price) + '/h' : ''}`, at, y + 20);
  }

  frame({ node, x, y, width, height }, radius) {
    const { context } = this;
    const colour = this.colour(node.state);
    context.beginPath();
    context.roundRect(x + 0.5, y + 0.5, width - 1, height - 1, radius);
    context.fillStyle = this.colour('surface');
    context.fill();
    const chosen = this.chosen === key(node);
    context.lineWidth = chosen ? 2 : 1;
    context.setLineDash(['launching', 'joining'].includes(node.state) ? [4, 3] : []);
    context.strokeStyle = chosen
      ? this.colour('accent')
      : node.state === 'ready'
        ? this.colour(this.hovered === key(node) ? 'line-strong' : 'line')
        : colour;
    context.stroke();
    context.setLineDash([]);
  }

  card(box) {
    const { context, shape } = this;
    const { node, x, y, width, height } = box;
    context.globalAlpha = node.state === 'terminating' ? 0.55 : 1;
    this.frame(box, 8);
    const [left, right] = [x + shape.pad, x + width - shape.pad];
    const down = shape.top - 40;
    context.font = '600 12px ' + this.colour('font');
    context.fillStyle = this.colour('text');
    context.textAlign = 'left';
    context.fillText(node.type || 'to be chosen', left, y + down / 2 + 18);
    context.textAlign = 'right';
    context.font = '11px ' + this.colour('font');
    context.fillStyle = this.colour('dim');
    context.fillText(node.price ? this.money(node.price) + '/h' : '', right, y + down / 2 + 18);
    context.textAlign = 'left';
    context.beginPath();
    context.arc(left + 3, y + down / 2 + 29.5, 3, 0, 2 * Math.PI);
    context.fillStyle = this.colour(node.state);
    context.fill();
    const spot = node.capacity === 'spot';
    const words = [node.state === 'ready' ? '' : called(node.state), node.zone, spot ? '' : node.capacity].filter(Boolean).join(' · ');
    context.fillStyle = this.colour(['ready', 'terminating'].includes(node.state) ? 'dim' : node.state);
    context.fillText(clip(context, words, width - 2 * shape.pad - 12 - (spot ? 30 : 0)), left + 11, y + down / 2 + 33);
    if (spot) {
      context.textAlign = 'right';
      context.fillStyle = this.colour('accent');
      context.fillText('spot', right, y + down / 2 + 33);
      context.textAlign = 'left';
    }
    this.pods(box);
    const bar = (share, at) => {
      context.fillStyle = this.colour('track');
      context.fillRect(left, y + height - at, width - 2 * shape.pad, 2);
      context.fillStyle = this.colour('faint');
      context.fillRect(left, y + height - at, (width - 2 * shape.pad) * Math.min(1, share || 0), 2);
    };
    bar(node.cpu[0] / node.cpu[1], 9);
    bar(node.memory[0] / node.memory[1], 5.5);
    context.globalAlpha = 1;
  }

  tile(box) {
    const { context, shape } = this;
    const { node, x, y, width } = box;
    context.globalAlpha = node.state === 'terminating' ? 0.55 : 1;
    this.frame(box, 4);
    context.font = '9.5px ' + this.colour('font');
    context.textAlign = 'left';
    context.fillStyle = this.colour(node.state === 'ready' ? 'dim' : node.state);
    context.fillText(
      clip(context, (node.type || '…').replace('xlarge', 'xl').replace('large', 'l'), width - 2 * shape.pad),
      x + shape.pad,
      y + 11,
    );
    this.pods(box);
    context.globalAlpha = 1;
  }

  pods({ node, x, y }) {
    const { context, shape } = this;
    const step = shape.square + shape.gap;
    node.pods.forEach(([, workload, state], index) => {
      const px = x + shape.pad + (index % shape.across) * step;
      const py = y + shape.top + Math.floor(index / shape.across) * step;
      const colour = state === 'daemon' ? this.colour('daemon') : this.colour('w' + this.hue(workload));
      if (state === 'starting' || state === 'ending') {
        context.strokeStyle = colour;
        context.lineWidth = 1;
        context.strokeRect(px + 0.5, py + 0.5, shape.square - 1, shape.square - 1);
        if (state === 'ending') context.fillRect(px + shape.square / 2 - 1, py + shape.square / 2 - 1, 2, 2);
      } else {
        context.fillStyle = colour;
        context.fillRect(px, py, shape.square, shape.square);
      }
    });
  }

  /** The box and the pod under the pointer. */
  under(event) {
    const frame = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top + this.scroll.scrollTop];
    const inside = (box) => box.x <= x && x < box.x + box.width && box.y <= y && y < box.y + box.height;
    for (let index = this.firstBelow(y); index < this.boxes.length && this.boxes[index].y <= y; index++) {
      const box = this.boxes[index];
      if (!inside(box)) continue;
      const { shape } = this;
      const step = shape.square + shape.gap;
      const [column, row] = [Math.floor((x - box.x - shape.pad) / step), Math.floor((y - box.y - shape.top) / step)];
      const known = 0 <= column && column < shape.across && 0 <= row;
      return { node: box.node, pod: known ? box.node.pods[row * shape.across + column] : undefined };
    }
    return null;
  }

  hover(event) {
    this.last = event;
    const found = event && this.under(event);
    const name = found && key(found.node);
    if (name !== this.hovered) {
      this.hovered = name;
      this.draw();
    }
    this.canvas.style.cursor = found ? 'pointer' : 'default';
    this.onHover(found, event);
  }

  pick(event) {
    const found = this.under(event);
    if (found) this.onPick(found.node, found.pod);
  }

  choose(name) {
    this.chosen = name;
    this.draw();
  }

  /** Chooses a neighbour of the chosen node, and scrolls to it. */
  move(by, inRows) {
    if (!this.boxes.length) return null;
    const at = this.boxes.findIndex((box) => key(box.node) === this.chosen);
    const next = at < 0 ? 0 : Math.min(this.boxes.length - 1, Math.max(0, at + by * (inRows ? this.shape.columns : 1)));
    const box = this.boxes[next];
    this.choose(key(box.node));
    const { scroll } = this;
    if (box.y < scroll.scrollTop) scroll.scrollTop = box.y - HEADER;
    else if (scroll.scrollTop + scroll.clientHeight < box.y + box.height) scroll.scrollTop = box.y + box.height + 10 - scroll.clientHeight;
    return box.node;
  }
}

/** What a node is known by: its claim stays when it becomes a node. */
export const key = (node) => node.claim || node.name;

function clip(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (0 < end && width < context.measureText(text.slice(0, end) + '…').width) end--;
  return text.slice(0, end) + '…';
}
