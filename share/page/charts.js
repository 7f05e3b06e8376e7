// charts.js: what is drawn: lines by dygraphs, ranks over time on a canvas, time lines and trials as SVG. Names of runs
// and texts of events are foreign: they become text nodes, never markup.
'use strict';

const PHASES = ['data', 'forward', 'backward', 'comm', 'optimizer', 'other'];
const COLORS = ['#4c8bf5', '#e8710a', '#12a37f', '#d93025', '#a142f4', '#80868b', '#c5a000', '#e52592'];

function make(tag, attributes, ...children) {
  const node = tag.startsWith('svg:') ? document.createElementNS('http://www.w3.org/2000/svg', tag.slice(4))
                                      : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function bytesText(bytes) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let unit = 0;
  while (bytes >= 999.5 && unit < 5) { bytes /= 1000; unit++; }
  return `${bytes >= 100 || unit === 0 ? Math.round(bytes) : bytes.toPrecision(3)} ${units[unit]}`;
}

function numberText(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return '-';
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(2).replace(/\.?0+e/, 'e');
  if (size < 1e6) return String(Number(value.toPrecision(5)));
  return size < 1e9 ? `${Number((value / 1e6).toPrecision(4))} M` : `${Number((value / 1e9).toPrecision(4))} G`;
}
const colorOf = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function table(heads, rows) {
  const body = make('tbody', {}, ...rows.map(row => make('tr', {}, ...row.map(cell => cell instanceof Node ? make('td', {}, cell)
    : make('td', typeof cell === 'number' ? {class: 'number'} : {}, typeof cell === 'number' ? numberText(cell) : cell)))));
  return make('table', {}, make('thead', {}, make('tr', {}, ...heads.map(head => make('th', {scope: 'col'}, head)))), body);
}

// --- lines ---

// One chart: made when it has something to show, drawn anew afterwards. `zoomed` hears of [from, to].
class Lines {
  constructor(node, zoomed, options) {
    Object.assign(this, {node, zoomed, options, graph: null, labels: ''});
  }

  show(labels, rows, window) {
    if (rows.length === 0 || labels.length < 2) return this.clear('nothing yet');
    const key = labels.join('\n');
    const dateWindow = window || [rows[0][0], Math.max(rows[rows.length - 1][0], rows[0][0] + 1)];
    if (this.graph && key === this.labels) return this.graph.updateOptions({file: rows, dateWindow});
    this.clear('');
    this.labels = key;
    this.graph = new Dygraph(this.node, rows, {
      labels, dateWindow, colors: labels.slice(1).map((_, i) => COLORS[i % COLORS.length]), connectSeparatedPoints: true,
      gridLineColor: colorOf('--soft'), axisLineColor: colorOf('--soft'), legend: 'follow', strokeWidth: 1.5,
      includeZero: false, animatedZooms: false, rightGap: 8, yRangePad: 6, xRangePad: 0,
      legendFormatter: data => this.legend(data), zoomCallback: (from, to) => this.zoomed(from, to),
      axes: {x: {drawGrid: false, axisLabelFormatter: numberText}, y: {axisLabelWidth: 52, axisLabelFormatter: numberText}}, ...this.options,
    });
    return undefined;
  }

  // dygraphs wants markup here: it is made of nodes, so that no name becomes part of it.
  legend(data) {
    const box = make('div');
    if (data.x !== undefined) box.append(make('div', {}, data.xHTML));
    for (const one of data.series) {
      if (!one.isVisible || one.y === undefined) continue;
      const place = COLORS.indexOf(one.color);
      box.append(make('div', {class: place < 0 ? '' : `c${place}`}, `${one.label}: ${numberText(one.y)}`));
    }
    return box.innerHTML;
  }

  clear(text) {
    if (this.graph) this.graph.destroy();
    this.graph = null;
    this.labels = '';
    this.node.replaceChildren(text);
  }
}

// Rows of dygraphs, [x, one or [low, mean, high] of each series], of series with an x each.
function rowsOf(series, bands) {
  const rows = new Map();
  series.forEach((one, place) => one.x.forEach((x, i) => {
    let row = rows.get(x);
    if (!row) rows.set(x, row = [x, ...series.map(() => bands ? [null, null, null] : null)]);
    const value = one.y[i], three = Array.isArray(value);
    row[place + 1] = bands ? (three ? value : [value, value, value]) : three ? value[1] : value;
  }));
  return [...rows.values()].sort((a, b) => a[0] - b[0]);
}

// --- all ranks ---

