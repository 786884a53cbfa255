// The page of a simulated session: the clock, what can be done to the cluster, and the line for commands of the prompt.

import { $, ask, data, poll, press, start, stockText, toast } from '/page.js';
import { age, make, span } from '/texts.js';

async function act(action, { quiet = false } = {}) {
  try {
    const { text } = await ask('/act', { method: 'POST', body: JSON.stringify(action) });
    if (text && !quiet) toast(text);
    poll();
    return text;
  } catch (error) {
    if (quiet) throw error;
    toast(error.message, true);
    return null;
  }
}

// ── The header ───────────────────────────────────────────────────────────────────────────────────────────────────────

function head(state) {
  const { now, begun, speed, until, busy } = data;
  $('now').textContent = new Date(now).toISOString().slice(11, 19);
  $('elapsed').textContent = '+' + span(now - begun);
  // The page's own clock is no command.
  $('busy').hidden = !busy || speed > 0 || until !== null;
  $('stop').hidden = !until && !busy;
  $('stop').textContent = until ? `Stop (${age(until - now)} to go)` : 'Stop';
  press('speeds', 'speed', String(speed));
  $('welcome').hidden = state.nodes.length > 0 || state.workloads.length > 0 || state.pools.length > 0;
}

// ── What can be done to what is shown ────────────────────────────────────────────────────────────────────────────────

function control(workload, name) {
  if (workload.kind !== 'Deployment') return null;
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
  return make('span', { className: 'stepper' }, by(-1), input, by(1));
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
  return [acts];
}

const podActs = (pod) => [make('button', { textContent: 'Delete pod', onclick: () => act({ do: 'delete', kind: 'pod', name: pod }) })];

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

const keys = {
  ' ': () => act({ do: 'speed', speed: data.speed ? 0 : 1 }),
  1: () => act({ do: 'advance', span: '1m' }),
  2: () => act({ do: 'advance', span: '10m' }),
  3: () => act({ do: 'advance', span: '1h' }),
  '/': () => $('line').focus(),
  a: openApply,
  o: openStock,
};

/** Closes what the session has open; returns whether that is all. */
function escape(target, somethingElse) {
  const typed = target === $('line');
  if (typed) target.blur();
  if (typed || !somethingElse) $('output').hidden = true;
  return typed || !somethingElse;
}

function wire() {
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
}

wire();
start({
  lost: 'the session has ended, or cannot be reached',
  without: 'Open the address that `whittle local --web` printed: the token of the session is behind its #.',
  origin: () => data.begun,
  time: (at) => span(at - data.begun),
  head,
  empty: () => ($('welcome').hidden ? 'There are no nodes.' : ''),
  pause: () => (data.speed || data.until || data.busy ? 200 : 700),
  hiddenPause: 2000,
  // What is decided about anything may change with everything.
  seen: () => `${data.version} ${data.lines}`,
  explainsAll: false,
  control,
  nodeActs,
  podActs,
  keys,
  escape,
});
