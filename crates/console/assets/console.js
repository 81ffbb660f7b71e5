// Puts the figures of each event into their places. Every text comes from the server; nothing is made here.

const places = document.querySelector("[data-live-page]");

if (places) {
  const state = document.querySelector("[data-live-state]");
  const source = new EventSource("/live");

  const set = (attribute, values, put) => {
    for (const [name, value] of Object.entries(values)) {
      for (const place of document.querySelectorAll(`[${attribute}="${name}"]`)) put(place, value);
    }
  };

  source.addEventListener("figures", (event) => {
    const figures = JSON.parse(event.data);
    set("data-live", figures.texts, (place, text) => {
      if (place.textContent !== text) place.textContent = text;
    });
    set("data-live-meter", figures.meters, (place, percent) => {
      if (percent !== null) place.value = percent;
    });
    set("data-live-line", figures.lines, (place, points) => place.setAttribute("points", points));
    if (state) state.textContent = "live";
    // A new problem or a solved one: the server makes that part of the page.
    if (figures.findings !== places.dataset.findings) {
      source.close();
      location.reload();
    }
  });

  source.addEventListener("error", () => {
    if (state) state.textContent = "not live";
  });
}
