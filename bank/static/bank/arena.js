"use strict";

// Gives each number of the load a slider, and draws the rates that the table of lanes has. Without it the numbers are
// typed, and each lane has its line in the table.
(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    // Red is for strategies that lose updates, in every plot; the others have no red among them.
    const unsafe = dark ? ["#ffaaa2", "#f08d84"] : ["#a3261c", "#d4574c"];
    const safe = dark
        ? ["#8cc0f5", "#72c283", "#dcb455", "#bfa1f5", "#e8ebee", "#7fe0d6", "#f59bc1", "#c9a27e"]
        : ["#0b57a4", "#1f6b30", "#8a6410", "#5a32a3", "#1b1f24", "#00696b", "#a3125f", "#7a5230"];
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

    const series = (rows) => {
        const used = {safe: 0, unsafe: 0};
        return rows.map((row) => {
            const kind = "unsafe" in row.dataset ? "unsafe" : "safe";
            const colours = kind === "safe" ? safe : unsafe;
            const number = used[kind]++;
            return {
                label: row.dataset.name, stroke: colours[number % colours.length], width: 2, spanGaps: true,
                dash: number < colours.length ? [] : [6, 4], points: {show: false},
            };
        });
    };

    const options = (place, rows) => {
        const axis = {stroke: getComputedStyle(place).color, grid: {stroke: "#8884"}, ticks: {stroke: "#8884"}};
        const {seconds, rates, duration} = place.dataset;
        return {
            width: place.clientWidth,
            height: 260,
            scales: {
                x: {time: false, range: (_, least, most) => [0, Math.max(Number(duration), most)]},
                y: {range: (_, least, most) => [0, 1.05 * most || 1]},
            },
            axes: [{...axis, label: seconds}, {...axis, size: 64, label: rates}],
            series: [{label: seconds}, ...series(rows)],
        };
    };

    const numbers = (text) => text.split(" ").filter(Boolean).map(Number);

    const draw = () => {
        const place = document.getElementById("chart");
        const rows = [...document.querySelectorAll(".lanes tr[data-rates]")];
        // By the end of each interval; the first one is drawn from its beginning on.
        const lanes = rows.map(({dataset: {times, rates}}) => {
            const [ends, heights] = [numbers(times), numbers(rates)];
            return new Map([[0, heights[0]], ...ends.map((end, index) => [end, heights[index]])]);
        });
        const times = [...new Set(lanes.flatMap((lane) => [...lane.keys()]))].sort((a, b) => a - b);
        if (!place || times.length < 2) {
            return;
        }
        place.hidden = false;
        const data = [times, ...lanes.map((lane) => times.map((time) => lane.get(time) ?? null))];
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
            chart.setSize({width: place.clientWidth, height: 260});
        }
    });
})();
