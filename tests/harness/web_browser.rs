//! A headless Chromium, driven by WebDriver. Without Chromium and its driver on this machine there is none, and tests report
//! that they are skipped.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::{HttpClient, HttpRequest, Process, wait_for};

/// The drivers that are started, one after the other, until one listens.
const DRIVERS: usize = 5;
/// How long the driver may take to start, and a page to show something.
const PATIENCE: Duration = Duration::from_secs(60);
/// The name of an element's reference in answers of the driver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window.
#[derive(Debug)]
pub struct WebBrowser {
    client: HttpClient,
    session: String,
    // Field order: the session ends before the process of its driver.
    _driver: Process,
}

impl WebBrowser {
    /// Starts a browser; `None`, with a line that says so, where there is no Chromium or no driver.
    ///
    /// # Panics
    /// When an installed browser does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        if let Some(missing) = ["chromium", "chromedriver"].into_iter().find(|name| !is_installed(name)) {
            eprintln!("skipped: {missing} is not installed (Debian: chromium, chromium-driver)");
            return None;
        }
        let (driver, port) = start_driver();
        let client = HttpClient::new(SocketAddr::from(([127, 0, 0, 1], port)));
        let mut browser = Self { client, session: String::new(), _driver: driver };
        let arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let begun = browser.command("POST", "/session", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        browser.session = format!("/session/{}", begun["sessionId"].as_str().expect("a session"));
        Some(browser)
    }

    /// Opens a page.
    pub fn open(&mut self, address: &str) {
        self.ask("/url", &json!({ "url": address }));
    }

    /// The visible text of the page.
    #[must_use]
    pub fn text(&mut self) -> String {
        self.run("return document.body.innerText").as_str().expect("a text").to_owned()
    }

    /// Waits until the page shows this text.
    ///
    /// # Panics
    /// When it does not within a minute.
    pub fn wait_for_text(&mut self, text: &str) {
        wait_for(&format!("{text:?} on the page"), PATIENCE, || {
            let shown = self.text();
            if shown.contains(text) { Ok(()) } else { Err(shown) }
        });
    }

    /// Clicks the first element of this CSS selector.
    pub fn click(&mut self, selector: &str) {
        let element = self.find(selector);
        self.ask(&format!("/element/{element}/click"), &json!({}));
    }

    /// Types into the first element of this CSS selector.
    pub fn type_into(&mut self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.ask(&format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// The value of a script.
    pub fn run(&mut self, script: &str) -> Value {
        self.ask("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Opens every part of the page that a click would open.
    pub fn open_forms(&mut self) {
        self.run("document.querySelectorAll('details').forEach((details) => { details.open = true })");
    }

    /// Shows the next pages in a window of this width, light or dark.
    pub fn show_as(&mut self, width: u32, scheme: &str) {
        let size = json!({ "width": width, "height": 1_600, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", &scheme);
    }

    /// Writes a picture of the window to a file.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn save_picture(&mut self, file: &Path) {
        let target = format!("{}/screenshot", self.session);
        let picture = self.client.get(&target).expect(200).json()["value"].clone();
        let picture = STANDARD.decode(picture.as_str().expect("a text")).expect("base64");
        fs::write(file, picture).expect("the picture can be written");
    }

    /// The lines of the browser's log since the last call: errors of scripts, and requests that a policy refused.
    #[must_use]
    pub fn take_log(&mut self) -> Vec<String> {
        let lines = self.ask("/se/log", &json!({ "type": "browser" }));
        let lines = lines.as_array().expect("a list").iter().map(|line| line["message"].to_string());
        // Before a page names its icon, a browser may look for one by itself.
        lines.filter(|line| !line.contains("/favicon.ico")).collect()
    }

    fn find(&mut self, selector: &str) -> String {
        let found = self.ask("/element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("no element {selector}: {found}")).to_owned()
    }

    fn devtools(&mut self, command: &str, parameters: &Value) {
        self.ask("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }));
    }

    fn ask(&mut self, path: &str, body: &Value) -> Value {
        let target = format!("{}{path}", self.session);
        self.command("POST", &target, body)
    }

    fn command(&mut self, method: &str, target: &str, body: &Value) -> Value {
        let request =
            HttpRequest::new(method, target).header("Content-Type", "application/json").body(body.to_string());
        self.client.send(&request).expect(200).json()["value"].clone()
    }
}

impl Drop for WebBrowser {
    fn drop(&mut self) {
        // The driver ends its browser with the session.
        let _ = self.client.try_send(&HttpRequest::new("DELETE", &self.session));
    }
}

fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// A driver and its port. A driver chooses its port itself, and on a busy machine sometimes ends instead of listening there.
fn start_driver() -> (Process, u16) {
    let mut refusals = Vec::new();
    for _ in 0..DRIVERS {
        let mut driver = Process::start(Command::new("chromedriver").arg("--port=0"));
        let port = driver.wait_for(PATIENCE, |printed| {
            let (_, after) = printed.split_once("started successfully on port ")?;
            after.split_once('.')?.0.parse::<u16>().ok()
        });
        match port {
            Some(port) => return (driver, port),
            None => refusals.push(format!("{:?}: {}{}", driver.status(), driver.stdout(), driver.stderr())),
        }
    }
    panic!("no driver prints its port: {refusals:#?}")
}
