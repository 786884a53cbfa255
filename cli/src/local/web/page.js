// The page of a session: asks for what has changed, shows it, and sends what is clicked. Text from the session is only ever set as
// textContent or drawn on a canvas.

import { Grid, key } from '/grid.js';
import { Chart } from '/chart.js';
import { age, bare, bill, brief, called, cores, gibi, make, memory, money, percent, plural, span } from '/texts.js';

const $ = (id) => document.getElementById(id);
const root = document.documentElement;
let errors = 0;
const count = () => {
  root.dataset.errors = String(++errors);
};
for (const kind of ['error', 'unhandledrejection', 'securitypolicyviolation']) window.addEventListener(kind, count, true);

const kept = {
  get: (name) => {
    try {
      return sessionStorage.getItem(name);
    } catch {
      return null;
    }
  },
  set: (name, value) => {
    try {
      sessionStorage.setItem(name, value);
    } catch {
      /* a private window */
    }
  },
};

// The token comes behind the # of the address, and stays out of the history.
const [given, ...settings] = location.hash.slice(1).split('&');
const wishes = new URLSearchParams(settings.join('&'));
if (given) {
  kept.set('token', given);
  history.replaceState(null, '', '/');
}
const token = given || kept.get('token') || '';

// ── Colours ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const system = matchMedia('(prefers-color-scheme: dark)');
let colours = new Map();
function colour(name) {
  if (!colours.has(name))
    colours.set(
      name,
      getComputedStyle(root)
        .getPropertyValue('--' + name)
        .trim(),
    );
  return colours.get(name);
}
function paintTheme() {
  const chosen = kept.get('theme') || wishes.get('theme') || 'system';
  root.dataset.theme = chosen === 'system' ? (system.matches ? 'dark' : 'light') : chosen;
  $('theme').title = `Colours: ${chosen} (t)`;
  colours = new Map();
  grid?.draw();
  chart?.draw();
}
function nextTheme() {
  const order = ['system', 'light', 'dark'];
  kept.set('theme', order[(order.indexOf(kept.get('theme') || 'system') + 1) % order.length]);
  paintTheme();
  toast(`Colours: ${kept.get('theme')}`);
}
system.addEventListener('change', paintTheme);

// ── What the session said ────────────────────────────────────────────────────────────────────────────────────────────

const data = {
  clock: '',
  version: 0,
  lines: 0,
  costs: 0,
  told: [],
  steps: [],
  begun: 0,
  now: 0,
  speed: 0,
  until: null,
  state: null,
};
const since = (time) => span(time - data.begun);
/** Names that mean something, gone ones too. */
const names = new Set();
/** Colours of workloads, by name, so that they stay. */
const hues = new Map();
const workloadKey = ({ kind, namespace, name }) => `${kind} ${namespace}/${name}`;

async function ask(path, body) {
  const headers = { 'X-Whittle-Token': token };
  const answer = await fetch(path, body === undefined ? { headers } : { method: 'POST', headers, body: JSON.stringify(body) });
  if (answer.status === 204) return null;
  const value = await answer.json();
  if (answer.status === 403) gate(value.error);
  if (!answer.ok) throw Object.assign(new Error(value.error), { status: answer.status });
  return value;
}

let timer;
let asking = false;
let again = false;
async function poll() {
  clearTimeout(timer);
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  let reached = true;
  const begun = performance.now();
  try {
    const { version, lines, costs, clock } = data;
    const news = await ask(`/state?version=${version}&lines=${lines}&costs=${costs}&clock=${clock}`);
    if (news) take(news);
  } catch (error) {
    reached = false;
    if (!document.querySelector('.gate')) $('place').textContent = 'the session has ended, or cannot be reached';
    if (!(error instanceof TypeError)) console.warn(error.message);
  }
  asking = false;
  const runs = data.speed || data.until || data.busy;
  // A large cluster takes its time to be sent and drawn: most of the time is left to what the user does.
  const least = Math.min(2000, 3 * (performance.now() - begun));
  const pause = again ? 0 : !reached ? 3000 : document.hidden ? 2000 : Math.max(least, runs ? 200 : 700);
  again = false;
  timer = setTimeout(poll, pause);
}

