"use strict";

// Lets the link "Delete" ask about the version that this form shows, not about the one that is there by then.
// Without it the question is asked about the object as it is when the question is shown.
document.addEventListener("DOMContentLoaded", () => {
    const token = document.querySelector('input[type="hidden"][name="_seen"]');
    const question = location.pathname.replace(/\/change\/$/, "/delete/");
    // Addresses have a limit.
    const asked = token && token.dataset.question;
    if (!asked || question === location.pathname || asked.length > 1500) {
        return;
    }
    for (const link of document.querySelectorAll("a[href]")) {
        const target = new URL(link.href);
        if (target.pathname === question) {
            target.searchParams.set("_seen", asked);
            link.href = target.href;
        }
    }
});
