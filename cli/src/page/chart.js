// The cost per hour over time: a line in steps.

const LEFT = 58;
const RIGHT = 16;
const TOP = 8;
const BOTTOM = 22;
/** The least that the axis reaches to. */
const CENT = 1e7;

export class Chart {
  constructor({ canvas, colour, money, time, says }) {
    Object.assign(this, { canvas, colour, money, time, says });
    this.context = canvas.getContext('2d');
    this.steps = [];
    this.range = 0;
    this.at = null;
    canvas.addEventListener('mousemove', (event) => {
      this.at = event.offsetX;
      this.draw();
    });
    canvas.addEventListener('mouseleave', () => {
      this.at = null;
      this.draw();
    });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /** Times are marked in round distances from `origin`. */
  show(steps, begun, now, origin) {
    Object.assign(this, { steps, begun, now, origin });
    this.draw();
  }

  draw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.paint();
    });
  }

  /** The cost at a time: that of the last step before it. */
  cost(time) {
    let [low, high] = [0, this.steps.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.steps[middle][0] <= time) low = middle + 1;
      else high = middle;
    }
    return low ? this.steps[low - 1][1] : 0;
  }

  paint() {
    const { canvas, context } = this;
    const [width, height, ratio] = [canvas.clientWidth, canvas.clientHeight, window.devicePixelRatio || 1];
    if (!width || !height || this.now === undefined) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const to = Math.max(this.now, this.begun + 60_000);
    const from = this.range ? Math.max(this.begun, to - this.range) : this.begun;
    const shown = this.steps.filter(([time]) => from < time);
    const most = Math.max(this.cost(from), peak(shown), CENT);
    const step = nice(most / 3);
    const ceiling = Math.ceil((most * 1.08) / step) * step;
    const x = (time) => LEFT + ((time - from) / (to - from)) * (width - LEFT - RIGHT);
    const y = (cost) => TOP + (1 - cost / ceiling) * (height - TOP - BOTTOM);
    context.font = '11px ' + this.colour('font');
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    context.lineWidth = 1;
    for (let cost = 0; cost <= ceiling; cost += step) {
      context.strokeStyle = this.colour('line');
      line(context, LEFT, Math.round(y(cost)) + 0.5, width - RIGHT, Math.round(y(cost)) + 0.5);
      context.fillStyle = this.colour('dim');
      context.fillText(this.money(cost), LEFT - 8, y(cost));
    }
    context.textAlign = 'center';
    const every = span((to - from) / Math.max(2, Math.floor((width - LEFT) / 110)));
    for (let time = this.origin + Math.ceil((from - this.origin) / every) * every; time <= to; time += every) {
      if (x(time) < width - RIGHT - 16) context.fillText(this.time(time), x(time), height - 10);
    }
    const now = Math.min(this.now, to);
    context.beginPath();
    context.moveTo(x(from), y(this.cost(from)));
    let last = this.cost(from);
    let drawn = -1;
    for (const [time, cost] of shown) {
      // More than a few steps in a pixel look like a block: their ends are enough.
      const at = x(time);
      if (at - drawn < 0.3 && cost < last) {
        last = cost;
        continue;
      }
      context.lineTo(at, y(last));
      context.lineTo(at, y(cost));
      [last, drawn] = [cost, at];
    }
    context.lineTo(x(now), y(last));
    context.strokeStyle = this.colour('accent');
    context.lineWidth = 1.6;
    context.lineJoin = 'round';
    context.stroke();
    context.lineTo(x(now), y(0));
    context.lineTo(x(from), y(0));
    context.closePath();
    context.globalAlpha = 0.1;
    context.fillStyle = this.colour('accent');
    context.fill();
    context.globalAlpha = 1;
    if (this.at !== null && LEFT <= this.at && this.at <= width - RIGHT) {
      const time = Math.min(now, from + ((this.at - LEFT) / (width - LEFT - RIGHT)) * (to - from));
      context.lineWidth = 1;
      context.strokeStyle = this.colour('line-strong');
      line(context, Math.round(x(time)) + 0.5, TOP, Math.round(x(time)) + 0.5, height - BOTTOM);
      context.beginPath();
      context.arc(x(time), y(this.cost(time)), 3.5, 0, 2 * Math.PI);
      context.fillStyle = this.colour('accent');
      context.fill();
      this.says.textContent = `${this.money(this.cost(time))} at ${this.time(time)}`;
    } else {
      this.says.textContent = '';
    }
  }
}

function peak(steps) {
  return steps.reduce((most, [, cost]) => Math.max(most, cost), 0);
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

/** The next of 1, 2, 5 times a power of ten. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].find((factor) => value <= factor * power) * power;
}

/** The next span of a round number of seconds, minutes, hours or days. */
function span(milliseconds) {
  const seconds = [10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400];
  const found = seconds.find((each) => milliseconds <= each * 1000);
  return 1000 * (found ?? 86400 * Math.ceil(milliseconds / 86400_000));
}
