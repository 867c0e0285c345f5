// Readout: time and values under the pointer, of the line that is nearest and of the number of others.
import { series, time, value } from "./format.js";

export class Readout {
  constructor(element) {
    this.element = element;
  }

  clear() {
    this.element.textContent = "";
  }

  show(answer, options, hidden, x, y) {
    if (answer === null || x === null) {
      this.clear();
      return;
    }
    const step = Math.round((x - answer.first_ms) / answer.step_ms);
    let nearest = null;
    let others = -1;
    answer.values.forEach((row, index) => {
      if (hidden.has(index)) return;
      const place = answer.at === null ? step : search(answer.at[index], step);
      const number = row[place] ?? null;
      if (number === null) return;
      others += 1;
      const distance = Math.abs(number - y);
      if (nearest === null || distance < nearest.distance) nearest = { index, number, distance, step: answer.at === null ? step : answer.at[index][place] };
    });
    if (nearest === null) {
      this.element.textContent = `${time(Math.round(x))} UTC: no value`;
      return;
    }
    const more = others > 0 ? ` (and ${others} more)` : "";
    const at = time(answer.first_ms + nearest.step * answer.step_ms);
    this.element.textContent = `${at} UTC: ${value(String(nearest.number), options.unit)}  ${series(answer.series[nearest.index])}${more}`;
  }
}

// The index of the last step at or before the wanted one.
function search(steps, wanted) {
  let low = 0;
  let high = steps.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (steps[middle] <= wanted) low = middle;
    else high = middle - 1;
  }
  return low;
}