function take(news) {
  const { told, steps, state, ...rest } = news;
  bill(news.sign);
  data.told.push(...told);
  if (6000 < data.told.length) data.told.splice(0, data.told.length - 4000);
  data.steps.push(...steps);
  Object.assign(data, rest);
  if (state) {
    data.state = state;
    for (const workload of state.workloads) {
      const known = workloadKey(workload);
      if (!hues.has(known)) hues.set(known, hues.size % 8);
    }
    for (const node of state.nodes) {
      names.add(node.name).add(node.claim);
      for (const [pod] of node.pods) names.add(pod.split('/')[1]);
    }
    for (const { pod } of state.waiting) names.add(pod.split('/')[1]);
    names.delete('');
  }
  // The page's own clock is no command.
  $('busy').hidden = !data.busy || data.speed > 0 || data.until !== null;
  if (!data.state) return;
  root.dataset.ready = 'true';
  show(Boolean(state), told.length > 0);
}

async function act(action, { quiet = false } = {}) {
  try {
    const { text } = await ask('/act', action);
    if (text && !quiet) toast(text);
    poll();
    return text;
  } catch (error) {
    if (quiet) throw error;
    toast(error.message, true);
    return null;
  }
}

let toasting;
function toast(text, bad = false) {
  const shown = $('toast');
  shown.textContent = text.length > 600 ? text.slice(0, 600) + '…' : text;
  shown.classList.toggle('bad', bad);
  shown.hidden = false;
  clearTimeout(toasting);
  toasting = setTimeout(
    () => {
      shown.hidden = true;
    },
    bad ? 7000 : 3000,
  );
}

function gate(text) {
  if (document.querySelector('.gate')) return;
  document.body.append(make('div', { className: 'gate' }, make('h3', { textContent: 'Whittle' }), make('p', { textContent: text })));
}

// ── Header and figures ───────────────────────────────────────────────────────────────────────────────────────────────

function show(all, lines) {
  const { state, now, begun, speed, until } = data;
  $('now').textContent = new Date(now).toISOString().slice(11, 19);
  $('elapsed').textContent = '+' + span(now - begun);
  $('stop').hidden = !until && !data.busy;
  $('stop').textContent = until ? `Stop (${age(until - now)} to go)` : 'Stop';
  press('speeds', 'speed', String(speed));
  figures();
  chart.show(data.steps, begun, now);
  if (all) {
    $('place').textContent = `${state.cluster} · ${state.region} · ${state.version}`;
    $('welcome').hidden = state.nodes.length > 0 || state.workloads.length > 0 || state.pools.length > 0;
    grid.empty = $('welcome').hidden ? 'There are no nodes.' : '';
    grid.show(state.nodes);
    legend();
  }
  if (tab === 'timeline' ? lines || !$('panel').firstChild : all) panel();
  if (chosen && (all || explained.seen !== seen())) facts();
}

function press(group, name, value) {
  for (const button of $(group).children) button.setAttribute('aria-pressed', String(button.dataset[name] === value));
}

function figures() {
  const { nodes, workloads, waiting } = data.state;
  const [cpu, memory] = [
    [0, 0],
    [0, 0],
  ];
  const states = new Map();
  let [pods, spot] = [0, 0];
  for (const node of nodes) {
    states.set(node.state, (states.get(node.state) || 0) + 1);
    if (node.capacity === 'spot') spot++;
    for (const each of [0, 1]) {
      cpu[each] += node.cpu[each];
      memory[each] += node.memory[each];
    }
    for (const [, , state] of node.pods) if (state === 'running') pods++;
  }
  const wait = waiting.reduce((sum, group) => sum + group.count, 0);
  const others = [...states].filter(([state]) => state !== 'ready').map(([state, number]) => `${number} ${called(state)}`);
  const set = (name, value, more) => {
    $('f-' + name).textContent = value;
    $(`f-${name}-more`).textContent = more;
  };
  set('nodes', nodes.length.toLocaleString('en-US'), others.join(', ') || (nodes.length ? `${spot} spot` : ''));
  set('pods', pods.toLocaleString('en-US'), plural(workloads.length, 'workload'));
  set('waiting', wait.toLocaleString('en-US'), wait ? plural(waiting.length, 'reason') : '');
  set('cpu', percent(...cpu), nodes.length ? `${cores(cpu[0])} of ${cores(cpu[1])}` : '');
  set('memory', percent(...memory), nodes.length ? `${gibi(memory[0])} of ${gibi(memory[1])} GiB` : '');
  set('cost', money(data.cost), data.cost ? `${brief(data.cost * 730)} a month` : '');
  set('spent', money(data.spent), `in ${age(data.now - data.begun)}`);
  $('f-waiting-box').classList.toggle('alert', wait > 0);
  $('waiting-count').textContent = wait ? wait.toLocaleString('en-US') : '';
}

