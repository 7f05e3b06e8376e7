// page.js: runs as they go on. The server says once a second what there is (/watch); charts ask for the stretch that is
// shown, as so many points as they have room for.
'use strict';

const byId = id => document.getElementById(id);
const state = {runs: [], main: 0, shown: new Set([0]), window: null, drawn: {}, busy: false, whose: 'each', heat: null, spot: null};
const ask = async path => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
};
const main = () => state.runs[state.main];
const nameOf = run => run.top.run.split('/').pop() || run.top.run;

// --- charts over steps ---

const charts = {
  loss: new Lines(byId('loss'), zoomTo, {customBars: true}),
  rate: new Lines(byId('rate'), zoomTo, {customBars: true}),
  phases: new Lines(byId('phases'), zoomTo, {stackedGraph: true, strokeWidth: 1, fillAlpha: .55, connectSeparatedPoints: false,
    axes: {x: {drawGrid: false, axisLabelFormatter: numberText}, y: {axisLabelWidth: 52, axisLabelFormatter: value => value < 1000 ? `${numberText(value)} ms` : `${numberText(value / 1000)} s`}}}),
  lr: new Lines(byId('lr'), zoomTo, {customBars: true}),
  norm: new Lines(byId('norm'), zoomTo, {customBars: true}),
  accuracy: new Lines(byId('accuracy'), zoomTo, {drawPoints: true, pointSize: 2}),
};
const points = new Lines(byId('points'), () => {}, {drawPoints: true, pointSize: 2, legend: 'never'});

function zoomTo(from, to) {
  state.window = from === null ? null : [from, to];
  byId('shown').textContent = state.window ? `steps ${Math.round(from)} to ${Math.round(to)}` : '';
  state.drawn.charts = null;
  draw();
}

// + - arrows and 0, on a chart or by the buttons.
function key(name) {
  const run = main(), last = run ? Math.max(1, run.top.steps_done) : 1;
  const [from, to] = state.window || [0, last], width = to - from;
  const moves = {'+': [from + width / 4, to - width / 4], '-': [from - width / 2, to + width / 2],
    ArrowLeft: [from - width / 4, to - width / 4], ArrowRight: [from + width / 4, to + width / 4], 0: null, Escape: null};
  if (!(name in moves)) return false;
  const next = moves[name];
  if (!next || (next[0] <= 0 && next[1] >= last)) zoomTo(null, null);
  else zoomTo(next[0], Math.max(next[1], next[0] + 2));
  return true;
}

function whoseColumns() { // seconds of phases of rank 0's steps, or of another rank's log, in which steps are summed
  if (state.whose === 'each') return null;
  return ask(`rank?run=${state.main}&rank=${state.whose}&points=600`).then(data => {
    const mean = value => Array.isArray(value) ? value[1] : value;
    const series = {x: data.step.map(mean)};
    for (const phase of PHASES) series[phase] = data[phase].map((value, i) => mean(value) / mean(data.steps[i]));
    return series;
  });
}

// What was drawn is on the screen, or nobody looks.
const shown = () => new Promise(done => {
  requestAnimationFrame(() => setTimeout(done));
  setTimeout(done, 200);
});

async function chartsDraw() {
  const width = Math.min(1500, Math.max(300, byId('loss').clientWidth)), window = state.window;
  const range = `&points=${width}` + (window ? `&from=${window[0]}&to=${window[1]}` : '');
  const which = [...state.shown].filter(i => state.runs[i]);
  const all = await Promise.all(which.map(i =>
    ask(`series?run=${i}${range}&columns=loss,lr,grad_norm,samples_per_s${i === state.main ? ',' + PHASES.join(',') : ''}`)));
  const several = which.length > 1, label = (i, what) => several ? `${nameOf(state.runs[i])} (${i})${what}` : what.trim() || 'train';
  const series = column => which.map((i, k) => ({label: label(i, ''), x: all[k].x, y: all[k][column]}));
  const show = (chart, list, bands) => charts[chart].show(['step', ...list.map(one => one.label)], rowsOf(list, bands), window);
  const tests = column => which.map((i, k) => ({label: label(i, ' test'), x: all[k].test.x, y: all[k].test[column]})).filter(one => one.x.length);
  const known = one => one.y.some(value => (Array.isArray(value) ? value[1] : value) !== null);
  show('loss', [...series('loss'), ...tests('test_loss')], true);
  if (!state.painted && all.some(one => one.x.length > 0)) { // who opens the page sees the loss, and need not wait for the rest
    await shown();
    performance.mark(state.painted = 'painted');
  }
  show('rate', series('samples_per_s'), true);
  show('lr', series('lr'), true);
  show('norm', series('grad_norm').filter(known), true);
  show('accuracy', tests('test_accuracy').filter(known), false);
  const own = await whoseColumns() || all[which.indexOf(state.main)];
  if (own) show('phases', PHASES.map(phase => ({label: phase === 'comm' ? 'exposed communication' : phase, x: own.x,
    y: own[phase].map(value => 1e3 * (Array.isArray(value) ? value[1] : value))})), false);
}

