// What is between the marks comes from the console as finished HTML, escaped there; this puts it in its place.
"use strict";

(() => {
  // Pages have times in UTC; with this script they are the reader's own.
  const two = (number) => String(number).padStart(2, "0");
  const localise = (root) => {
    for (const one of root.querySelectorAll("time[datetime]")) {
      const when = new Date(one.dateTime);
      if (Number.isNaN(when.getTime())) continue;
      one.title = one.textContent;
      one.textContent = `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())} `
        + `${two(when.getHours())}:${two(when.getMinutes())}`;
    }
  };
  localise(document);

  const live = document.getElementById("live");
  const said = document.getElementById("said");
  if (!live || !window.EventSource) return;

  const say = (text) => {
    if (text && said.textContent !== text) said.textContent = text;
  };

  // What is open stays open, and where the reader is stays in sight.
  const show = (html) => {
    const open = [...live.querySelectorAll("details")].map((one) => one.open);
    const regions = [...live.querySelectorAll("[role=region]")];
    const places = new Map(regions.map((one) => [one.getAttribute("aria-label"), one.scrollLeft]));
    const focused = document.activeElement;
    const label = live.contains(focused) ? focused.getAttribute("aria-label") : null;
    live.innerHTML = html;
    localise(live);
    live.querySelectorAll("details").forEach((one, i) => { one.open = open[i] || false; });
    live.querySelectorAll("[role=region]").forEach((one) => {
      one.scrollLeft = places.get(one.getAttribute("aria-label")) || 0;
      if (label !== null && one.getAttribute("aria-label") === label) one.focus({ preventScroll: true });
    });
    const lead = live.querySelector("[data-said]");
    if (lead) say(lead.dataset.said);
  };

  const connect = () => {
    const events = new EventSource(live.dataset.events);
    events.addEventListener("show", (event) => show(JSON.parse(event.data).html));
    // There are other actions now, or files and a report.
    events.addEventListener("over", () => {
      events.close();
      location.reload();
    });
    events.addEventListener("error", () => {
      say("Connection lost; trying again.");
      // A browser gives up by itself where the answer is an error.
      if (events.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
    });
  };
  connect();
})();
