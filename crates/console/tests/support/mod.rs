//! A console over an in-process gateway, and its browser: a client that keeps its cookie and its form token.

use std::sync::Arc;

use larder_console::{ConsoleAccess, ConsoleSettings, RunningCommands, serve};
use larder_core::{AuditEvent, AuditSink, Config, GatewayPorts};
use larder_kv::Gateway;
use larder_moving::{Mover, SourceAnswer, SourceCall, SourceHttp};
use larder_net::{BrowserRules, ConnectionSettings};
use larder_rows::ActorId;
use larder_s3::{Caller, Objects, ObjectsConfig};
use larder_store::SystemClock;
use larder_store::memory::MemoryStore;
use larder_testkit::BackgroundServer;
use larder_testkit::http::{HttpClient, HttpRequest, HttpResponse};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

/// A running console.
pub(crate) struct TestConsole {
    pub(crate) background: BackgroundServer,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) access: Arc<ConsoleAccess>,
    pub(crate) commands: RunningCommands,
    pub(crate) mover: Arc<Mover>,
    audit: Arc<AuditLines>,
}

/// A source of moves that does not answer.
struct SilentSource;

#[async_trait::async_trait]
impl SourceHttp for SilentSource {
    async fn send(&self, _: SourceCall<'_>) -> Result<SourceAnswer, String> {
        Err("no connection to <h>".to_owned())
    }
}

/// The lines that the audit log would have.
#[derive(Default)]
struct AuditLines(std::sync::Mutex<Vec<String>>);

impl AuditSink for AuditLines {
    fn record(&self, event: &AuditEvent<'_>) {
        let line = format!("{} {} {} {}", event.face, event.action, event.target, event.outcome.word());
        self.0.lock().unwrap().push(line);
    }

    fn lost(&self) -> u64 {
        0
    }
}

impl TestConsole {
    pub(crate) fn start(read_only: bool) -> Self {
        let clock = Arc::new(SystemClock::default());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let audit = Arc::new(AuditLines::default());
        let ports = GatewayPorts {
            random: counted,
            store: store.clone(),
            blobs: store,
            clock,
            actor: ActorId(7),
            engine: Arc::new("memory"),
            scripts: None,
            audit: Some(audit.clone()),
            certificate: None,
            webhooks: None,
            product: larder_s3::S3Catalogue::empty(),
        };
        let access = Arc::new(ConsoleAccess::new(counted));
        let commands = RunningCommands::default();
        let settings = |mover: &Arc<Mover>| ConsoleSettings {
            connection: ConnectionSettings::default(),
            browsers: BrowserRules { hosts: Some(Vec::new()), ..BrowserRules::default() },
            access: Arc::clone(&access),
            port: 8099,
            read_only,
            mover: Arc::clone(mover),
            commands: commands.clone(),
            log: Arc::default(),
            changes: Arc::default(),
            refusals: Arc::default(),
            share: Some(Arc::new(|user, shared| {
                format!(
                    "http://s3/{}/{}?by={}&for={}",
                    shared.bucket,
                    shared.key.escape_ascii(),
                    user.key_id,
                    shared.seconds
                )
            })),
        };
        let (background, (gateway, objects, mover)) = BackgroundServer::start(async |listener, stop| {
            let gateway = Gateway::start(ports, Config::default()).await.unwrap();
            let objects =
                Objects::new(Arc::clone(gateway.shared()), vec![gateway.kv.clone()], ObjectsConfig::default());
            objects.users.ensure_admin(Some(("ADMIN-KEY".into(), "the-secret".into()))).await.unwrap();
            let mover = Mover::new(gateway.clone(), objects.clone(), Arc::new(SilentSource));
            let started = (gateway.clone(), objects.clone(), mover.clone());
            (started, serve(listener.into(), gateway, objects, settings(&mover), stop))
        });
        Self { background, gateway, objects, access, commands, mover, audit }
    }

