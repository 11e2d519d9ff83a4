// Extends a check-out while the user is active, checks in when the page is left, and reports a lost check-out.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const box = document.getElementById("edit-lock");
  if (!box) return;
  const form = box.closest("form");
  const field = form.querySelector(`input[name="${box.dataset.field}"]`);
  const key = `edit-lock:${location.pathname}`;

  // This tab was reloaded before the server received its check-in: continue by taking over. The mark is per tab.
  if ("otherTab" in box.dataset && sessionStorage.getItem(key)) {
    sessionStorage.removeItem(key);
    box.querySelector("button[name=_take_over]").click();
    return;
  }
  if (!field || !field.value) return;
  sessionStorage.setItem(key, "1");

  const ttl = Number(box.dataset.ttl) * 1000;
  const idle = Math.min(Number(box.dataset.idle) * 1000, ttl);
  const text = box.querySelector(".edit-lock-text");
  let lastActive = performance.now();
  let expires = lastActive + ttl;
  let over = false;
  let submitting = false;

  const body = (action) => {
    const data = new FormData();
    data.append("action", action);
    data.append(box.dataset.field, field.value);
    data.append("csrfmiddlewaretoken", form.elements.csrfmiddlewaretoken.value);
    return data;
  };

  const showLost = (message, detail = "") => {
    over = true;
    sessionStorage.removeItem(key);
    box.classList.remove("edit-lock-mine", "edit-lock-present");
    box.classList.add("edit-lock-taken");
    text.textContent = `${message} ${detail}`;
  };

  // A time of day alone is today's.
  const timeWithDay = (moment) => {
    const days = Math.round((new Date(moment).setHours(0, 0, 0, 0) - new Date().setHours(0, 0, 0, 0)) / 864e5);
    const day = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "auto" }).format(days, "day");
    return `${days ? day : ""} ${moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}`.trim();
  };

  const showExtended = (result) => {
    expires = performance.now() + ttl;
    if ("presence" in box.dataset) {
      const others = result.present.map((hold) => hold.editor).join(", ");
      text.textContent = others ? `${box.dataset.also} ${others}.` : box.dataset.nobody;
      box.classList.toggle("edit-lock-present", Boolean(others));
      box.classList.toggle("edit-lock-mine", !others);
    }
    const time = box.querySelector("time");
    if (time && result.expires_at) {
      time.dateTime = result.expires_at;
      time.textContent = timeWithDay(new Date(result.expires_at));
    }
  };

  const extend = async () => {
    try {
      const response = await fetch(box.dataset.url, { method: "POST", body: body("extend"), redirect: "manual" });
      if (response.ok) showExtended(await response.json());
      else if (response.status === 409 || response.status === 403) showLost(box.dataset.lost, (await response.json()).detail);
    } catch {
      // No network: the next round tries again; the expiry is reported there.
    }
  };

  const round = () => {
    if (over || submitting) return;
    const now = performance.now();
    if (now - lastActive < idle) extend();
    else if (now >= expires) showLost(box.dataset.idleText);
  };

  for (const kind of ["input", "keydown", "pointerdown", "pointermove", "scroll"]) {
    document.addEventListener(kind, () => { lastActive = performance.now(); }, { passive: true, capture: true });
  }
  setInterval(round, Math.max(Math.min(ttl / 3, idle / 2, 60000), 250));

  form.addEventListener("submit", () => { submitting = true; });
  window.addEventListener("pagehide", () => {
    if (!over && !submitting) navigator.sendBeacon(box.dataset.url, body("check-in"));
  });
  // Restored from the browser's cache after the check-in: reload to check out again.
  window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
});
