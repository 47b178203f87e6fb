// Numbers as people read them, by the rules of service/words.py; tests hold both to one table of
// examples.

export function human(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const rounded = Number(Math.abs(value).toPrecision(digits));
  const sign = value < 0 ? "−" : "";
  for (const [factor, unit] of [[1e9, " G"], [1e6, " M"], [1e3, "k"]]) {
    if (rounded >= factor) return sign + trim(rounded / factor, digits) + unit;
  }
  return sign + trim(rounded, digits);
}

const trim = (value, digits) => String(Number(value.toPrecision(digits)));

export const whole = (value) => (value ?? 0).toLocaleString("en");

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 89.5) return `${Math.floor(seconds + 0.5)} s`;
  const minutes = Math.floor(seconds / 60 + 0.5);
  if (minutes < 90) return `${minutes} min`;
  if (minutes < 48 * 60) {
    const rest = minutes % 60;
    return `${Math.floor(minutes / 60)} h${rest ? ` ${rest} min` : ""}`;
  }
  return `${Math.floor(minutes / 144 + 0.5) / 10} days`;
}