    pub(crate) fn client(&self) -> HttpClient {
        HttpClient::new(self.background.address)
    }

    /// A browser that has signed in.
    pub(crate) fn browser(&self) -> TestBrowser {
        let token = self.access.issue_token(self.objects.gateway.context().monotonic());
        let mut client = self.client();
        let answer = client.get(&format!("/login?token={token}")).expect(200);
        let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let mut browser = TestBrowser { client, cookie, csrf: String::new() };
        browser.csrf = field(&browser.page("/"), "csrf");
        browser
    }

    /// The S3 administrator, for this action.
    pub(crate) fn admin(&self, action: larder_s3_rules::S3Action) -> Caller {
        let user = self.background.run(self.objects.users.find_by_key("ADMIN-KEY")).unwrap();
        Caller { user: Some(user), action: Some(action), ..Caller::default() }
    }

    pub(crate) fn audit_lines(&self) -> Vec<String> {
        self.audit.0.lock().unwrap().clone()
    }

    pub(crate) fn stop(self) {
        self.background.stop(self.gateway.shutdown());
    }
}

/// A client with a session.
pub(crate) struct TestBrowser {
    pub(crate) client: HttpClient,
    pub(crate) cookie: String,
    pub(crate) csrf: String,
}

impl TestBrowser {
    pub(crate) fn get(&mut self, target: &str) -> HttpResponse {
        let request = HttpRequest::get(target).header("Cookie", &self.cookie);
        self.client.send(&request)
    }

    /// The text of a page.
    #[track_caller]
    pub(crate) fn page(&mut self, target: &str) -> String {
        self.get(target).expect(200).text()
    }

    /// Sends a form with the token of this session.
    pub(crate) fn post(&mut self, target: &str, fields: &[(&str, &[u8])]) -> HttpResponse {
        let csrf = self.csrf.clone();
        self.post_with(target, csrf.as_bytes(), fields)
    }

    /// Sends a form with a file, its token first.
    pub(crate) fn post_file(&mut self, target: &str, csrf: &str, name: &str, value: &[u8]) -> HttpResponse {
        let disposition = |rest: &str| format!("--B\r\nContent-Disposition: form-data; {rest}\r\n");
        let token = format!("{}\r\n{csrf}\r\n", disposition("name=\"csrf\""));
        let file = disposition(&format!("name=\"file\"; filename=\"{name}\"\r\nContent-Type: text/plain"));
        let body = [token.as_bytes(), file.as_bytes(), b"\r\n", value, b"\r\n--B--\r\n"].concat();
        let request = HttpRequest::new("POST", target)
            .header("Cookie", &self.cookie)
            .header("Content-Type", "multipart/form-data; boundary=B")
            .body(body);
        self.client.send(&request)
    }

    pub(crate) fn post_with(&mut self, target: &str, csrf: &[u8], fields: &[(&str, &[u8])]) -> HttpResponse {
        let token = [("csrf", csrf)];
        let all = token.iter().chain(fields).map(|(name, value)| format!("{name}={}", encoded(value)));
        let request = HttpRequest::new("POST", target)
            .header("Cookie", &self.cookie)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(all.collect::<Vec<_>>().join("&"));
        self.client.send(&request)
    }
}

/// The value of the first field of this name in a page.
#[track_caller]
pub(crate) fn field(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let at = page.find(&start).unwrap_or_else(|| panic!("no field {name} in\n{page}"));
    page[at + start.len()..].split('"').next().unwrap().to_owned()
}

pub(crate) fn encoded(value: &[u8]) -> String {
    percent_encode(value, NON_ALPHANUMERIC).to_string()
}

fn counted(bytes: &mut [u8]) {
    use std::sync::atomic::{AtomicU8, Ordering};
    static NEXT: AtomicU8 = AtomicU8::new(1);
    bytes.fill(NEXT.fetch_add(1, Ordering::Relaxed));
}