function legend() {
  const sign = (name, text) => {
    const box = make('i');
    box.style.background = colour(name);
    return make('span', {}, box, text);
  };
  const used = data.state.workloads.filter(({ kind }) => kind !== 'DaemonSet');
  const shown = used.slice(0, 5).map((workload) => sign('w' + hues.get(workloadKey(workload)), workload.name));
  if (used.length > 5) shown.push(make('span', { textContent: `and ${used.length - 5} more` }));
  $('legend').replaceChildren(...shown, ...(data.state.workloads.length > used.length ? [sign('daemon', 'daemons')] : []));
}

// ── The panel beside the cluster ─────────────────────────────────────────────────────────────────────────────────────

const TABS = ['timeline', 'waiting', 'workloads', 'nodes', 'pools'];
const ROWS = 300;
let tab = TABS.includes(wishes.get('tab')) ? wishes.get('tab') : 'timeline';
let kind = '';

function panel() {
  if (!data.state) return;
  for (const button of $('tabs').children) {
    button.setAttribute('aria-selected', String(button.dataset.tab === tab));
  }
  $('filter').hidden = tab !== 'timeline';
  // What is being typed or marked there is not to be lost.
  const marked = document.getSelection();
  if (!marked.isCollapsed && $('panel').contains(marked.anchorNode)) return;
  if ($('panel').contains(document.activeElement) && document.activeElement.tagName === 'INPUT') return;
  const at = $('panel').scrollTop;
  const shown = { timeline, waiting, workloads, nodes, pools }[tab]();
  $('panel').replaceChildren(...shown);
  $('panel').scrollTop = at;
}

const quiet = (text) => make('p', { className: 'quiet', textContent: text });
const more = (hidden) => (hidden > 0 ? [quiet(`and ${hidden.toLocaleString('en-US')} more`)] : []);

/** A text in which names of objects can be clicked. */
function linked(text) {
  const made = make('p', { className: 'clamp' });
  let end = 0;
  for (const found of text.matchAll(/[a-z0-9][a-z0-9.-]{2,}/g)) {
    const word = found[0].replace(/[.-]+$/, '');
    if (!names.has(word)) continue;
    made.append(text.slice(end, found.index), make('span', { className: 'name', textContent: word, data: { name: word } }));
    end = found.index + word.length;
  }
  made.append(text.slice(end));
  return made;
}

function timeline() {
  const wanted = $('search').value.toLowerCase();
  const shown = [];
  let hidden = 0;
  for (let index = data.told.length - 1; 0 <= index; index--) {
    const [at, of, text] = data.told[index];
    if ((kind && of !== kind) || (wanted && !text.toLowerCase().includes(wanted))) continue;
    if (ROWS <= shown.length) {
      hidden++;
      continue;
    }
    const title = new Date(at).toISOString().slice(0, 19).replace('T', ' ');
    shown.push(
      make(
        'div',
        { className: 'line ' + of },
        make('time', { textContent: since(at), title }),
        make('i', { className: 'dot', title: of }),
        linked(text),
      ),
    );
  }
  return shown.length ? [...shown, ...more(hidden)] : [quiet(data.told.length ? 'No line is like that.' : 'Nothing has happened yet.')];
}

function swatch(workload) {
  const made = make('i', { className: 'swatch' });
  made.style.background = colour(workload.kind === 'DaemonSet' ? 'daemon' : 'w' + hues.get(workloadKey(workload)));
  return made;
}

function waiting() {
  const groups = data.state.waiting.map((group) => {
    const workload = data.state.workloads[group.workload];
    const head = make(
      'div',
      { className: 'row' },
      swatch(workload),
      make('b', { textContent: bare(`${workload.namespace}/${workload.name}`) }),
      make('span', { className: 'dim', textContent: `${plural(group.count, 'pod')} · ${age(data.now - group.since)}` }),
    );
    const item = make(
      'div',
      { className: 'item pick', data: { name: group.pod.split('/')[1] } },
      head,
      make('p', { textContent: group.reason || 'The scheduler has not looked yet.' }),
    );
    if (group.answer && !group.answer.includes(group.reason || '\0'))
      item.append(make('p', { className: 'answer clamp', textContent: group.answer }));
    return item;
  });
  return groups.length ? groups : [quiet('No pod waits.')];
}

