"use strict";

// Fetches the page again every few seconds and replaces what it says about the locks, until somebody leaves it.
(() => {
    const seconds = Number(document.getElementById("locks").dataset.seconds);

    const refresh = async () => {
        if (document.hidden) {
            return;
        }
        const response = await fetch(location.href, {headers: {"X-Requested-With": "fetch"}});
        const page = new DOMParser().parseFromString(await response.text(), "text/html");
        const now = page.getElementById("locks");
        // Somebody who is logged out by now gets another page.
        if (!now) {
            location.reload();
            return;
        }
        const then = document.getElementById("locks");
        const focused = then.contains(document.activeElement) ? document.activeElement.id : "";
        const scrolled = then.querySelector(".waits-scroll")?.scrollLeft;
        then.replaceWith(now);
        document.getElementById(focused)?.focus();
        if (scrolled) {
            now.querySelector(".waits-scroll")?.scrollTo(scrolled, 0);
        }
    };

    const again = () => setTimeout(() => refresh().catch(() => {}).finally(again), seconds * 1000);
    again();
})();
