// Look: the colour of a series, its dashes and its symbol; the same in the graph, the legend and the readout.

// Okabe and Ito's colours, which colour-blind readers tell apart; darker ones on a light ground.
const COLORS = {
  light: ["#0072b2", "#d55e00", "#007a58", "#aa3377", "#8a6100", "#2b6fd6", "#444b59", "#b3261e"],
  dark: ["#56b4e9", "#ff9e5e", "#3ecf9b", "#e58fc0", "#f0c84b", "#8fb4ff", "#c6ccd8", "#ff8a80"],
};
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [14, 4], [5, 2, 1, 2, 1, 2]];
const MARKERS = ["circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "cross", "x"];
export const MANY = 40; // From here on lines are thin and have no symbols.

// total: the number of series. Dashes come where colours repeat, or with symbols; bands of a stack have neither. marker:
// null without symbols.
export function look(index, total, { theme, stack, symbols }) {
  const colors = COLORS[theme];
  const hasSymbols = symbols && !stack && total < MANY;
  const hasDashes = hasSymbols || (!stack && total > colors.length);
  const round = Math.floor(index / colors.length);
  return {
    color: colors[index % colors.length],
    dash: hasDashes ? DASHES[(hasSymbols ? round + index : round) % DASHES.length] : [],
    marker: hasSymbols ? MARKERS[index % MARKERS.length] : null,
  };
}