function workloads() {
  const items = data.state.workloads.slice(0, ROWS).map((workload) => {
    const name = `${workload.namespace}/${workload.name}`;
    const head = make(
      'div',
      { className: 'row' },
      swatch(workload),
      make('b', { textContent: bare(name), title: workload.kind }),
      make('span', { className: 'space' }),
    );
    if (workload.kind === 'Deployment') {
      const input = make('input', { value: workload.wanted, inputMode: 'numeric', ariaLabel: `Replicas of ${name}` });
      const scale = (replicas) => act({ do: 'scale', deployment: name, replicas });
      const by = (step) =>
        make('button', {
          textContent: step < 0 ? '−' : '+',
          title: `${step < 0 ? '' : '+'}${step}`,
          onclick: () => scale(Math.max(0, workload.wanted + step)),
        });
      input.addEventListener('keydown', (event) => {
        if (event.key === 'Enter' && /^\d+$/.test(input.value)) {
          scale(Number(input.value));
          input.blur();
        }
      });
      head.append(make('span', { className: 'stepper' }, by(-1), input, by(1)));
    }
    const size = [`${cores(workload.cpu)} CPU`, workload.memory ? memory(workload.memory) : ''].filter(Boolean).join(', ') + ' each';
    const says = [workload.kind, `${workload.running} placed`, workload.waiting ? `${workload.waiting} waiting` : '', size]
      .filter(Boolean)
      .join(' · ');
    return make('div', { className: 'item' }, head, make('p', { textContent: says }));
  });
  return items.length ? [...items, ...more(data.state.workloads.length - items.length)] : [quiet('Nothing is deployed.')];
}

function nodes() {
  const all = [...data.state.nodes].sort((a, b) => b.price - a.price);
  if (!all.length) return [quiet('There are no nodes.')];
  const titles = ['Node', 'Type', 'Zone', 'State', 'Pods', '$/h'];
  const header = make(
    'thead',
    {},
    make('tr', {}, ...titles.map((textContent, index) => make('th', { textContent, className: index < 4 ? '' : 'number' }))),
  );
  const rows = all.slice(0, ROWS).map((node) => {
    const name = make('td', { title: node.name || node.claim }, state(node.state), node.name || node.claim);
    const row = make('tr', { data: { node: key(node) }, className: key(node) === chosen?.node ? 'chosen' : '' }, name);
    row.append(
      make('td', { textContent: node.type || '–', title: node.capacity }),
      make('td', { textContent: node.zone || '–' }),
      make('td', { textContent: called(node.state) }),
    );
    row.append(
      make('td', { textContent: node.pods.length, className: 'number' }),
      make('td', { textContent: (node.price / 1e9).toFixed(4), className: 'number' }),
    );
    return row;
  });
  return [make('table', {}, header, make('tbody', {}, ...rows)), ...more(all.length - rows.length)];
}

function state(name) {
  const made = make('i', { className: 'swatch', title: name });
  made.style.background = colour(name);
  return made;
}

function pools() {
  const items = data.state.pools.map((pool) => {
    const its = data.state.nodes.filter((node) => node.pool === pool.name);
    const price = its.reduce((sum, node) => sum + node.price, 0);
    const head = make(
      'div',
      { className: 'row' },
      state(pool.ready ? 'ready' : 'notready'),
      make('b', { textContent: pool.name }),
      make('span', { className: 'space' }),
      make('span', { className: 'dim', textContent: `${plural(its.length, 'node')} · ${money(price)}/h` }),
    );
    const says = [
      `node class ${pool.class}`,
      pool.weight === null ? '' : `weight ${pool.weight}`,
      pool.limits ? `limits ${pool.limits}` : '',
    ]
      .filter(Boolean)
      .join(' · ');
    const item = make('div', { className: 'item' }, head, make('p', { textContent: says }));
    if (!pool.ready) item.append(make('p', { className: 'answer', textContent: pool.problem || 'It has not been looked at yet.' }));
    return item;
  });
  const stock = data.state.out_of_stock.map(([type, zone, capacity]) =>
    make(
      'div',
      { className: 'item' },
      make('div', { className: 'row' }, state('disrupting'), make('b', { textContent: stockText(type, zone, capacity) })),
      make('p', { textContent: 'out of stock in EC2' }),
    ),
  );
  return items.length || stock.length ? [...items, ...stock] : [quiet('There are no NodePools: pods have nowhere to go.')];
}

