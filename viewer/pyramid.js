// pyramid.js - minimum, maximum and mean of any range of rows, without looking at each row.
//
//      level 2          [     0 .. 63      ]           one node for 64 rows
//      level 1   [ 0 .. 7 ][ 8 .. 15 ] ...             one node for 8
//      level 0   the rows
//
// Sums are kept from the start on, so that a mean takes two of them.

const FAN = 8;

// sums[i] = column[0] + ... + column[i - 1]
function sumsOf(column) {
  const sums = new Float64Array(column.length + 1);
  for (let i = 0; i < column.length; i++) sums[i + 1] = sums[i] + column[i];
  return sums;
}

function levelAbove(min, max) {
  const count = Math.ceil(min.length / FAN);
  const level = { min: new Float64Array(count), max: new Float64Array(count) };
  for (let node = 0; node < count; node++) {
    const end = Math.min(min.length, (node + 1) * FAN);
    let low = Infinity;
    let high = -Infinity;
    for (let i = node * FAN; i < end; i++) {
      if (min[i] < low) low = min[i];
      if (max[i] > high) high = max[i];
    }
    level.min[node] = low;
    level.max[node] = high;
  }
  return level;
}

class Series {
  // points: how many points there are before each row, see sumsOf
  constructor(min, max, sum, points) {
    this.min = min;
    this.max = max;
    this.points = points;
    this.sums = sumsOf(sum);
    this.levels = [{ min, max }];
    while (this.levels.at(-1).min.length > FAN) {
      const below = this.levels.at(-1);
      this.levels.push(levelAbove(below.min, below.max));
    }
  }

  sumAt(i) {
    return this.sums[i + 1] - this.sums[i];
  }

  mean(first, end) {
    const points = this.points[end] - this.points[first];
    return points > 0 ? (this.sums[end] - this.sums[first]) / points : 0;
  }

  // Puts low and high of rows [first, end) into range.
  range(first, end, range) {
    range.low = Infinity;
    range.high = -Infinity;
    let level = 0;
    while (level + 1 < this.levels.length && end - first > 2 * FAN) {
      const firstWhole = Math.ceil(first / FAN);
      const endWhole = Math.floor(end / FAN);
      widen(range, this.levels[level], first, firstWhole * FAN);
      widen(range, this.levels[level], endWhole * FAN, end);
      first = firstWhole;
      end = endWhole;
      level++;
    }
    widen(range, this.levels[level], first, end);
    return range;
  }
}

// By what nodes [first, end) of a level have.
function widen(range, { min, max }, first, end) {
  let { low, high } = range;
  for (let i = first; i < end; i++) {
    if (min[i] < low) low = min[i];
    if (max[i] > high) high = max[i];
  }
  range.low = low;
  range.high = high;
}

// The last place whose value is at most `value`; -1: none.
function lastAtMost(column, value, count = column.length) {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
