// format.js - numbers for people: exact ones with separators, rough ones with SI prefixes.

const THIN = "\u202f"; // a narrow space that does not break, between number and unit

const writers = new Map(); // by digits: making one takes longer than using it many times

function exact(number, digits = 0) {
  if (!writers.has(digits))
    writers.set(digits, new Intl.NumberFormat("en-US",
      { minimumFractionDigits: digits, maximumFractionDigits: digits }));
  return writers.get(digits).format(number);
}

// Three digits that count: 1.23, 12.3, 123
function three(number) {
  const size = Math.abs(number);
  return exact(number, size === 0 || size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

// A count on an axis: 0, 500, 1.5k, 12M
function short(number) {
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(number) >= unit) return `${+(number / unit).toFixed(2)}${letter}`;
  return `${+number.toFixed(2)}`;
}

// The same of three digits.
const rough = (number) => short(+number.toPrecision(3));

function percent(share, digits = 1) {
  return `${exact(100 * share, digits)}${THIN}%`;
}

function bytesText(bytes) {
  for (const [power, name] of [[40, "TiB"], [30, "GiB"], [20, "MiB"], [10, "KiB"]])
    if (bytes >= 2 ** power) return `${three(bytes / 2 ** power)}${THIN}${name}`;
  return `${exact(bytes)}${THIN}B`;
}

// A length of time on an axis: 20 ms, 1.5 s
function shortTime(us) {
  const [unit, name] = us >= 3600e6 ? [3600e6, "h"] : us >= 60e6 ? [60e6, "min"]
    : us >= 1e6 ? [1e6, "s"] : us >= 1e3 ? [1e3, "ms"] : [1, "µs"];
  return us === 0 ? "0" : `${short(us / unit)}${THIN}${name}`;
}

// A length of time: 12 µs, 1.23 ms, 12.3 s, 3 min 20 s, 1 h 02 min
function duration(us) {
  if (us < 1000) return `${exact(us)}${THIN}µs`;
  if (us < 999.5e3) return `${three(us / 1e3)}${THIN}ms`;
  if (us < 99.95e6) return `${three(us / 1e6)}${THIN}s`;
  const seconds = Math.round(us / 1e6);
  if (seconds < 3600) return `${Math.floor(seconds / 60)}${THIN}min ${seconds % 60}${THIN}s`;
  const minutes = Math.round(seconds / 60);
  const left = String(minutes % 60).padStart(2, "0");
  return `${exact(Math.floor(minutes / 60))}${THIN}h ${left}${THIN}min`;
}

// A latency, which may be anything from microseconds to hours, in one unit: 12.3 ms, 35.6 min
function ms(value) {
  const us = 1000 * value;
  if (us < 99.95e6) return duration(us);
  return us < 6000e6 ? `${three(us / 60e6)}${THIN}min` : `${three(us / 3600e6)}${THIN}h`;
}

// A point in time, with so many digits that two ticks `stepUs` apart differ: 1:02:03.45, 2:03.4,
// 3.456 s
function clock(us, stepUs) {
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(stepUs / 1e6) - 1e-9)));
  const total = Math.round(us / 1e6 * 10 ** digits) / 10 ** digits;
  if (us < 60e6 && stepUs < 1e6) return `${total.toFixed(digits)}${THIN}s`;
  const whole = Math.floor(total + 1e-9);
  const fraction = digits > 0 ? (total - whole).toFixed(digits).slice(1) : "";
  const two = (n) => String(n).padStart(2, "0");
  const minutes = Math.floor(whole / 60) % 60;
  const hours = Math.floor(whole / 3600);
  return `${hours > 0 ? `${hours}:${two(minutes)}` : minutes}:${two(whole % 60)}${fraction}`;
}

// Steps between ticks that people count in.
function timeTick(spanUs, most) {
  const wanted = spanUs / most;
  if (wanted < 1e6) return niceStep(wanted);
  const minutes = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720];
  for (const s of [1, 2, 5, 10, 15, 30, ...minutes.map((n) => 60 * n)])
    if (s * 1e6 >= wanted) return s * 1e6;
  return niceStep(wanted / 86400e6) * 86400e6;
}

function niceStep(wanted) {
  const power = 10 ** Math.floor(Math.log10(wanted));
  for (const factor of [1, 2, 5]) if (factor * power >= wanted * (1 - 1e-9)) return factor * power;
  return 10 * power;
}
