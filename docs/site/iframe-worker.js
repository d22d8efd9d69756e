// A browser starts no worker from a file on disk: the search runs in a frame of the page instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      const waiting = [];
      this.postMessage = data => waiting.push(data);
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => urls.reduce((done, one) => done.then(() => load(one)), Promise.resolve());
      const load = source => new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = new URL(source, document.baseURI);
        script.onload = resolve;
        script.onerror = reject;
        inside.document.head.append(script);
      });
      load(url).then(() => {
        this.postMessage = data => inside.dispatchEvent(new inside.MessageEvent("message", { data }));
        waiting.forEach(this.postMessage);
      });
    }
  };
}