const stockText = (type, zone, capacity) =>
  [type === '*' ? 'all types' : type, zone === '*' ? 'all zones' : zone, capacity === '*' ? '' : capacity].filter(Boolean).join(' · ');

// ── Why ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** What is shown in detail: a node by its key, or a name. */
let chosen = null;

async function choose(next) {
  chosen = next;
  grid.choose(next?.node ?? null);
  $('detail').hidden = !next;
  if (!next) {
    panel();
    return;
  }
  $('detail').replaceChildren();
  facts();
  if (tab === 'nodes') panel();
}

/** The last reasons that were asked for. */
let explained = { name: '', seen: '', text: '' };
let explaining = false;
const seen = () => `${data.version} ${data.lines}`;
async function facts() {
  const { node: of, name } = chosen;
  const node = data.state.nodes.find((each) => key(each) === of || each.name === name || each.claim === name);
  const subject = name || node?.name || node?.claim || of;
  const close = make('button', {
    className: 'close',
    textContent: '×',
    title: 'Close (Esc)',
    ariaLabel: 'Close',
    onclick: () => choose(null),
  });
  const parts = [make('div', { className: 'row' }, make('h3', { textContent: subject }), make('span', { className: 'space' }), close)];
  const isNode = node && (!name || name === node.name || name === node.claim);
  if (isNode) {
    const list = make('dl');
    const fact = (term, text) => text && list.append(make('dt', { textContent: term }), make('dd', { textContent: text }));
    fact('state', called(node.state));
    fact('machine', [node.type, node.capacity, node.zone].filter(Boolean).join(', ') || 'EC2 chooses it');
    fact('pool', node.pool);
    fact('price', node.price && `${money(node.price)} an hour`);
    fact('CPU', node.cpu[1] && `${cores(node.cpu[0])} of ${cores(node.cpu[1])} requested (${percent(...node.cpu)})`);
    fact('memory', node.memory[1] && `${gibi(node.memory[0])} of ${gibi(node.memory[1])} GiB requested (${percent(...node.memory)})`);
    fact('pods', plural(node.pods.length, 'pod'));
    fact('age', node.since && age(data.now - node.since));
    parts.push(list, nodeActs(node));
  } else {
    const home = data.state.nodes.find(({ pods }) => pods.some(([pod]) => pod.split('/')[1] === name));
    const pod = home?.pods.find(([each]) => each.split('/')[1] === name)?.[0];
    if (home) {
      const drop = make('button', { textContent: 'Delete pod', onclick: () => act({ do: 'delete', kind: 'pod', name: pod }) });
      const show = make('button', { textContent: 'Show its node', onclick: () => choose({ node: key(home) }) });
      parts.push(make('div', { className: 'acts' }, show, drop));
    }
  }
  const why = make('pre', { textContent: explained.name === subject ? explained.text : '…' });
  $('detail').dataset.subject = subject;
  $('detail').replaceChildren(...parts, make('h4', { textContent: 'Why' }), why);
  const known = explained.name === subject && explained.seen === seen();
  // While a command runs the session answers nothing else.
  if (known || explaining || data.busy) return;
  explaining = true;
  const at = seen();
  let text;
  try {
    text = (await ask('/act', { do: 'explain', name: subject })).text;
  } catch (error) {
    // The session is in the middle of something.
    if (error.status === 409) {
      explaining = false;
      setTimeout(() => chosen && facts(), 400);
      return;
    }
    text = error.message;
  }
  explaining = false;
  explained = { name: subject, seen: at, text };
  const still = chosen && $('detail').dataset.subject === subject;
  if (still) $('detail').querySelector('pre').textContent = text;
  else if (chosen) facts();
}

function nodeActs(node) {
  const acts = make('div', { className: 'acts' });
  const add = (text, title, action) => acts.append(make('button', { textContent: text, title, onclick: () => act(action) }));
  if (node.name && node.capacity === 'spot') add('Interrupt', 'EC2 takes it back in two minutes', { do: 'interrupt', node: node.name });
  if (node.name) add('Delete node', 'Drains it, as kubectl delete node does', { do: 'delete', kind: 'node', name: node.name });
  if (node.type) {
    const pool = { instanceType: node.type, zone: node.zone, capacityType: node.capacity };
    add(`Stock-out of ${node.type} in ${node.zone}`, 'EC2 has no more of them', { do: 'stock', ...pool, available: false });
  }
  return acts;
}