// --- what a run is now ---

// Ranks of the newest generation: others have left.
const newestOf = run => Math.max(0, ...run.ranks.map(rank => rank.generation));
const present = run => run.ranks.filter(rank => rank.generation === newestOf(run));

function cardsDraw(run) {
  const top = run.top, left = top.steps && top.step_s ? (top.steps - top.steps_done) * PHASES.reduce((sum, p) => sum + top.step_s[p], 0) : null;
  const memory = [...present(run), ...run.servers].reduce((sum, rank) => sum + rank.memory_bytes, 0);
  const cards = [['state', run.read < 1 && run.read < .999 ? `reading ${Math.floor(100 * run.read)} %` : top.state],
    ['step', top.steps ? `${top.steps_done} of ${top.steps}` : top.steps_done], ['epoch', top.epoch], ['loss', top.loss],
    ['test loss', top.test_loss], ['test accuracy', top.test_accuracy], ['samples/s', top.samples_per_s], ['learning rate', top.lr],
    ['memory of all ranks', memory ? bytesText(memory) : undefined], ['left', left > 0 ? durationText(left) : undefined]];
  byId('cards').replaceChildren(...cards.filter(([, value]) => value !== undefined && value !== null).map(([name, value]) =>
    make('div', {}, make('b', {}, typeof value === 'number' ? numberText(value) : String(value)), make('span', {}, name))));
}

