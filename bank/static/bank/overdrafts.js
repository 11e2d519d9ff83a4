// Locks the form while another user has the table, and unlocks it when this user gets it.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("limits");
  const { endpoint, ...texts } = form.dataset;
  const [state, edit, stop] = ["state", "edit", "stop"].map((id) => document.getElementById(id));
  const token = form.elements.token;
  const TTL = 60; // seconds; a closed or crashed page lets others in after this time
  let waiting = false;
  let lost = "";
  let submitting = false;

  // A refused check-out (423) is an answer, too: another user was quicker than this page, which asks first.
  const ask = async (operation, body, options = {}) => {
    const response = await fetch(endpoint + operation, body ? {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRFToken": form.elements.csrfmiddlewaretoken.value },
      body: JSON.stringify(body),
      ...options,
    } : {});
    const answer = await response.json();
    if (!response.ok && response.status !== 423) throw Object.assign(new Error(answer.detail), answer);
    return answer;
  };

  const show = (text, editor = "") => {
    const mine = Boolean(token.value);
    form.querySelector("fieldset").disabled = !mine;
    stop.disabled = !mine && !waiting;
    edit.disabled = mine || waiting;
    state.textContent = [lost, text, editor].join(" ").trim();
  };

  // What was saved since this page was loaded.
  const refresh = async () => {
    const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
    form.querySelector("fieldset").replaceWith(page.querySelector("#limits fieldset"));
  };

  const open = async () => {
    lost = "";
    const status = await ask("");
    const result = status.holder ? status : await ask("/check-out", { ttl: TTL });
    waiting = !result.lock_result;
    if (waiting) return show(texts.waiting, result.holder);
    token.value = result.token;
    await refresh();
    show(texts.mine);
  };

  const extend = async () => {
    await ask("/extend", { token: token.value, ttl: TTL });
    show(texts.mine);
  };

  const look = async () => {
    const { holder } = await ask("");
    show(holder ? texts.taken : texts.free, holder || "");
  };

  const close = async () => {
    waiting = false;
    if (token.value) await ask("/check-in", { token: token.value });
    token.value = "";
    await look();
  };

  // One at a time: a round that starts during another could show the older answer last.
  let last = Promise.resolve();
  const attempt = (step) => {
    last = last.then(step).catch((error) => {
      if (!token.value || ![403, 409].includes(error.status)) return show(texts.failed);
      token.value = "";
      lost = texts.lost;
      show("");
    });
  };
  // Saving ends the check-out: a renewal that is sent meanwhile would be refused.
  const round = () => (submitting ? undefined : token.value ? extend() : waiting ? open() : look());

  edit.addEventListener("click", () => attempt(open));
  stop.addEventListener("click", () => attempt(close));
  form.addEventListener("submit", () => { submitting = true; });
  window.addEventListener("pagehide", () => {
    if (token.value && !submitting) ask("/check-in", { token: token.value }, { keepalive: true }).catch(() => {});
  });
  attempt(round);
  setInterval(() => attempt(round), 2000);
});
