// The page of a cluster: asks for what has changed and shows it. It only asks; what can be done to a cluster that is simulated is in
// `session.js`. Text from the cluster is only ever set as textContent or drawn on a canvas.

import { Grid, key } from '/grid.js';
import { Chart } from '/chart.js';
import { age, bare, bill, brief, called, cores, gibi, make, memory, money, percent, plural } from '/texts.js';

export const $ = (id) => document.getElementById(id);
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

/** What the page is of: how its header, its times and what can be done there are shown. */
let back;

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

// ── What the server said ─────────────────────────────────────────────────────────────────────────────────────────────

export const data = {
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
/** Names that mean something, gone ones too, and what is asked about them: nothing more exact where several objects have the name. */
const names = new Map();
function know(name, subject) {
  if (name) names.set(name, [undefined, subject].includes(names.get(name)) ? subject : name);
}
/** What is asked about a pod, which is written with its namespace. */
const podSubject = (pod) => 'pod/' + pod;
const podName = (pod) => pod.split('/')[1];
/** Colours of workloads, by name, so that they stay. */
const hues = new Map();
const workloadKey = ({ kind, namespace, name }) => `${kind} ${namespace}/${name}`;

export async function ask(path, options) {
  const answer = await fetch(path, { ...options, headers: { 'X-Whittle-Token': token } });
  if (answer.status === 204) return null;
  const value = await answer.json();
  if (answer.status === 403) gate(value.error);
  if (!answer.ok) throw Object.assign(new Error(value.error), { status: answer.status });
  return value;
}

let timer;
let asking = false;
let again = false;
/** The server was not reached. */
let lost = false;
export async function poll() {
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
    if (lost && data.state) place();
  } catch (error) {
    reached = false;
    lost = true;
    if (!document.querySelector('.gate')) $('place').textContent = back.lost;
    if (!(error instanceof TypeError)) console.warn(error.message);
  }
  asking = false;
  // A large cluster takes its time to be sent and drawn: most of the time is left to what the user does.
  const least = Math.min(2000, 3 * (performance.now() - begun));
  const pause = again ? 0 : !reached ? 3000 : document.hidden ? back.hiddenPause : Math.max(least, back.pause());
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
      know(node.name, node.name);
      know(node.claim, node.claim);
      for (const [pod] of node.pods) know(podName(pod), podSubject(pod));
    }
    for (const { pod } of state.waiting) know(podName(pod), podSubject(pod));
  }
  if (!data.state) return;
  root.dataset.ready = 'true';
  show(Boolean(state), told.length > 0);
}

let toasting;
export function toast(text, bad = false) {
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

/** Which cluster it is; also once the server is reached again, though nothing has changed. */
function place() {
  const { state } = data;
  lost = false;
  $('place').textContent = [state.cluster, state.region, state.version].filter(Boolean).join(' · ');
}

function show(all, lines) {
  const { state, now, begun } = data;
  back.head(state);
  figures();
  chart.show(data.steps, begun, now, back.origin());
  if (all) {
    place();
    grid.empty = back.empty(state);
    grid.show(state.nodes);
    legend();
  }
  if (tab === 'timeline' ? lines || !$('panel').firstChild : all) panel();
  if (chosen && (all || explained.seen !== back.seen(chosenNode()))) facts();
}

export function press(group, name, value) {
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
  const focused = $('panel').contains(document.activeElement) ? document.activeElement.dataset : {};
  const shown = { timeline, waiting, workloads, nodes, pools }[tab]();
  $('panel').replaceChildren(...shown);
  $('panel').scrollTop = at;
  // Whoever uses the keyboard stays where they are.
  if (!focused.subject && !focused.node) return;
  const same = (each) => each.dataset.subject === focused.subject && each.dataset.node === focused.node;
  [...$('panel').querySelectorAll('[tabindex]')].find(same)?.focus({ preventScroll: true });
}

/** What an item has that can be clicked: it can be reached and pressed by the keyboard, too. */
const pick = (name, subject) => ({ className: 'item pick', tabIndex: 0, role: 'button', data: { name, subject } });

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
        make('time', { textContent: back.time(at), title }),
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
      pick(podName(group.pod), podSubject(group.pod)),
      head,
      make('p', { textContent: group.reason || 'The scheduler has not looked yet.' }),
    );
    if (group.answer && !group.answer.includes(group.reason || '\0'))
      item.append(make('p', { className: 'answer clamp', textContent: group.answer }));
    return item;
  });
  return groups.length ? groups : [quiet('No pod waits.')];
}

