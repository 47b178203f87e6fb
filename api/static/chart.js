// Draws the figure that the page carries as data.
const figure = JSON.parse(document.getElementById("figure").textContent);
Plotly.newPlot("chart", figure.data, figure.layout, { responsive: true });