// ── Dialogs and the command line ─────────────────────────────────────────────────────────────────────────────────────

function openApply() {
  $('apply-error').hidden = true;
  $('apply').showModal();
  $('manifest').focus();
}

async function apply() {
  $('apply-go').disabled = true;
  try {
    toast(await act({ do: 'apply', text: $('manifest').value }, { quiet: true }));
    $('apply').close();
  } catch (error) {
    $('apply-error').textContent = error.message;
    $('apply-error').hidden = false;
  }
  $('apply-go').disabled = false;
}

function openStock() {
  const options = (values) =>
    [...new Set(values)]
      .filter(Boolean)
      .sort()
      .map((value) => make('option', { value }));
  $('types').replaceChildren(...options(data.state.nodes.map(({ type }) => type)));
  $('zones').replaceChildren(...options(data.state.nodes.map(({ zone }) => zone)));
  listStock();
  $('stock').showModal();
}

function listStock() {
  $('stock-list').replaceChildren(
    ...data.state.out_of_stock.map(([instanceType, zone, capacityType]) => {
      const again = make('button', { textContent: 'In stock again', type: 'button' });
      again.onclick = async () => {
        await act({ do: 'stock', instanceType, zone, capacityType, available: true });
        again.closest('.item').remove();
      };
      return make(
        'div',
        { className: 'item row' },
        make('b', { textContent: stockText(instanceType, zone, capacityType) }),
        make('span', { className: 'space' }),
        again,
      );
    }),
  );
}

async function runOut() {
  const [instanceType, zone, capacityType] = ['stock-type', 'stock-zone', 'stock-capacity'].map((id) => $(id).value.trim());
  if ((await act({ do: 'stock', instanceType, zone, capacityType, available: false })) !== null) $('stock').close();
}

const history_ = [];
let recalled = 0;
async function command(line) {
  if (!line.trim()) return;
  history_.push(line);
  recalled = history_.length;
  $('line').value = '';
  const output = $('output');
  output.hidden = false;
  if (60_000 < output.textContent.length) output.replaceChildren();
  output.append(make('b', { textContent: `> ${line}\n` }));
  try {
    const text = await act({ do: 'command', line }, { quiet: true });
    output.append(text.endsWith('\n') || !text ? text : text + '\n');
  } catch (error) {
    output.append(make('em', { textContent: error.message + '\n' }));
  }
  output.scrollTop = output.scrollHeight;
}

function recall(by) {
  recalled = Math.min(history_.length, Math.max(0, recalled + by));
  $('line').value = history_[recalled] ?? '';
}

// ── Events ───────────────────────────────────────────────────────────────────────────────────────────────────────────

const toggleClock = () => act({ do: 'speed', speed: data.speed ? 0 : 1 });
const KEYS = {
  ' ': toggleClock,
  1: () => act({ do: 'advance', span: '1m' }),
  2: () => act({ do: 'advance', span: '10m' }),
  3: () => act({ do: 'advance', span: '1h' }),
  '/': () => $('line').focus(),
  '?': () => $('help').showModal(),
  a: openApply,
  o: openStock,
  t: nextTheme,
  '[': () => turn(-1),
  ']': () => turn(1),
};

function turn(by) {
  tab = TABS[(TABS.indexOf(tab) + by + TABS.length) % TABS.length];
  $('panel').scrollTop = 0;
  panel();
}