/** An item that can be clicked, where there is an answer about it. */
const named = (name, subject) => (back.explainsAll ? pick(name, subject) : { className: 'item' });

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
    const control = back.control(workload, name);
    if (control) head.append(control);
    const size = [`${cores(workload.cpu)} CPU`, workload.memory ? memory(workload.memory) : ''].filter(Boolean).join(', ') + ' each';
    const says = [workload.kind, `${workload.running} placed`, workload.waiting ? `${workload.waiting} waiting` : '', size]
      .filter(Boolean)
      .join(' · ');
    return make('div', named(workload.name, `${workload.kind.toLowerCase()}/${name}`), head, make('p', { textContent: says }));
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
    const row = make('tr', { data: { node: key(node) }, tabIndex: 0, className: key(node) === chosen?.node ? 'chosen' : '' }, name);
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
    const item = make('div', named(pool.name, `nodepool/${pool.name}`), head, make('p', { textContent: says }));
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

export const stockText = (type, zone, capacity) =>
  [type === '*' ? 'all types' : type, zone === '*' ? 'all zones' : zone, capacity === '*' ? '' : capacity].filter(Boolean).join(' · ');

// ── Why ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** What is shown in detail: a node by its key, or a name with what is asked about it. */
let chosen = null;

export function choose(next) {
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
const chosenNode = () => data.state.nodes.find((each) => [each.name, each.claim].includes(chosen.name ?? chosen.node));
async function facts() {
  const { name } = chosen;
  const node = chosenNode();
  const title = name || node?.name || node?.claim || chosen.node;
  const subject = chosen.subject || names.get(title) || title;
  const close = make('button', {
    className: 'close',
    textContent: '×',
    title: 'Close (Esc)',
    ariaLabel: 'Close',
    onclick: () => choose(null),
  });
  const parts = [make('div', { className: 'row' }, make('h3', { textContent: title }), make('span', { className: 'space' }), close)];
  if (node) {
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
    parts.push(list, ...back.nodeActs(node));
  } else {
    const home = data.state.nodes.find(({ pods }) => pods.some(([pod]) => podSubject(pod) === subject));
    if (home) {
      const show = make('button', { textContent: 'Show its node', onclick: () => choose({ node: key(home) }) });
      parts.push(make('div', { className: 'acts' }, show, ...back.podActs(subject.slice('pod/'.length))));
    }
  }
  const why = make('pre', { textContent: explained.name === subject ? explained.text : '…' });
  $('detail').dataset.subject = subject;
  $('detail').replaceChildren(...parts, make('h4', { textContent: 'Why' }), why);
  const at = back.seen(node);
  const known = explained.name === subject && explained.seen === at;
  // While a command runs the session answers nothing else.
  if (known || explaining || data.busy) return;
  explaining = true;
  let text;
  try {
    text = (await ask('/explain?name=' + encodeURIComponent(subject))).text;
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

// ── Events ───────────────────────────────────────────────────────────────────────────────────────────────────────────

const KEYS = {
  '?': () => $('help').showModal(),
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
    if (!back.escape(target, Boolean(chosen))) choose(null);
    return;
  }
  if (['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName)) return;
  if (target.tagName === 'BUTTON' && [' ', 'Enter'].includes(event.key)) return;
  if ([' ', 'Enter'].includes(event.key) && target.matches('#panel [tabindex]')) {
    event.preventDefault();
    target.click();
    return;
  }
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
  const pressed = KEYS[event.key] ?? back.keys[event.key];
  if (pressed) {
    event.preventDefault();
    pressed();
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
  onPick: (node, pod) => choose(pod ? { name: podName(pod[0]), subject: podSubject(pod[0]), node: key(node) } : { node: key(node) }),
});
grid.hue = (workload) => hues.get(workloadKey(data.state.workloads[workload] ?? {})) ?? 0;
const chart = new Chart({ canvas: $('chart'), colour, money: brief, says: $('chart-says'), time: (at) => back.time(at) });

function wire() {
  document.addEventListener('keydown', keydown);
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) poll();
  });
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
    const of = target.closest('[data-name]')?.dataset;
    const node = target.closest('[data-node]')?.dataset.node;
    if (node) choose({ node });
    else if (of) choose({ name: of.name, subject: of.subject ?? names.get(of.name) });
    else target.closest('.line p')?.classList.toggle('clamp');
  };
  press('kinds', 'kind', '');
  press('sizes', 'size', 'auto');
  press('ranges', 'range', '0');
}

/** Shows what the server has; `of` says of what. */
export function start(of) {
  back = of;
  wire();
  paintTheme();
  if (wishes.get('select')) setTimeout(() => data.state && grid.move(0) && choose({ node: grid.chosen }), 900);
  if (token) poll();
  else gate(back.without);
}
