"use strict";

// Gives each number of the load a slider, and draws the rates that the table of lanes has. Without it the numbers are
// typed, and each lane has its line in the table.
(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const colours = dark
        ? ["#8cc0f5", "#f5b36b", "#9be08b", "#f59bc1", "#d7b8ff", "#e8e36b", "#7fe0d6", "#ffaaa2", "#c9c9c9", "#b7d36b"]
        : ["#0b57a4", "#a3261c", "#1f6f2c", "#7a3e9d", "#8a5200", "#00696b", "#a3125f", "#4a4a4a", "#5b6000", "#2f3fbf"];
    let chart = null;

    const addSliders = () => {
        for (const number of document.querySelectorAll(".load input[type=number]:not([data-slider])")) {
            const slider = document.createElement("input");
            number.dataset.slider = "";
            Object.assign(slider, {type: "range", min: number.min, max: number.max, value: number.value});
            slider.setAttribute("aria-label", number.labels[0].textContent);
            slider.addEventListener("input", () => { number.value = slider.value; });
            number.addEventListener("input", () => { slider.value = number.value; });
            number.after(slider);
        }
    };

    const series = (row, index) => ({
        label: row.cells[0].textContent, stroke: colours[index % colours.length], width: 2,
        dash: index < colours.length ? [] : [6, 4], points: {show: false},
    });

    const options = (place, rows) => {
        const axis = {stroke: getComputedStyle(place).color, grid: {stroke: "#8884"}, ticks: {stroke: "#8884"}};
        return {
            width: place.clientWidth,
            height: 240,
            scales: {x: {time: false}, y: {range: (_, least, most) => [0, most || 1]}},
            axes: [{...axis, label: place.dataset.seconds}, {...axis, size: 64}],
            series: [{label: place.dataset.seconds}, ...rows.map(series)],
        };
    };

    const draw = () => {
        const place = document.getElementById("chart");
        const rows = [...document.querySelectorAll(".lanes tr[data-rates]")];
        const lanes = rows.map((row) => row.dataset.rates.split(" ").filter(Boolean).map(Number));
        const longest = Math.max(0, ...lanes.map((rates) => rates.length));
        if (!place || longest < 2) {
            return;
        }
        place.hidden = false;
        const seconds = Array.from({length: longest}, (_, number) => number / 4);
        const data = [seconds, ...lanes.map((rates) => seconds.map((_, number) => rates[number] ?? null))];
        if (chart?.root.isConnected && chart.series.length === data.length) {
            chart.setData(data);
            return;
        }
        place.replaceChildren();
        chart = new uPlot(options(place, rows), data, place);
    };

    const refresh = () => {
        addSliders();
        draw();
    };

    refresh();
    document.addEventListener("htmx:afterSettle", refresh);
    addEventListener("resize", () => {
        const place = document.getElementById("chart");
        if (place && chart?.root.isConnected) {
            chart.setSize({width: place.clientWidth, height: 240});
        }
    });
})();