function heatDraw(canvas, data, at) {
  const width = data.ranks[0].parts.length, each = Math.max(2, Math.min(16, Math.floor(512 / data.ranks.length)));
  canvas.width = width;
  canvas.height = data.ranks.length * each;
  canvas.style.height = `${canvas.height}px`;
  const draw = canvas.getContext('2d');
  draw.clearRect(0, 0, canvas.width, canvas.height);
  draw.fillStyle = colorOf('--line');
  data.ranks.forEach((rank, row) => rank.parts.forEach((part, column) => {
    if (part === null) return;
    draw.globalAlpha = 0.06 + 0.94 * part / 1000;
    draw.fillRect(column, row * each, 1, each - (each > 4 ? 1 : 0));
  }));
  draw.globalAlpha = 1;
  if (!at) return;
  draw.strokeStyle = colorOf('--warn');
  draw.strokeRect(at.column - 1, at.row * each, 3, each);
}

// --- time line ---

const SERIOUS = /slow|straggler|skip|rollback|repair|fail|lost|flight/;

function timeLine(events, clock) {
  const xs = events.map(event => clock ? event.time : event.step), first = Math.min(...xs), last = Math.max(...xs, first + 1);
  const place = x => 10 + 980 * (x - first) / (last - first);
  const svg = make('svg:svg', {viewBox: '0 0 1000 80', width: '100%', height: 80, preserveAspectRatio: 'none', role: 'img',
    'aria-label': 'generations and faults on a time line'});
  const generations = events.filter(event => event.kind === 'generation');
  generations.forEach((event, i) => {
    const from = place(clock ? event.time : event.step);
    const to = i + 1 < generations.length ? place(clock ? generations[i + 1].time : generations[i + 1].step) : 990;
    const box = make('svg:rect', {x: from, y: 8, width: Math.max(1, to - from - 1), height: 24, fill: COLORS[i % 2 ? 0 : 2],
      opacity: .5});
    box.append(make('svg:title', {}, event.text));
    svg.append(box);
  });
  for (const event of events) {
    if (event.kind === 'generation') continue;
    const serious = SERIOUS.test(event.kind), x = place(clock ? event.time : event.step);
    const mark = make('svg:line', {x1: x, x2: x, y1: serious ? 34 : 50, y2: 66, stroke: serious ? COLORS[3] : COLORS[5],
      'stroke-width': serious ? 4 : 2, 'vector-effect': 'non-scaling-stroke'});
    mark.append(make('svg:title', {}, `${event.kind}, step ${event.step}: ${event.text}`));
    svg.append(mark);
  }
  svg.append(make('svg:line', {x1: 10, x2: 990, y1: 66, y2: 66, class: 'thin'}));
  return svg;
}

// --- trials ---

// Where a value stands between the least (0) and the greatest (1) of an option; words by their order.
function axisOf(values) {
  const numbers = values.map(Number), all = numbers.every(Number.isFinite);
  const distinct = [...new Set(values)].sort();
  const low = Math.min(...numbers), high = Math.max(...numbers), log = all && low > 0 && high / low > 50;
  const scale = value => log ? Math.log(value) : value;
  const place = value => all ? (high === low ? .5 : (scale(Number(value)) - scale(low)) / (scale(high) - scale(low)))
                             : (distinct.indexOf(value) + .5) / distinct.length;
  return {place, low: all ? numberText(low) : distinct[0], high: all ? numberText(high) : distinct[distinct.length - 1]};
}

function coordinates(data) {
  const names = Object.keys(data.importance), trials = data.trials.filter(trial => trial.value !== null && trial.step > 0);
  const axes = names.map(name => axisOf(trials.map(trial => trial.params[name]).filter(value => value !== undefined)));
  names.push(data.metric);
  axes.push(axisOf(trials.map(trial => String(trial.value))));
  const svg = make('svg:svg', {width: 140 * names.length, height: 260, role: 'img', 'aria-label': 'parallel coordinates of the trials'});
  names.forEach((name, i) => {
    const x = 70 + 140 * i, label = (y, text) => svg.append(make('svg:text', {x, y, 'text-anchor': 'middle'}, text));
    svg.append(make('svg:line', {x1: x, x2: x, y1: 40, y2: 230, class: 'thin'}));
    label(14, name);
    label(32, axes[i].high);
    label(248, axes[i].low);
  });
  for (const trial of [...trials].sort((a, b) => (a.trial === data.best) - (b.trial === data.best))) {
    const spots = names.map((name, i) => [i, i < names.length - 1 ? trial.params[name] : String(trial.value)])
      .filter(spot => spot[1] !== undefined).map(([i, value]) => `${70 + 140 * i} ${230 - 190 * axes[i].place(value)}`);
    const path = make('svg:path', {d: `M${spots.join('L')}`, class: trial.trial === data.best ? 'trial best' : 'trial', opacity: .6});
    path.append(make('svg:title', {}, `trial ${trial.trial}: ${numberText(trial.value)}`));
    svg.append(path);
  }
  return svg;
}
