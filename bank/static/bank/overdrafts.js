// Locks the form while another user has the table, and unlocks it when this user gets it.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("limits");
  const { endpoint, table, references, ...texts } = form.dataset;
  const [state, edit, stop] = ["state", "edit", "stop"].map((id) => document.getElementById(id));
  const token = form.elements.token;
  const tables = references.split(" ").filter(Boolean);
  const RESULT = "{ lock_result current_status editor locked_by token lost }";
  const TTL = 60; // seconds; a closed or crashed page lets others in after this time
  let waiting = false;
  let lost = "";
  let submitting = false;

  const ask = async (query, variables, options = {}) => {
    const response = await fetch(endpoint, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRFToken": form.elements.csrfmiddlewaretoken.value },
      body: JSON.stringify({ query, variables }),
      ...options,
    });
    const { data, errors } = await response.json();
    if (errors) throw Object.assign(new Error(errors[0].message), errors[0].extensions);
    return Object.values(data)[0];
  };

  const transition = (from, to, options) => {
    const wanted = {
      table, current_status: from, target_status: to, fk_tables: tables, token: token.value || null, ttl: TTL,
      fk_current_status: tables.map(() => (from === "normal" ? "normal" : "locked")),
      fk_target_status: tables.map(() => (from === "normal" ? "locked" : "normal")),
    };
    return ask(`mutation ($wanted: TransitionInput!) { transition(wanted: $wanted) ${RESULT} }`, { wanted }, options);
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
    const result = await transition("normal", "editing");
    waiting = !result.lock_result;
    if (waiting) return show(texts.waiting, result.editor);
    token.value = result.token;
    await refresh();
    show(texts.mine);
  };

  const extend = async () => {
    await ask(`mutation ($table: String!, $token: String, $ttl: Float) {
      extend(table: $table, token: $token, ttl: $ttl) ${RESULT} }`, { table, token: token.value, ttl: TTL });
    show(texts.mine);
  };

  const look = async () => {
    const result = await ask(`query ($table: String!) { status(table: $table) ${RESULT} }`, { table });
    show(result.editor ? texts.taken : texts.free, result.editor || "");
  };

  const close = async () => {
    waiting = false;
    if (token.value) await transition("editing", "normal");
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
  const round = () => (token.value ? extend() : waiting ? open() : look());

  edit.addEventListener("click", () => attempt(open));
  stop.addEventListener("click", () => attempt(close));
  form.addEventListener("submit", () => { submitting = true; });
  window.addEventListener("pagehide", () => {
    if (token.value && !submitting) transition("editing", "normal", { keepalive: true }).catch(() => {});
  });
  attempt(round);
  setInterval(() => attempt(round), 2000);
});
