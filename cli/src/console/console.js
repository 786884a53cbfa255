// The page of a cluster that runs: nothing can be done to it here.

import { $, data, start } from '/page.js';
import { age } from '/texts.js';

const DAY = 86_400_000;
const text = (at) => new Date(at).toISOString();
/** A time of the day; of another day, its date and minute. */
const time = (at) => (DAY < data.now - at ? `${text(at).slice(5, 10)} ${text(at).slice(11, 16)}` : text(at).slice(11, 19));

/** When the server was last heard, by the clock of this page. */
let heard = performance.now();

/** How old what is shown is. It grows also while the server is not heard. */
function tell() {
  if (!data.asOf) return;
  const old = data.now + performance.now() - heard - data.asOf;
  const reads = data.looking > 2 ? `, is being read for ${data.looking} s` : '';
  $('as-of').textContent = `${text(data.asOf).slice(11, 19)} UTC · ${age(old)} ago${reads}`;
  $('as-of').classList.toggle('late', Boolean(data.failure) || Math.max(60_000, 3000 * data.interval) < old);
  $('failure').hidden = !data.failure;
  $('failure').textContent = data.failure ?? '';
}
setInterval(tell, 1000);

start({
  lost: 'the console has ended, or cannot be reached',
  without: 'Open the address that `whittle console` printed: the token of the session is behind its #.',
  origin: () => 0,
  time,
  head: () => {
    heard = performance.now();
    // Decisions are told by the table of a deployment, or by Events.
    for (const kind of ['decision', 'event']) document.querySelector(`#kinds [data-kind=${kind}]`).hidden = kind !== data.kind;
    tell();
  },
  empty: () => 'There are no nodes.',
  pause: () => 1000,
  hiddenPause: 60_000,
  // The answer is a plan for the whole cluster: it is asked for again only when what is shown has changed, or can be read again.
  seen: (node) => `${Boolean(data.failure)} ${node ? `${node.state} ${node.pods.length}` : ''}`,
  explainsAll: true,
  control: () => null,
  nodeActs: () => [],
  podActs: () => [],
  keys: {},
  escape: () => false,
});
