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

// Uploads: each file with its progress, a large one in parts. Without this script the form sends one file by itself.
for (const form of document.querySelectorAll("form[data-upload]")) {
  const token = form.elements.csrf.value;
  const partBytes = Number(form.dataset.partBytes);
  const partsMax = Number(form.dataset.partsMax);
  const list = form.querySelector(".transfers");
  const button = form.querySelector("button");

  // The reason that a page of the console gives.
  const reason = (text) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    return page.querySelector(".problem")?.textContent.trim() || "The server did not answer.";
  };

  const send = (path, query, fields, progress, transfer) => new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const params = new URLSearchParams(query);
    request.open("POST", `${path}?${params}`);
    request.upload.addEventListener("progress", (event) => progress(event.loaded));
    request.addEventListener("load", () => {
      if (request.status < 300) resolve(request.responseText);
      else reject(Object.assign(new Error(reason(request.responseText)), { status: request.status }));
    });
    request.addEventListener("error", () => reject(Object.assign(new Error("The connection broke off."), { status: 0 })));
    request.addEventListener("abort", () => reject(Object.assign(new Error("Cancelled."), { status: -1 })));
    transfer.request = request;
    request.send(fields);
  });

  const withFile = (blob, name) => {
    const fields = new FormData();
    fields.append("csrf", token);
    fields.append("file", blob, name);
    return fields;
  };

  const plain = (values) => new URLSearchParams({ csrf: token, ...values });

  const check = (transfer) => {
    if (transfer.cancelled) throw new Error("Cancelled.");
  };

  // A request that meets a broken connection or a busy server is sent again, a few times.
  const persist = async (transfer, request) => {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await request();
      } catch (error) {
        check(transfer);
        if (attempt === 5 || (error.status > 0 && error.status < 500)) throw error;
        await new Promise((wake) => setTimeout(wake, 500 * 2 ** attempt));
        check(transfer);
      }
    }
  };

  const sendInParts = async (file, query, show, transfer) => {
    const size = Math.max(partBytes, Math.ceil(file.size / partsMax));
    // It is not cut off: its answer has the name of what has to be aborted.
    const upload = await send("/s3/upload/begin", query, plain({ media: file.type }), () => {}, {});
    const at = { ...query, upload };
    try {
      for (let begin = 0, number = 1; begin < file.size; begin += size, number += 1) {
        check(transfer);
        const part = () => withFile(file.slice(begin, begin + size), "part");
        await persist(transfer, () =>
          send("/s3/upload/part", { ...at, number }, part(), (sent) => show(begin + sent), transfer));
      }
      check(transfer);
      // The same completion again has the same answer.
      await persist(transfer, () =>
        send("/s3/upload/complete", at, plain({ length: file.size }), () => {}, {}));
    } catch (error) {
      // Parts that the server could not make an object of stay for a look at the open uploads; others would stay unseen.
      if (transfer.cancelled || (error.status > 0 && error.status < 500)) {
        await send("/s3/upload/abort", at, plain({}), () => {}, {}).catch(() => {});
      }
      throw error;
    }
  };

  const upload = async (file) => {
    const line = document.createElement("p");
    const name = document.createElement("span");
    const bar = document.createElement("progress");
    const cancel = document.createElement("button");
    name.textContent = file.name;
    bar.max = Math.max(file.size, 1);
    bar.value = 0;
    cancel.type = "button";
    cancel.className = "plain";
    cancel.textContent = "Cancel";
    line.append(name, bar, cancel);
    list.append(line);
    const transfer = { cancelled: false, request: null };
    cancel.addEventListener("click", () => {
      transfer.cancelled = true;
      transfer.request?.abort();
    });
    const show = (sent) => { bar.value = Math.min(sent, file.size); };
    const query = { bucket: form.dataset.upload, key: form.dataset.prefix + file.name };
    try {
      if (file.size > partBytes) await sendInParts(file, query, show, transfer);
      else await send("/s3/object/store", { ...query, script: "yes" }, withFile(file, file.name), show, transfer);
      line.replaceChildren(name, "stored");
      return true;
    } catch (error) {
      line.className = "failed";
      line.replaceChildren(name, error.message);
      return false;
    }
  };

  if (form.dataset.prefix !== undefined) {
    form.elements.file.multiple = true;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      list.replaceChildren();
      let all = true;
      for (const file of form.elements.file.files) all = (await upload(file)) && all;
      button.disabled = false;
      // The listing shows what is stored now; a failure stays to be read.
      if (all) location.reload();
    });
  }
}