function keydown(event) {
  const { target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (event.key === 'Escape') {
    if (target === $('line')) {
      target.blur();
      $('output').hidden = true;
    } else if (chosen) choose(null);
    else $('output').hidden = true;
    return;
  }
  if (['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName)) return;
  if (target.tagName === 'BUTTON' && [' ', 'Enter'].includes(event.key)) return;
  if (target === $('scroll') || target === document.body) {
    const moves = { ArrowLeft: [-1, false], ArrowRight: [1, false], ArrowUp: [-1, true], ArrowDown: [1, true] };
    if (moves[event.key]) {
      event.preventDefault();
      const node = grid.move(...moves[event.key]);
      if (chosen && node) choose({ node: key(node) });
      return;
    }
    if (event.key === 'Enter' && grid.chosen) {
      choose({ node: grid.chosen });
      return;
    }
  }
  if (KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  }
}

function hint(found, event) {
  const shown = $('hint');
  shown.hidden = !found;
  if (!found) return;
  const { node, pod } = found;
  const facts = pod
    ? [make('b', { textContent: bare(pod[0]) }), `\n${data.state.workloads[pod[1]]?.kind ?? ''} · ${pod[2]}`]
    : [
        make('b', { textContent: node.name || node.claim }),
        `\n${[node.type, node.capacity, node.zone].filter(Boolean).join(' · ')}`,
        `\n${called(node.state)} · ${plural(node.pods.length, 'pod')} · CPU ${percent(...node.cpu)} · memory ${percent(...node.memory)}`,
      ];
  shown.replaceChildren(...facts);
  shown.style.left = `${Math.min(event.clientX + 14, innerWidth - shown.offsetWidth - 8)}px`;
  shown.style.top = `${Math.min(event.clientY + 16, innerHeight - shown.offsetHeight - 8)}px`;
}

const grid = new Grid({
  scroll: $('scroll'),
  spread: $('spread'),
  canvas: $('grid'),
  colour,
  money,
  onHover: hint,
  onPick: (node, pod) => choose(pod ? { name: pod[0].split('/')[1], node: key(node) } : { node: key(node) }),
});
grid.hue = (workload) => hues.get(workloadKey(data.state.workloads[workload] ?? {})) ?? 0;
const chart = new Chart({ canvas: $('chart'), colour, money: brief, says: $('chart-says'), time: since });

function wire() {
  document.addEventListener('keydown', keydown);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) poll();
  });
  $('speeds').addEventListener('click', ({ target }) => target.dataset.speed && act({ do: 'speed', speed: Number(target.dataset.speed) }));
  for (const button of document.querySelectorAll('[data-span]')) button.onclick = () => act({ do: 'advance', span: button.dataset.span });
  $('stop').onclick = () => act({ do: 'stop' });
  $('example').onclick = async () => {
    if ((await act({ do: 'example' })) !== null) act({ do: 'advance', span: '2m' });
  };
  for (const id of ['apply-open', 'apply-too']) $(id).onclick = openApply;
  $('apply-go').onclick = apply;
  $('manifest').onkeydown = (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) apply();
  };
  $('stock-open').onclick = openStock;
  $('stock-go').onclick = runOut;
  $('help-open').onclick = () => $('help').showModal();
  $('theme').onclick = nextTheme;
  $('search').oninput = panel;
  $('tabs').onclick = ({ target }) => {
    const next = target.closest('[data-tab]')?.dataset.tab;
    if (next) {
      tab = next;
      $('panel').scrollTop = 0;
      panel();
    }
  };
  $('kinds').onclick = ({ target }) => {
    if ('kind' in target.dataset) {
      kind = target.dataset.kind;
      press('kinds', 'kind', kind);
      panel();
    }
  };
  $('sizes').onclick = ({ target }) => {
    if (target.dataset.size) {
      grid.size = target.dataset.size;
      press('sizes', 'size', grid.size);
      grid.layout();
    }
  };
  $('ranges').onclick = ({ target }) => {
    if (target.dataset.range) {
      chart.range = Number(target.dataset.range);
      press('ranges', 'range', target.dataset.range);
      chart.draw();
    }
  };
  $('panel').onclick = ({ target }) => {
    const of = target.closest('[data-name]')?.dataset.name;
    const node = target.closest('[data-node]')?.dataset.node;
    if (node) choose({ node });
    else if (of) choose({ name: of });
    else target.closest('.line p')?.classList.toggle('clamp');
  };
  $('console').onsubmit = (event) => {
    event.preventDefault();
    command($('line').value);
  };
  $('line').onkeydown = (event) => {
    if (event.key === 'ArrowUp' || event.key === 'ArrowDown') {
      event.preventDefault();
      recall(event.key === 'ArrowUp' ? -1 : 1);
    }
  };
  press('kinds', 'kind', '');
  press('sizes', 'size', 'auto');
  press('ranges', 'range', '0');
}

wire();
paintTheme();
if (wishes.get('select')) setTimeout(() => data.state && grid.move(0) && choose({ node: grid.chosen }), 900);
if (token) poll();
else gate('Open the address that `whittle local --web` printed: the token of the session is behind its #.');
