// Refresh: runs all panels again some seconds after the last run ended. A hidden page asks for nothing.

const LIVE_S = 1;
const LIVE_RANGE = "5m";

export class Refresh {
  constructor(state, times, run, changed) {
    this.state = state;
    this.times = times;
    this.run = run;
    this.changed = changed;
    this.timer = 0;
    this.choice = document.getElementById("refresh");
    this.live = document.getElementById("live");
    this.choice.addEventListener("change", () => this.#set(Number(this.choice.value)));
    this.live.addEventListener("click", () => this.#toggle());
    document.addEventListener("visibilitychange", () => this.#wake());
    this.#show();
    this.#later();
  }

  #toggle() {
    if (this.state.refresh_s === LIVE_S) {
      this.#set(0);
      return;
    }
    if (!this.times.isLive) this.times.setRange(LIVE_RANGE);
    this.#set(LIVE_S);
  }

  #set(seconds) {
    this.state.refresh_s = seconds;
    this.#show();
    this.changed();
    this.#later();
  }

  #show() {
    this.choice.value = String(this.state.refresh_s);
    this.live.setAttribute("aria-pressed", String(this.state.refresh_s === LIVE_S));
  }

  #wake() {
    if (!document.hidden && this.state.refresh_s) this.#again();
  }

  // The next run is planned when the last one has ended, so a slow server has one run of a page at a time.
  #later() {
    clearTimeout(this.timer);
    if (this.state.refresh_s) this.timer = setTimeout(() => this.#again(), 1000 * this.state.refresh_s);
  }

  async #again() {
    clearTimeout(this.timer);
    if (!document.hidden && this.times.isLive) await this.run();
    this.#later();
  }
}