const durationText = s => s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`;
const median = list => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

// Who waits least is the one that the others wait for: by a tenth of a step, or nobody is. (As trireme trace says it.)
function slowOf(ranks) {
  const known = ranks.filter(rank => rank.step_s);
  if (known.length < 2) return null;
  const least = known.reduce((a, b) => a.step_s.comm <= b.step_s.comm ? a : b), others = known.filter(rank => rank !== least);
  const step = PHASES.reduce((sum, phase) => sum + least.step_s[phase], 0);
  if (median(others.map(rank => rank.step_s.comm)) - least.step_s.comm < step / 10) return null;
  const over = PHASES.filter(phase => phase !== 'comm').map(phase => [phase, least.step_s[phase] - median(others.map(rank => rank.step_s[phase]))])
    .reduce((a, b) => a[1] >= b[1] ? a : b);
  return {rank: least.rank, text: `the others wait for it: ${over[0]} +${numberText(1e3 * over[1])} ms a step`};
}

// The cause, as the ranks found it when they told of it last.
const whyOf = (run, rank) => run.top.slow && run.top.slow.rank === rank.rank && run.top.slow.text ? `; ${run.top.slow.text}` : '';

function stateOf(run, rank, process, newest) {
  const silent = run.now - rank.time;
  if (process && process.state === 'T') return 'stopped';
  if (rank.generation < newest) return 'left';
  if (run.top.state === 'ended') return 'ended';
  return silent < 20 ? 'training' : `silent for ${durationText(silent)}`;
}

function barOf(step) {
  const bar = make('div', {class: 'bar'}), all = PHASES.reduce((sum, phase) => sum + step[phase], 0);
  PHASES.forEach((phase, i) => {
    const part = make('span', {title: `${phase} ${numberText(1e3 * step[phase])} ms`});
    part.style.width = `${100 * step[phase] / all}%`;
    part.style.background = COLORS[i];
    bar.append(part);
  });
  return bar;
}

// Parameter servers make no steps: what each takes and gives a second, by its log; those of this machine also by their processes.
function serversOf(run) {
  const processes = run.top.ranks.filter(one => one.role === 'server');
  const ranks = [...new Set([...processes, ...run.servers].map(one => one.rank))].sort((a, b) => a - b);
  return ranks.map(rank => ({rank, process: processes.find(one => one.rank === rank), said: run.servers.find(one => one.rank === rank)}));
}

function serverState(run, {process, said}) {
  if (process && process.state === 'T') return 'stopped';
  if (run.top.state === 'ended') return 'ended';
  const silent = said ? run.now - said.time : 0;
  return silent < 20 ? '' : `silent for ${durationText(silent)}`;
}

function serverRow(run, server) {
  const {rank, process, said} = server, now = serverState(run, server), state = make('span', {class: now && now !== 'ended' ? 'warn' : 'good'},
    `server${now ? `, ${now}` : ''}`);
  const rates = said && `${numberText(said.pushes_per_s)} pushes/s, ${numberText(said.pulls_per_s)} pulls/s, ` +
    `${bytesText(said.taken_bytes_per_s)}/s in, ${bytesText(said.served_bytes_per_s)}/s out`;
  return [rank, state, '', '', rates ? make('span', {class: 'wraps'}, rates) : '', '-', bytesText((process || said).memory_bytes), process && process.cpu !== null ? process.cpu : '-', ''];
}

// What NVML says of the card that a rank computes on.
function cardText(gpu) {
  if (!gpu) return '-';
  const words = [];
  if (gpu.utilization_ratio !== undefined) words.push(`${Math.round(100 * gpu.utilization_ratio)} % busy`);
  if (gpu.memory_used_bytes !== undefined) words.push(bytesText(gpu.memory_used_bytes));
  if (gpu.power_watts !== undefined) words.push(`${Math.round(gpu.power_watts)} W`);
  if (gpu.sm_clock_hertz !== undefined) words.push(`${Math.round(gpu.sm_clock_hertz / 1e6)} MHz${gpu.throttled ? ', slowed down' : ''}`);
  if (gpu.ecc_uncorrected_total) words.push(`${gpu.ecc_uncorrected_total} memory errors`);
  if (gpu.xid_errors_total) words.push(`Xid ${gpu.last_xid}`);
  return make('span', {class: gpu.throttled || gpu.ecc_uncorrected_total || gpu.xid_errors_total ? 'warn wraps' : 'wraps'}, words.join(', '));
}

function ranksDraw(run) {
  const ranks = run.ranks, newest = newestOf(run), slow = slowOf(present(run)), counts = {}, cards = ranks.some(rank => rank.gpu);
  const servers = serversOf(run);
  byId('ranks').hidden = ranks.length + servers.length === 0;
  const rows = ranks.map(rank => {
    // Processes are known by the number they were started as, which is their rank unless they come and go.
    const process = newest > 0 ? undefined : run.top.ranks.find(one => one.rank === rank.rank), now = stateOf(run, rank, process, newest);
    const kind = now.replace(/ for .*/, ''), all = rank.step_s ? PHASES.reduce((sum, phase) => sum + rank.step_s[phase], 0) : 0;
    counts[kind] = (counts[kind] || 0) + 1;
    return [rank.rank, make('span', {class: now === 'training' || now === 'ended' ? 'good' : 'warn'}, now), rank.step + 1, 1e3 * all,
      rank.step_s ? barOf(rank.step_s) : '', all ? `${Math.round(100 * rank.step_s.comm / all)} %` : '-',
      bytesText(process ? process.memory_bytes : rank.memory_bytes), process && process.cpu !== null ? process.cpu : '-',
      slow && slow.rank === rank.rank ? make('span', {class: 'warn wraps'}, slow.text + whyOf(run, rank)) : '', ...(cards ? [cardText(rank.gpu)] : [])];
  });
  rows.push(...servers.map(server => [...serverRow(run, server), ...(cards ? [''] : [])]));
  if (servers.length > 0) counts[servers.length > 1 ? 'servers' : 'server'] = servers.length;
  byId('states').replaceChildren(Object.entries(counts).map(([name, count]) => `${count} ${name}`).join(', ') +
    (newest > 0 ? `; generation ${newest}` : '') + '. Colors: ', ...PHASES.map((phase, i) => {
    const chip = make('span', {}, `${phase === 'comm' ? 'exposed communication' : phase} `);
    chip.style.color = COLORS[i];
    return chip;
  }));
  byId('ranks').querySelector('.wide').replaceChildren(
    table(['rank', 'state', 'step', 'ms a step', 'where it goes', 'waits', 'memory', 'cores', 'straggler', ...(cards ? ['card'] : [])], rows));
  const wanted = ['each', ...ranks.map(rank => String(rank.rank))], select = byId('whose');
  if (select.options.length !== wanted.length)
    select.replaceChildren(...wanted.map(value => make('option', {value, ...(value === state.whose ? {selected: ''} : {})},
      value === 'each' ? 'rank 0, each step' : `rank ${value}`)));
}

function matrixDraw(run) {
  const ranks = present(run), most = Math.max(0, ...ranks.flatMap(rank => rank.sent_to));
  byId('matrix').hidden = most === 0;
  if (most === 0) return;
  const rows = ranks.map(rank => [String(rank.rank), ...ranks.map(other => {
    const bytes = rank.sent_to[other.rank] || 0, cell = make('span', {}, bytes ? bytesText(bytes) : '');
    cell.style.background = bytes ? `color-mix(in srgb, var(--line) ${Math.round(60 * bytes / most)}%, transparent)` : '';
    return cell;
  })]);
  byId('matrix').querySelector('.wide').replaceChildren(table(['from \\ to', ...ranks.map(rank => String(rank.rank))], rows));
}

// --- what is asked for now and then ---

async function heatShow(run) {
  byId('heat').hidden = run.ranks.length === 0;
  if (run.ranks.length === 0) return;
  state.heat = await ask(`ranks?run=${state.main}&phase=${byId('phase').value || 'comm'}&points=300`);
  heatTell();
}

function heatTell() {
  const data = state.heat, spot = state.spot, told = byId('heat').querySelector('.told');
  const clock = x => new Date(1e3 * x).toLocaleTimeString();
  heatDraw(byId('heat').querySelector('canvas'), data, spot);
  const end = data.from + data.each * data.ranks[0].parts.length;
  if (!spot) { told.textContent = `rank 0 on top, ${clock(data.from)} to ${clock(end)}; darker is more`; return; }
  const rank = data.ranks[spot.row], part = rank.parts[spot.column];
  told.textContent = `rank ${rank.rank}, ${clock(data.from + spot.column * data.each)}: ${part === null ? 'nothing known' : `${part / 10} %`}`;
}

function heatMove(row, column) {
  const data = state.heat;
  if (!data) return;
  state.spot = {row: Math.max(0, Math.min(data.ranks.length - 1, row)), column: Math.max(0, Math.min(data.ranks[0].parts.length - 1, column))};
  heatTell();
}

async function eventsShow() {
  const {events} = await ask(`events?run=${state.main}`), clock = events.some(event => event.time !== null);
  const told = clock ? events.filter(event => event.time !== null) : events;
  byId('line').hidden = told.length === 0;
  if (told.length === 0) return;
  byId('line').querySelector('.wide').replaceChildren(timeLine(told.slice(-3000), clock));
  byId('line').querySelector('summary').textContent = `${told.length} events`;
  byId('line').querySelector('details .wide').replaceChildren(table(['when', 'step', 'what', 'text'], told.slice(-300).reverse().map(event =>
    [event.time === null ? '' : new Date(1e3 * event.time).toLocaleString(), event.step,
      make('span', {class: SERIOUS.test(event.kind) ? 'warn' : ''}, event.kind), event.text])));
}

async function trialsShow() {
  const data = await ask(`trials?run=${state.main}`), root = byId('trials');
  const begun = data.trials.filter(trial => trial.points.length);
  root.querySelector('.told').textContent = `${data.search}, ${data.schedule}: ${data.trials.length} trials, ${data.steps} steps` +
    (data.best === undefined ? '' : `; best: trial ${data.best}`);
  points.show(['step', ...begun.map(trial => `trial ${trial.trial}`)],
    rowsOf(begun.map(trial => ({x: trial.points.map(point => point[0]), y: trial.points.map(point => point[1])})), false), null);
  root.querySelector('.lines').replaceChildren(begun.length ? coordinates(data) : '');
  root.querySelector('.bars').replaceChildren(table(['option', 'importance'], Object.entries(data.importance).map(([name, value]) =>
    [name, value === null ? 'too few trials' : value])));
  root.querySelector('.table').replaceChildren(table(['trial', 'state', 'step', data.metric, 'options', ''], data.trials.slice(0, 300).map(trial =>
    [trial.trial, trial.state, trial.step, trial.value === null ? '-' : trial.value,
      Object.entries(trial.params).map(([name, value]) => `${name}=${value}`).join(' '), trial.error || ''])));
}

// --- runs ---

function runsDraw() {
  byId('runs').hidden = state.runs.length < 2;
  byId('title').textContent = document.title = main() ? nameOf(main()) : 'trireme';
  if (state.runs.length < 2) return;
  const focused = document.activeElement && document.activeElement.dataset.run;
  const pick = (type, i, on, label) => {
    const input = make('input', {type, name: type, 'aria-label': label, 'data-run': `${type}${i}`});
    input.checked = on;
    input.addEventListener('change', () => {
      if (type === 'radio') { state.main = i; state.shown.add(i); state.whose = 'each'; } else if (input.checked) state.shown.add(i);
      else if (i !== state.main) state.shown.delete(i);
      state.drawn = {};
      draw();
    });
    return input;
  };
  byId('runs').querySelector('.wide').replaceChildren(table(['look at', 'compare', 'run', 'state', 'step', 'loss', 'test loss', 'test accuracy', 'samples/s'],
    state.runs.map((run, i) => [pick('radio', i, i === state.main, `look at ${nameOf(run)}`), pick('checkbox', i, state.shown.has(i), `compare ${nameOf(run)}`),
      run.top.run, run.sweep ? 'sweep' : run.top.state, run.top.steps_done, run.top.loss ?? '-', run.top.test_loss ?? '-', run.top.test_accuracy ?? '-',
      run.top.samples_per_s ?? '-'])));
  if (focused) document.querySelector(`[data-run=${focused}]`)?.focus();
}

// What has changed since it was drawn, one thing after the other; while nobody looks nothing is.
async function draw() {
  if (state.busy || document.hidden || !main()) return;
  state.busy = true;
  const run = main(), drawn = state.drawn, there = () => `${[...state.shown].map(i => `${i}:${state.runs[i]?.rows}:${state.runs[i]?.tests}`)}`;
  try {
    runsDraw();
    document.body.classList.toggle('sweep', run.sweep && run.rows === 0);
    byId('trials').hidden = !run.sweep;
    if (run.sweep) await trialsShow();
    byId('cards').hidden = run.sweep && run.rows === 0; // it has no steps of its own
    cardsDraw(run);
    if (drawn.charts !== there()) {
      drawn.charts = there();
      await chartsDraw();
    }
    ranksDraw(run);
    if (drawn.events !== run.events) { drawn.events = run.events; await eventsShow(); }
    if (!(Date.now() - drawn.heat < 5000)) { drawn.heat = Date.now(); matrixDraw(run); await heatShow(run); }
  } catch (problem) {
    byId('live').textContent = `the server does not answer (${problem.message})`;
  } finally {
    state.busy = false;
  }
  if (state.drawn !== drawn || drawn.charts === null) draw();
}

function watch() {
  const source = new EventSource('watch'), live = byId('live');
  source.addEventListener('run', message => {
    const run = JSON.parse(message.data);
    state.runs[run.number] = run;
    live.className = '';
    live.textContent = `live, ${new Date(1e3 * run.now).toLocaleTimeString()}`;
    if (run.number + 1 === run.runs) draw();
  });
  source.addEventListener('error', () => {
    live.className = 'lost';
    live.textContent = 'the server has ended; what is shown is the last it said';
  });
}

// --- hands ---

byId('phase').replaceChildren(...PHASES.map(phase => make('option', phase === 'comm' ? {value: phase, selected: ''} : {value: phase},
  phase === 'comm' ? 'exposed communication' : phase)));
byId('phase').addEventListener('change', () => { state.drawn.heat = 0; draw(); });
byId('whose').addEventListener('change', event => { state.whose = event.target.value; state.drawn.charts = null; draw(); });
for (const chart of document.querySelectorAll('.grid .chart'))
  chart.addEventListener('keydown', event => { if (key(event.key)) event.preventDefault(); });
byId('window').addEventListener('click', event => { if (event.target.dataset.key) key(event.target.dataset.key); });
const canvas = byId('heat').querySelector('canvas');
canvas.addEventListener('pointermove', event => {
  const box = canvas.getBoundingClientRect();
  if (state.heat) heatMove(Math.floor((event.clientY - box.top) / box.height * state.heat.ranks.length),
    Math.floor((event.clientX - box.left) / box.width * state.heat.ranks[0].parts.length));
});
canvas.addEventListener('keydown', event => {
  const by = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key], spot = state.spot || {row: 0, column: 0};
  if (!by) return;
  event.preventDefault();
  heatMove(spot.row + by[0], spot.column + by[1]);
});
byId('theme').addEventListener('click', () => {
  const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  for (const chart of Object.values(charts)) chart.clear('');
  state.drawn = {};
  draw();
});
document.addEventListener('visibilitychange', draw);
watch();
