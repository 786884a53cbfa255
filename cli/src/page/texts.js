// Amounts, times and elements as the page shows them.

/** An element with properties, and texts or elements in it. */
export function make(tag, properties, ...inner) {
  const { data, ...rest } = properties || {};
  const made = Object.assign(document.createElement(tag), rest);
  Object.assign(made.dataset, data);
  made.append(...inner.filter((each) => each !== null && each !== undefined));
  return made;
}

/** The sign of the currency in which the region is billed. */
let sign = '$';
export const bill = (given) => {
  sign = given;
};
export function money(nanos) {
  const dollars = nanos / 1e9;
  if (dollars === 0) return sign + '0';
  const digits = dollars < 1 ? 4 : dollars < 1000 ? 2 : 0;
  return sign + dollars.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
/** Axis labels and the like: as few digits as say it. */
export const brief = (nanos) => sign + (nanos / 1e9).toLocaleString('en-US', { maximumSignificantDigits: 3 });
export const cores = (milli) => (milli / 1000).toLocaleString('en-US', { maximumFractionDigits: 1 });
export const gibi = (milli) => (milli / 1000 / 2 ** 30).toLocaleString('en-US', { maximumFractionDigits: 1 });
/** An amount of memory with its unit. */
export const memory = (milli) => (milli < 1000 * 2 ** 30 ? Math.round(milli / 1000 / 2 ** 20) + ' MiB' : gibi(milli) + ' GiB');
export const percent = (used, all) => (all ? Math.round((100 * used) / all) + '%' : '–');
export const two = (number) => String(number).padStart(2, '0');
export function span(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const hours = Math.floor(seconds / 3600);
  return `${two(hours)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
}
export function age(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)}h` : `${Math.floor(seconds / 86400)}d`;
}
export const bare = (name) => name.replace(/^default\//, '');
export const plural = (number, word) => `${number.toLocaleString('en-US')} ${word}${number === 1 ? '' : 's'}`;

/** A state as words. */
export const called = (state) => (state === 'notready' ? 'not ready' : state);
