// Numbers as people read them; the same rules as the server's.

export function people(value, digits = 3) {
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
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = seconds / 60;
  if (minutes < 90) return `${Math.round(minutes)} min`;
  const hours = minutes / 60;
  if (hours < 36) return `${Math.floor(hours)} h ${Math.round(minutes % 60)} min`;
  return `${(hours / 24).toFixed(1)} days`;
}
