// The part of Plotly that the charts need: 1.2 MB instead of 5.2, so that the first one is there
// sooner. `scatter` is always in; WebGL is not: no chart has more points than SVG draws well.
const Plotly = require("plotly.js/lib/core");

Plotly.register([require("plotly.js/lib/bar"), require("plotly.js/lib/heatmap")]);

module.exports = Plotly;
